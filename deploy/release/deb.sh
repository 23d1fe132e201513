#!/bin/sh
# Builds the Debian package for this machine's Debian, of what is committed, into FOLDER: `deb.sh FOLDER`.
# deploy/debian/ has Debian's files. As root, or with sudo, it installs what Build-Depends in deploy/debian/control lists.
set -eu
umask 022
unset MAKEFLAGS MAKEOVERRIDES # `make deb PYTHON=...` would set that of debian/rules, too
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
export PUSHUP_COMMIT="$(git rev-parse --short=12 HEAD)"
date=$(git log -1 --format=%cD)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir "$work/pushup"
git archive HEAD pyproject.toml setup.py README.md LICENSE pushup deploy docs/changelog.md | tar -x -C "$work/pushup"
cd "$work/pushup"
mv deploy/debian debian
version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' pushup/__init__.py)
cat > debian/changelog << END
pushup ($version) stable; urgency=medium

  * What has changed is in /usr/share/doc/pushup/changelog.gz.

 -- $(sed -n 's/^Maintainer: //p' debian/control)  $date
END
dpkg-checkbuilddeps 2> /dev/null || { ${SUDO-} apt-get update -qq && ${SUDO-} apt-get build-dep -y -qq .; }
dpkg-buildpackage --build=binary --no-sign
mv ../pushup_*.deb "$out"
