#!/bin/sh
# Gets what the tests with containers need, and prints the folder that has it: `docker-compose`; `base.tar`, the root of the
# stand-in images; `debian.tar`, a Debian with systemd and little else. What is there already stays as it is; delete the folder to make it again. As root, on Debian.
set -eu
COMPOSE=2.26.1-4
ROOT_PACKAGES=ca-certificates,netbase,tzdata,openssl,python3,python3-venv,python3-dev,gcc,libc6-dev,haproxy,redis-server

fail() { echo "The tests with containers cannot run: $1" >&2; exit 1; }

[ "$(id -u)" = 0 ] || fail "they start a Docker daemon of their own, which takes root. Run them as root."

missing=
for need in docker:docker.io dockerd:docker.io docker-init:docker.io iptables:iptables mmdebstrap:mmdebstrap dpkg-buildpackage:dpkg-dev lintian:lintian \
    unshare:util-linux setpriv:util-linux ip:iproute2; do
    command -v "${need%%:*}" > /dev/null || missing="$missing ${need#*:}"
done
if [ -n "$missing" ]; then
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing; } >&2 ||
        fail "apt-get could not install$missing."
fi

folder=${XDG_CACHE_HOME:-$HOME/.cache}/pushup-containers
mkdir -p "$folder"
work=$(mktemp -d "$folder/new.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

compose=$folder/docker-compose-$COMPOSE
if [ ! -x "$compose" ]; then
    # Bookworm's is 1.29, which does not know `name:`. That of the next Debian runs here, too: it needs nothing but libc.
    case $(dpkg --print-architecture) in
        amd64) sum=47681197cb2b1ab88206b42a1a92fc75f50d9530a6322d03494a473eed0408ea ;;
        arm64) sum=bbafaa666f3e7fa00ad36f2a8bab889f1c791ca8743d674e7267a3d07203869c ;;
        *) fail "the checksum of compose is not known here for $(dpkg --print-architecture)." ;;
    esac
    package=docker-compose_${COMPOSE}_$(dpkg --print-architecture).deb
    /usr/lib/apt/apt-helper download-file "http://deb.debian.org/debian/pool/main/d/docker-compose/$package" \
        "$work/compose.deb" "SHA256:$sum" > "$work/log" 2>&1 ||
        { tail -20 "$work/log" >&2; fail "compose $COMPOSE could not be downloaded from Debian."; }
    dpkg-deb --extract "$work/compose.deb" "$work/compose"
    mv "$work/compose/usr/libexec/docker/cli-plugins/docker-compose" "$compose"
fi

base=$folder/base-bookworm-2.tar
if [ ! -f "$base" ]; then
    echo "Making the root of the stand-in images from Debian's packages, once ..." >&2
    mmdebstrap --variant=minbase --include="$ROOT_PACKAGES" --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        bookworm "$work/base.tar" > "$work/log" 2>&1 ||
        { tail -20 "$work/log" >&2; fail "mmdebstrap could not make a Debian bookworm."; }
    mv "$work/base.tar" "$base"
fi

# What the Debian package depends on is there to install, but not installed.
debian=$folder/debian-bookworm-1.tar
if [ ! -f "$debian" ]; then
    echo "Making a small Debian from its packages, once ..." >&2
    mmdebstrap --variant=minbase --include=systemd-sysv --skip=cleanup/apt --dpkgopt=force-unsafe-io \
        --customize-hook='chroot "$1" apt-get install -y -qq --install-recommends --download-only adduser ca-certificates python3.11' \
        bookworm "$work/debian.tar" > "$work/log" 2>&1 ||
        { tail -20 "$work/log" >&2; fail "mmdebstrap could not make a Debian bookworm with systemd."; }
    mv "$work/debian.tar" "$debian"
fi

ln -sf "$compose" "$folder/docker-compose"
ln -sf "$base" "$folder/base.tar"
ln -sf "$debian" "$folder/debian.tar"
echo "$folder"
