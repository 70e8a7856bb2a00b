#!/usr/bin/env python3
"""Whether a block of SQL says what its document shows.

    doc_output.py EXPECTED ACTUAL

ACTUAL is what psql wrote with VERBOSITY=verbose. In EXPECTED a line that is `...` stands for any lines, and `…` for any text
within a line. How wide columns are does not count, since what `…` stands for may be longer.
"""

import pathlib
import re
import sys


def lines(text):
    """Without what only a run of this suite has: psql's places, SQLSTATEs, and where in the server an error was raised."""
    for line in text.splitlines():
        line = re.sub(r"^psql:\S+?:\d+: ", "", line)
        line = re.sub(r"^((?:ERROR|FATAL|WARNING|NOTICE|INFO):  )[0-9A-Z]{5}: ", r"\1", line)
        if line.startswith(("LOCATION:", "CONTEXT:")) or re.match(r"(PL/pgSQL|SQL) (function|statement) ", line):
            continue
        if re.fullmatch(r"[-+ ]*[-+][-+ ]*", line):
            line = "-"
        line = re.sub(r" *\+?$", "", line)
        line = re.sub(r" {2,}", " ", line).strip()
        if line:
            yield line


def pattern(expected):
    parts = []
    for line in expected:
        if line == "...":
            parts.append(r"(?:[^\n]*\n)*?")
        else:
            parts.append("[^\n]*?".join(re.escape(piece) for piece in line.split("…")) + r"\n")
    return re.compile("".join(parts))


def main():
    expected, actual = (list(lines(pathlib.Path(name).read_text(encoding="utf-8"))) for name in sys.argv[1:3])
    if pattern(expected).fullmatch("".join(line + "\n" for line in actual)):
        return 0
    print("the document shows:", *expected, "psql says:", *actual, sep="\n    ")
    return 1


if __name__ == "__main__":
    sys.exit(main())
