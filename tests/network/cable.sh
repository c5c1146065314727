#!/bin/bash
# Pulls the cable between two connected processes: both must find the connection broken in time, the listening one must
# go on, and both must do business again when the cable is back. Run by two_hosts.sh.
#   DAT  the program     PLUGINS  its plugins.toml on this host     PLUGINS_THERE  on the other
#   NAME the provider    WITHIN   seconds after which both must know
out=$(mktemp -d)
trap 'kill $listener $pinger 2> /dev/null; rm -rf "$out"' EXIT
fail() {
    echo "cable.sh: $1" >&2
    head -n 20 "$out"/* >&2
    exit 1
}
# Waits until a file has a line with these words; the time it took in tenths of a second.
until_line() {
    for tenths in $(seq 0 "$3"); do
        grep -q "$2" "$1" && echo "$tenths" && return
        sleep 0.1
    done
    return 1
}
$ELSEWHERE "$DAT" --plugins "$PLUGINS_THERE" ping "$NAME" --listen 4792 > "$out/listener" 2>&1 &
listener=$!
until_line "$out/listener" "4792" 100 > /dev/null || fail "nobody listens"
ping() {
    "$DAT" --plugins "$PLUGINS" ping "$NAME" --connect 10.99.0.2:4792 --timeout 60s "$@"
}
ping --count 10 > "$out/before" 2>&1 || fail "no connection before anything was done"
ping --count 100000 --interval 10ms > "$out/pinger" 2>&1 &
pinger=$!
sleep 1.5
kill -0 $pinger 2> /dev/null || fail "the connection ended by itself"
: > "$out/listener"
ip link set cable down
here=$(until_line "$out/pinger" "BROKEN" "$((WITHIN * 10))") || fail "this side did not find it broken in $WITHIN s"
there=$(until_line "$out/listener" "BROKEN" "$((WITHIN * 10))") || fail "the other side did not find it broken in $WITHIN s"
wait $pinger && fail "the broken connection was a success"
ip link set cable up
kill -0 $listener 2> /dev/null || fail "the listening process ended"
ping --count 10 > "$out/after" 2>&1 || fail "no connection after the cable came back"
echo "$NAME: found broken within $((here / 10)).$((here % 10)) s here and then $((there / 10)).$((there % 10)) s there; connected again"
