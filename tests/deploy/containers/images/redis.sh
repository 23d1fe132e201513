# The entry point of Redis' image: root gives the data to the user redis and becomes that user.
set -e
case $1 in -* | *.conf) set -- redis-server "$@" ;; esac
if [ "$1" = redis-server ] && [ "$(id -u)" = 0 ]; then
    find . \! -user redis -exec chown redis '{}' +
    exec setpriv --reuid redis --regid redis --clear-groups -- "$@"
fi
[ "$(umask)" != 0022 ] || umask 0077
exec "$@"
