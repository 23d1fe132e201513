#!/bin/sh
# Renews deploy/constraints.txt: the newest versions of all packages that the images, the Debian package and the builds
# need, for every Python and machine, with the hashes of their files. `constraints.sh BIN`: the folder that has uv and python.
set -eu
cd "$(dirname "$0")/../.."
{
    echo setuptools
    "$1/python" -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["tool"]["pushup"]["compiler"], sep="\n")'
} | "$1/uv" pip compile --quiet --upgrade --universal --python-version 3.11 --extra example --extra tls --generate-hashes \
    --no-annotate --no-header --output-file build/constraints pyproject.toml -
{
    cat << 'END'
# The versions of all packages in the images and in the Debian package, and of those that build PushUp, with hashes for
# every Python and machine. `make constraints` renews it. pip does not take hashes as constraints of a folder, so use it so:
#   pip download --require-hashes --no-deps --only-binary :all: -r deploy/constraints.txt -d WHEELS
#   pip install --no-index --find-links WHEELS '.[tls]'
END
    cat build/constraints
} > deploy/constraints.txt
