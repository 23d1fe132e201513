#!/bin/sh
# Builds the wheel of pushup-client (docs/internals/decisions/0034-two-distributions.md) from the tree SOURCE into FOLDER:
# `client.sh PYTHON SOURCE FOLDER`. Its build needs setuptools only.
set -eu
umask 022
python=$1 source=$2 out=$3
version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' "$source/pushup/__init__.py")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -R "$source/pushup" "$source/LICENSE" "$source/deploy/client/README.md" "$work"
rm "$work/pushup/__init__.py"
sed "s/0\.0\.0/$version/" "$source/deploy/client/pyproject.toml" > "$work/pyproject.toml"
"$python" -m pip wheel -q --no-deps --wheel-dir "$out" "$work"
