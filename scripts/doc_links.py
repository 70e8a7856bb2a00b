#!/usr/bin/env python3
"""Links that lead nowhere.

    doc_links.py FILE.md ...      those of Markdown: to files beside them, and to headings
    doc_links.py --site DIRECTORY those of a site's pages, with what they load, and to anchors

Links to other hosts are left alone. --summary FILE.md names a table of contents that has to lead to
each of the files.
"""

import argparse
import html.parser
import pathlib
import re
import sys
import urllib.parse

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^()\s]+)\)|^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
HEADING = re.compile(r"^#{1,6} +(.*?)\s*#*$", re.MULTILINE)


def anchor_of(heading):
    """As GitHub and mdBook make it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return "".join("-" if c.isspace() else c for c in text if c.isalnum() or c.isspace() or c in "_-")


class Page:
    """The links and the anchors of a file."""

    def __init__(self, path):
        self.path = path
        self.links = []
        self.anchors = set()
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".html":
            self.read_html(text)
        else:
            self.read_markdown(text)

    def read_markdown(self, text):
        text = FENCE.sub("", text)
        seen = {}
        for heading in HEADING.findall(text):
            anchor = anchor_of(heading)
            number = seen[anchor] = seen.get(anchor, -1) + 1
            self.anchors.add(f"{anchor}-{number}" if number else anchor)
        self.links = [one or other for one, other in LINK.findall(CODE.sub("", text))]

    def read_html(self, text):
        page = self

        class Reader(html.parser.HTMLParser):
            def handle_starttag(self, tag, attributes):
                for name, value in attributes:
                    if name in ("id", "name") and value:
                        page.anchors.add(value)
                    if name in ("href", "src") and value:
                        page.links.append(value)

        Reader().feed(text)


def broken_links(page, pages):
    for link in page.links:
        target = urllib.parse.urlsplit(link)
        if target.scheme or target.netloc or link.startswith("/"):
            continue
        path = page.path
        if target.path:
            path = (page.path.parent / urllib.parse.unquote(target.path)).resolve()
        if not path.exists():
            yield f"{link}: there is no such file"
        elif target.fragment and path.suffix in (".md", ".html"):
            if path not in pages:
                pages[path] = Page(path)
            if urllib.parse.unquote(target.fragment) not in pages[path].anchors:
                yield f"{link}: there is no such heading"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    parser.add_argument("--site", type=pathlib.Path)
    parser.add_argument("--summary", type=pathlib.Path)
    options = parser.parse_args()
    files = [file.resolve() for file in options.files]
    if options.site:
        # 404.html is shown for every address: its links begin at the site's root.
        files += sorted(file for file in options.site.resolve().rglob("*.html") if file.name != "404.html")
    pages = {file: Page(file) for file in files}
    broken = [f"{page.path}: {text}" for page in list(pages.values()) for text in broken_links(page, pages)]
    if options.summary:
        listed = {(options.summary.parent / link).resolve() for link in Page(options.summary).links}
        broken += [f"{options.summary} does not lead to {file.name}" for file in files
                   if file.parent == options.summary.resolve().parent and file not in listed
                   and file != options.summary.resolve()]
    print("\n".join(broken + [f"{sum(len(page.links) for page in pages.values())} links in {len(files)} files"]))
    sys.exit(1 if broken or not files else 0)


if __name__ == "__main__":
    main()
