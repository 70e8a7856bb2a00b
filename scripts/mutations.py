#!/usr/bin/env python3
"""Deliberate faults of the product, as tests/mutations/*.txt describe them.

    mutations.py check             whether each fault still fits the code, and its tests are those of `make test`
    mutations.py found-by FILE     the tests that have to find it, a suite and a test in each line
    mutations.py apply FILE ROOT   makes the fault in a copy of the checkout

A description has these lines, and then the text that is replaced and what replaces it. Both are taken as they stand,
without the line break at their end:

    why: what the product does not keep with this fault
    file: src/agent/blocks.rs
    found by: harness:split::protocol a_test another_test
    --- old
    --- new
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIELD = re.compile(r"(why|file|found by): (.+)")


class Fault:
    """What a file describes."""

    def __init__(self, path):
        self.name = path.stem
        head, old, new = re.fullmatch(
            r"(.*?)^--- old\n(.*?)\n?^--- new\n(.*?)\n?", path.read_text(encoding="utf-8"), re.M | re.S
        ).groups()
        fields = [FIELD.fullmatch(line).groups() for line in head.splitlines()]
        self.old, self.new = old, new
        self.why, = [text for field, text in fields if field == "why"]
        self.file, = [text for field, text in fields if field == "file"]
        found_by = [text.split() for field, text in fields if field == "found by"]
        self.found_by = [(suite, test) for suite, *tests in found_by for test in tests]

    def problems(self):
        if not re.fullmatch(r"[a-z0-9_]+", self.name):
            yield "its name is not in snake_case"
        if not self.file.startswith(("src/", "sql/")):
            yield f"{self.file} is no part of the product"
        elif not (ROOT / self.file).exists():
            yield f"there is no file {self.file}"
        elif (count := (ROOT / self.file).read_text(encoding="utf-8").count(self.old)) != 1:
            yield f"{self.file} has the old text {count} times, and not once"
        if self.old == self.new or not self.old:
            yield "it changes nothing"
        if not self.found_by:
            yield "no test has to find it"
        for suite, test in self.found_by:
            if not runs(suite, test):
                yield f"`make test` has no test {test} in {suite}"

    def apply(self, root):
        file = root / self.file
        text = file.read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            sys.exit(f"{self.file} has the old text {text.count(self.old)} times, and not once")
        file.write_text(text.replace(self.old, self.new), encoding="utf-8")


def runs(suite, test):
    """Whether `make test` has the test: it exists, and is not left to the long runs."""
    if suite in ("regress", "isolation"):
        schedule = "tests/schedule" if suite == "regress" else "tests/isolation_schedule"
        return f"test: {test}" in (ROOT / schedule).read_text(encoding="utf-8").splitlines()
    if suite.startswith("harness:"):
        file = ROOT / "pgrx-tests/tests" / (suite.removeprefix("harness:").replace("::", "/") + ".rs")
        attribute = "#[test]"
    elif suite == "pure":
        # Unit tests are in the file of their module.
        file = ROOT / "src" / ("/".join(test.split("::")[:-2]) + ".rs")
        attribute, test = "#[test]", test.split("::")[-1]
    else:
        return False
    # An attribute between the two would be #[ignore].
    return file.exists() and bool(
        re.search(rf"^ *{re.escape(attribute)}\n *fn {re.escape(test)}\(\)", file.read_text(encoding="utf-8"), re.M)
    )


def check():
    broken = 0
    files = sorted((ROOT / "tests/mutations").iterdir())
    for file in files:
        try:
            problems = list(Fault(file).problems())
        except (AttributeError, ValueError) as error:
            problems = [f"it does not have the form that scripts/mutations.py reads: {error}"]
        for problem in problems:
            print(f"{file.name}: {problem}")
        broken += bool(problems)
    print(f"{len(files)} faults, {broken} of them do not fit")
    return 1 if broken or not files else 0


def main():
    call, files = sys.argv[1:2], [pathlib.Path(name) for name in sys.argv[2:]]
    if call == ["check"] and not files:
        return check()
    if call == ["found-by"] and len(files) == 1:
        for suite, test in Fault(files[0]).found_by:
            print(suite, test)
    elif call == ["apply"] and len(files) == 2:
        Fault(files[0]).apply(files[1])
    else:
        sys.exit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
