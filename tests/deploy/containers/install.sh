#!/bin/sh
# Gets what the tests with containers need, and prints the folder that has it: `docker-compose`; `base.tar`, the root of the
# stand-in images; `debian.tar`, a Debian with systemd and little else. What is there already stays as it is; delete the folder to make it again. As root, on Debian.
set -eu
COMPOSE=v2.40.3
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
    # Debian's docker-compose is 1.29, which does not know `name:`. Compose 2 is a Go module. It has exclude directives, so
    # `go install` does not take it; a module that requires it does.
    command -v go > /dev/null || fail "compose $COMPOSE is built by Go 1.24.9 or later, and there is no go. Install it."
    echo "Building compose $COMPOSE; this takes minutes, once ..." >&2
    (
        cd "$work" && export GOFLAGS=-mod=mod && go mod init compose && go get "github.com/docker/compose/v2/cmd@$COMPOSE" &&
            go build -trimpath -buildvcs=false -o docker-compose \
                -ldflags "-s -w -X github.com/docker/compose/v2/internal.Version=$COMPOSE" github.com/docker/compose/v2/cmd
    ) > "$work/log" 2>&1 || { tail -20 "$work/log" >&2; fail "compose $COMPOSE could not be built from its Go module."; }
    mv "$work/docker-compose" "$compose"
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
