#!/bin/sh
# Makes a self-signed certificate for testing: certificate.sh FILE [NAME ...]. The file contains key and certificate, as
# HAProxy needs them, is readable only by its owner, and is valid for 30 days. Browsers warn about it. An existing file
# is not changed.
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
trap 'rm -f "$key" "$certificate" "$file.new"' EXIT
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj "/CN=$1" \
    -addext "subjectAltName=$names" -keyout "$key" -out "$certificate" 2>/dev/null ||
    { echo "certificate.sh: openssl could not make a certificate; is it installed?" >&2; exit 1; }
cat "$key" "$certificate" > "$file.new"
mv "$file.new" "$file"
