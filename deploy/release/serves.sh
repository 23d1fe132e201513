#!/bin/sh
# Whether the installed PushUp serves: `serves.sh FORM`, compiled or interpreted. Publishes a message and reads it.
set -eu
pushup --version | tee /dev/stderr | grep -q ", $1\$"
pushup serve --listen 127.0.0.1:8099 &
trap 'kill $!' EXIT
export PUSHUP_URL=http://127.0.0.1:8099
for _ in $(seq 50); do pushup publish --data hello news > /dev/null 2>&1 && break || sleep 0.2; done
pushup poll --once news | grep hello
