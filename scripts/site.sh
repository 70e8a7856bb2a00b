#!/usr/bin/env bash
# site.sh: the documentation as a site of files in target/site, with mdBook. No server is needed for it:
# docs/functions.md, which is made from one, is checked in.
. "$(dirname "$0")/lib.sh"

site=$ROOT/target/site
pages=$ROOT/target/site-pages

# page FILE NAME: a page of the book, whose links lead to pages of the book.
page() {
    sed -E 's,\]\((\.\./)?docs/,](,g
            s,\]\((\.\./)?tests/README\.md,](tests.md,g
            s,\]\(\.\./README\.md,](index.md,g
            s,\]\(\.\./CHANGELOG\.md,](changes.md,g
            s,\]\(\.\./,](,g' "$1" >"$pages/src/$2"
}

rm -rf "$pages" "$site"
mkdir -p "$pages/src"
cp docs/book.toml "$pages/"
for file in docs/*.md; do page "$file" "${file#docs/}"; done
page README.md index.md
page CHANGELOG.md changes.md
page tests/README.md tests.md
cp -r LICENSE Containerfile monitoring docs/plots "$pages/src/"

said=$("$ROOT/target/tools/bin/mdbook" build "$pages" --dest-dir "$site" 2>&1) || { echo "$said" >&2; exit 1; }
if grep -E 'WARN|ERROR' <<<"$said" >&2; then exit 1; fi
python3 scripts/doc_links.py --site "$site"
echo "docs: $site/index.html"
