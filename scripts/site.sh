#!/usr/bin/env bash
# site.sh: the documentation as a site of files in target/site, with mdBook. No server is needed for it:
# docs/reference/functions.md, which is made from one, is checked in.
. "$(dirname "$0")/lib.sh"

site=$ROOT/target/site
pages=$ROOT/target/site-pages

# page FILE NAME: a page of the book, whose links lead to pages of the book.
page() {
    local up=
    # As many steps as lead to the book's root.
    [[ $2 != */* ]] || up=$(sed -E 's,[^/]+/,../,g; s,[^/]+$,,' <<<"$2")
    mkdir -p "$(dirname "$pages/src/$2")"
    sed -E "s,\]\((\.\./)*docs/,](,g
            s,\]\((\.\./)+README\.md,]($up""index.md,g
            s,\]\((\.\./)*CHANGELOG\.md,]($up""changes.md,g
            s,\]\((\.\./)+(LICENSE|Containerfile|monitoring|clients),]($up\2,g" "$1" >"$pages/src/$2"
}

rm -rf "$pages" "$site"
mkdir -p "$pages/src"
cp docs/book.toml "$pages/"
while read -r file; do page "$file" "${file#docs/}"; done < <(find docs -name '*.md')
page README.md index.md
page CHANGELOG.md changes.md
cp -r LICENSE Containerfile monitoring docs/plots docs/pictures "$pages/src/"

said=$("$ROOT/target/tools/bin/mdbook" build "$pages" --dest-dir "$site" 2>&1) || { echo "$said" >&2; exit 1; }
if grep -E 'WARN|ERROR' <<<"$said" >&2; then exit 1; fi
python3 scripts/doc_links.py --site "$site"
echo "docs: $site/index.html"
