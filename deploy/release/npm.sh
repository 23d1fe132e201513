#!/bin/sh
# Packs pushup.js for npm, with the name in pyproject.toml and PushUp's version: `npm.sh BIN FOLDER`, BIN as of .venv.
# The same commit gives the same bytes: npm writes no times.
set -eu
bin=$(cd "$1" && pwd)
rm -rf "$2"
mkdir -p "$2/package"
out=$(cd "$2" && pwd)
cd "$(dirname "$0")/../.."
cp pushup/browser/package.json pushup/browser/*.js pushup/browser/*.d.ts LICENSE "$out/package"
cp deploy/release/npm.md "$out/package/README.md"
name=$("$bin/python" -c 'import tomllib; print(tomllib.load(open("pyproject.toml", "rb"))["tool"]["pushup"]["npm"])')
version=$("$bin/python" -c 'import pushup; print(pushup.__version__)')
cd "$out/package"
npm pkg set "name=$name" "version=$version"
npm pack --silent --pack-destination "$out"
