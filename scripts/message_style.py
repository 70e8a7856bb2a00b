#!/usr/bin/env python3
"""Whether messages are written as PostgreSQL writes them, in words of this project's style.

    message_style.py FILE.rs|FILE.sql ...

A hint is one or more full sentences of at most 25 words; a message and a COMMENT have none of the words below. Ends with 1
and names each place where it is otherwise. What a test says is not looked at.
"""

import pathlib
import re
import sys

HINT = 25

# What was said before, and what is said now.
WORDS = {
    r"\b(is|are) none of\b": "is not one of",
    r"\bmay go\b": "may be lost",
    r"\bset back to a time\b": "restored to a time",
    r"\bmend(s|ed)?\b": "fix",
    r"\bby (itself|themselves)\b": "automatically",
    r"\bwhoever\b": "the role, the client, the caller",
    r"\bway back\b": "reverse split",
    r"\blook-ups?\b": "lookup index",
    r"\bin vain\b": "failed attempt",
    r"\bgive[sn]? (it|them) up\b|\bgiven up\b": "abandon, abort, declare lost",
    r"\bsettles?\b|\bsettled\b": "finish, end, decide",
    r"\banew\b": "again",
    r"\b(brings?|comes?) over\b": "copy",
    r"\bmoves? over\b": "copy",
    r"\bout of the way\b": "gone",
    r"\bsealed under\b": "encrypted with",
    r"\bstrangers?\b": "other sessions, rows out of scope",
}
COMMENT = {".rs": r"(?m)^\s*//.*$", ".sql": r"(?m)--.*$"}
LITERAL = {".rs": r'"((?:[^"\\]|\\.)*)"', ".sql": r"'((?:[^']|'')*)'"}
SQL = re.compile(r"\s*(SELECT|WITH|INSERT|UPDATE|DELETE|CREATE|DROP|ALTER|SET|LOCK|COPY|EXISTS|FROM|WHERE|AND|OR)\b")
SENTENCE_END = re.compile(r"(?<=[.!?;])\s+")


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def literals(path):
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".rs":
        text = text.split("#[cfg(test)]")[0]
        text = re.sub(r"'\\?\"'", "   ", text)
    text = re.sub(COMMENT[path.suffix], blank, text)
    for match in re.finditer(LITERAL[path.suffix], text, re.S):
        yield text.count("\n", 0, match.start()) + 1, re.sub(r"\\\n\s*", "", match.group(1))


def problems(path):
    for line, text in literals(path):
        if len(text.split()) < 3 or SQL.match(text) and not text.rstrip().endswith("."):
            continue
        for word, better in WORDS.items():
            if found := re.search(word, text):
                yield f'{path}:{line}: "{found.group(0)}": {better}'
        # A hint begins like a sentence and ends like one.
        if re.match(r"[A-Z]", text) and text.rstrip().endswith("."):
            for sentence in SENTENCE_END.split(text):
                count = len([word for word in sentence.split() if re.search(r"\w", word)])
                if count > HINT:
                    yield f"{path}:{line}: a sentence of {count} words, of {HINT}: {sentence[:60]}"


def main():
    found = [problem for name in sys.argv[1:] for problem in problems(pathlib.Path(name))]
    print(*found, sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
