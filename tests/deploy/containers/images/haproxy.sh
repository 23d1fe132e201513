# The entry point of HAProxy's image: a master process, in the foreground.
set -e
case $1 in -*) set -- haproxy "$@" ;; esac
[ "$1" != haproxy ] || { shift; set -- haproxy -W -db "$@"; }
exec "$@"
