#!/bin/sh
# Makes a certificate for trying things out: certificate.sh FILE [NAME ...]. Key and certificate in one file, as HAProxy
# wants them, readable by nobody else, good for 30 days. Browsers warn of it: nobody has signed it. It leaves a file
# alone that is there already.
set -eu
file=${1:?usage: certificate.sh FILE [NAME ...]}
shift
[ $# -gt 0 ] || set -- localhost
[ -e "$file" ] && exit 0
names=IP:127.0.0.1
for name in "$@"; do names="$names,DNS:$name"; done
umask 077
mkdir -p "$(dirname "$file")"
key=$(mktemp) certificate=$(mktemp)
trap 'rm -f "$key" "$certificate"' EXIT
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj "/CN=$1" \
    -addext "subjectAltName=$names" -keyout "$key" -out "$certificate" 2>/dev/null ||
    { echo "certificate.sh: openssl could not make a certificate; is it installed?" >&2; exit 1; }
cat "$key" "$certificate" > "$file"
