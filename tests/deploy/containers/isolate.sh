# The first process in the namespaces that `docker.py` makes: a Docker daemon whose files are all in one folder.
#   isolate.sh FOLDER NETWORK        NETWORK: own (bridges, and the loopback device) or host (for builds; it changes nothing)
set -eu
folder=$1
ulimit -Sn "$(ulimit -Hn)"
if [ "$2" = own ]; then
    ip link set lo up
    set --
else
    set -- --bridge none --iptables=false --ip6tables=false --ip-forward=false --ip-masq=false
fi
rm -rf "$folder/dockerd.pid" "$folder/exec"
echo '{}' > "$folder/daemon.json"
dockerd --config-file "$folder/daemon.json" --data-root "$folder/data" --exec-root "$folder/exec" \
    --pidfile "$folder/dockerd.pid" --host "unix://$folder/docker.sock" \
    --cgroup-parent "/$(basename "$folder")" --shutdown-timeout 5 "$@" &
daemon=$!
trap 'kill "$daemon"' TERM
wait "$daemon" || wait "$daemon"
