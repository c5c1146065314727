#!/bin/bash
# Runs a command in a network namespace of its own, where TCP sends what it has at once.
#   tests/network/unpaced.sh COMMAND...
# Some machines pace TCP (`bbr`): a message then takes as long as the kernel guesses that a cable would, by the hundred
# microseconds, in any program. Needs root, or user namespaces.
if [ -z "$DAT_UNPACED" ]; then
    export DAT_UNPACED=1
    for options in -n -rn; do
        unshare $options true 2> /dev/null && exec unshare $options bash "$0" "$@"
    done
    echo "unpaced.sh: no network namespaces here (root, or user namespaces, are needed)" >&2
    exit 3
fi
set -e
ip link set lo up
echo reno > /proc/sys/net/ipv4/tcp_congestion_control
exec "$@"
