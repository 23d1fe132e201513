#!/bin/sh
# Renews deploy/constraints.txt: the newest versions of all packages that the images, the Debian package and the builds
# need, for every Python, with the hashes of their wheels. `constraints.sh BIN`: the folder that has uv and python.
set -eu
cd "$(dirname "$0")/../.."
mkdir -p build
{
    echo setuptools
    "$1/python" -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["tool"]["pushup"]["compiler"], sep="\n")'
} | "$1/uv" pip compile --quiet --upgrade --universal --python-version 3.11 --extra example --extra tls \
    --format pylock.toml --output-file build/pylock.toml pyproject.toml -
"$1/python" -m deploy.release.constraints build/pylock.toml > build/constraints.txt
{
    cat << 'END'
# The versions of all packages in the images and in the Debian package, and of those that build PushUp, with the hashes of
# their wheels for every Python on Linux, x86-64 and aarch64. `make constraints` renews it. pip does not take hashes as
# constraints of a folder, so use it so:
#   pip download --require-hashes --no-deps --only-binary :all: -r deploy/constraints.txt -d WHEELS
#   pip install --no-index --find-links WHEELS '.[tls]'
END
    cat build/constraints.txt
} > deploy/constraints.txt
