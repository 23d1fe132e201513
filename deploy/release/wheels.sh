#!/bin/sh
# Builds what a release publishes for Python, into FOLDER: the sdist; from it, the wheel compiled for this machine, with the
# manylinux tag that its symbols allow, and the pure wheel; the wheel of pushup-client; and the SBOM of an environment with
# all extras of a server.
# The same commit gives the same bytes, with the same Python and compiler. `wheels.sh BIN FOLDER`, BIN as of .venv.
set -eu
umask 022
bin=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd)
cd "$(dirname "$0")/../.."
PATH=$bin:$PATH # auditwheel looks for patchelf
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# What is committed, without what else lies in this folder.
export PUSHUP_COMMIT="$(git rev-parse --short=12 HEAD)"
mkdir "$work/source"
git archive HEAD pyproject.toml setup.py README.md LICENSE pushup deploy/client | tar -x -C "$work/source"

# What builds and what is installed has the hashes in constraints.txt; nothing else is asked for.
python -m pip download -q --require-hashes --no-deps --only-binary :all: -r deploy/constraints.txt -d "$work/packages"
export PIP_NO_INDEX=1 PIP_FIND_LINKS="$work/packages"

rm -rf "$out"/pushup-* "$out"/pushup_client-*
python -m build --sdist --outdir "$out" "$work/source"
PUSHUP_COMPILE=0 python -m pip wheel -q --no-deps --wheel-dir "$out" "$out"/pushup-*.tar.gz
PUSHUP_COMPILE=1 python -m pip wheel -q --no-deps --wheel-dir "$work" "$out"/pushup-*.tar.gz
auditwheel repair --wheel-dir "$out" "$work"/pushup-*.whl
deploy/release/client.sh python "$work/source" "$out"

version=$(basename "$out"/pushup-*.tar.gz .tar.gz)
python -m venv --without-pip "$work/sbom"
python -m pip --python "$work/sbom/bin/python" install -q "$(echo "$out"/pushup-*manylinux*.whl)[tls]"
sed "s/^dynamic = .*/version = \"${version#pushup-}\"/" pyproject.toml > "$work/pyproject.toml"
cyclonedx-py environment --output-reproducible --pyproject "$work/pyproject.toml" --output-file "$out/$version.cdx.json" \
    "$work/sbom/bin/python"
