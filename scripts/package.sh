#!/usr/bin/env bash
# Makes a Debian package of what `make` has built: target/packages/postgresql-NN-shardmaster_*.deb.
. "$(dirname "$0")/lib.sh"
find_version
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -1)
package=postgresql-$MAJOR-shardmaster
to=$ROOT/target/packages
stage=$to/$package
docs=$stage/usr/share/doc/$package

case $("$PG_CONFIG" --pkglibdir) in
    /usr/*) ;;
    *) echo "package: $PG_CONFIG is not where a package of Debian could be installed" >&2; exit 1 ;;
esac

rm -rf "$stage" && mkdir -p "$stage/DEBIAN" "$docs"
DESTDIR=$stage scripts/install.sh
library=$stage$("$PG_CONFIG" --pkglibdir)/shardmaster.so
strip --strip-unneeded "$library"
chmod 644 "$library"
cp -r README.md docs/{start,guides,operate,reference,internals,plots,pictures} "$docs/"
gzip -9nc CHANGELOG.md >"$docs/changelog.gz"
{
    echo "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"
    echo
    echo "Files: *"
    echo "Copyright: The shardmaster authors"
    echo "License: Apache-2.0"
    echo " On Debian systems its text is in /usr/share/common-licenses/Apache-2.0."
} >"$docs/copyright"

# shlibs: prints what the library's own libraries are in. It reads names of packages from a file.
shlibs() {
    mkdir -p "$to/work/debian"
    printf 'Source: shardmaster\n\nPackage: %s\nArchitecture: any\n' "$package" >"$to/work/debian/control"
    # What the server defines is nobody's library.
    (cd "$to/work" && dpkg-shlibdeps -O --warnings=0 -e"$library") | sed -n 's/^shlibs:Depends=//p'
    rm -rf "$to/work"
}

depends=$(shlibs)
[ -n "$depends" ] || { echo "package: what $library depends on is not known" >&2; exit 1; }
cat >"$stage/DEBIAN/control" <<TEXT
Package: $package
Source: shardmaster
Version: $version-1
Architecture: $(dpkg --print-architecture)
Maintainer: ${MAINTAINER:-$(sed -n 's/.*"maintainer": "\(.*\)",/\1/p' META.json)}
Installed-Size: $(du -sk --exclude=DEBIAN "$stage" | cut -f1)
Depends: postgresql-$MAJOR, $depends
Section: database
Priority: optional
Description: $(sed -n 's/^description = "\(.*\)"$/\1/p' Cargo.toml)
 One database with this extension knows which of many PostgreSQL databases holds
 a key, and moves keys between them while clients go on writing.
 .
 It runs with shared_preload_libraries = 'shardmaster' and shardmaster.database
 in postgresql.conf. The other databases need nothing installed.
TEXT
(cd "$stage" && find usr -type f -exec md5sum {} + >DEBIAN/md5sums)
chmod -R u+rwX,go=rX "$stage"
dpkg-deb --root-owner-group --build "$stage" "$to/${package}_$version-1_$(dpkg --print-architecture).deb"
rm -rf "$stage"
