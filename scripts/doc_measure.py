#!/usr/bin/env python3
"""How hard documents are to read.

    doc_measure.py FILE.md ...

Prints each page with its words, its longest paragraph and table cell, and the median of its sentences, all in words; then the
ten longest sentences. Ends with 1 if a page exceeds a limit, and names each place. --report only prints. Code, tables'
rulers and addresses are not counted; a list item is a paragraph.
"""

import argparse
import pathlib
import re
import statistics
import sys

PAGE, PARAGRAPH, CELL, SENTENCE = 1500, 120, 40, 18
# What is generated, and what explains the protocol in depth, may be long.
LONG_PAGES = re.compile(r"reference/functions\.md$|internals/protocol/[a-z-]+\.md$|CHANGELOG\.md$")

FENCE = re.compile(r"^ *(```|~~~)")
SENTENCE_END = re.compile(r"(?<=[.!?:])[\"')*_`]*\s+(?=[\"'(*_`]*[A-Z0-9`])")
RULER = re.compile(r"^[\s|:+-]+$")


def words(text):
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return [word for word in text.split() if re.search(r"\w", word)]


class Page:
    """The prose of a page, with the line on which each piece begins."""

    def __init__(self, path):
        self.path, self.paragraphs, self.cells = path, [], []
        self.piece, self.begins = [], 0
        inside = False
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if FENCE.match(line):
                inside = not inside
                self.end()
            elif not inside:
                self.read(number, line)
        self.end()

    def read(self, number, line):
        stripped = line.strip()
        if stripped.startswith("|"):
            self.end()
            if not RULER.match(stripped):
                row = re.split(r"(?<!\\)\|", stripped.strip("|"))
                self.cells += [(number, cell) for cell in row]
        elif not stripped or stripped.startswith(("#", "<")) or (line.startswith("    ") and not self.piece):
            self.end()
        elif re.match(r"([-*]|\d+\.) ", stripped):
            self.end()
            self.piece, self.begins = [re.sub(r"^([-*]|\d+\.) ", "", stripped)], number
        else:
            self.begins = self.begins if self.piece else number
            self.piece.append(stripped)

    def end(self):
        if self.piece:
            self.paragraphs.append((self.begins, " ".join(self.piece)))
        self.piece = []

    def sentences(self):
        """Of paragraphs, and of cells that have more than a few words."""
        texts = self.paragraphs + [(at, cell) for at, cell in self.cells if len(words(cell)) > 5]
        return [(len(words(s)), at, s) for at, text in texts for s in SENTENCE_END.split(text) if len(words(s)) > 1]

    def measure(self):
        longest = lambda pieces: max(((len(words(text)), at) for at, text in pieces), default=(0, 0))
        total = sum(len(words(text)) for _, text in self.paragraphs + self.cells)
        lengths = [length for length, _, _ in self.sentences()]
        return total, longest(self.paragraphs), longest(self.cells), statistics.median(lengths) if lengths else 0

    def problems(self):
        total, _, _, median = self.measure()
        if total > PAGE and not LONG_PAGES.search(str(self.path)):
            yield f"{self.path}: {total} words, of {PAGE}"
        for what, pieces, limit in (("paragraph", self.paragraphs, PARAGRAPH), ("table cell", self.cells, CELL)):
            for at, text in pieces:
                if len(words(text)) > limit:
                    yield f"{self.path}:{at}: a {what} of {len(words(text))} words, of {limit}"
        if median >= SENTENCE:
            yield f"{self.path}: half of the sentences have {median} words or more, of {SENTENCE}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--report", action="store_true")
    parser.add_argument("files", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    pages = [Page(path) for path in options.files]
    print(f"{'page':50} words paragraph cell sentence")
    for page in pages:
        total, paragraph, cell, median = page.measure()
        print(f"{str(page.path):50} {total:5} {paragraph[0]:9} {cell[0]:4} {median:8g}")
    print("the ten longest sentences, in words:")
    longest = sorted(((length, page.path, at, text) for page in pages for length, at, text in page.sentences()), reverse=True)
    for length, path, at, text in longest[:10]:
        print(f"{length:5}  {path}:{at}  {text[:90]}")
    problems = [problem for page in pages for problem in page.problems()]
    print(*problems, sep="\n")
    return 1 if problems and not options.report else 0


if __name__ == "__main__":
    sys.exit(main())
