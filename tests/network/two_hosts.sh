#!/bin/bash
# Runs a command as if on one of two hosts with a cable between them: two network namespaces joined by a pair of veths.
#   tests/network/two_hosts.sh COMMAND...
# The command runs at 10.99.0.1, in the namespace whose end of the cable is `cable`. $ELSEWHERE are the words that run a
# program on the other host, 10.99.0.2. All of it ends with the command. Needs root, or user namespaces.
if [ -z "$DAT_ON_ONE_HOST" ]; then
    export DAT_ON_ONE_HOST=1
    # As root without a user namespace, which would change what processes may do to each other.
    for options in -n -rn; do
        unshare $options true 2> /dev/null && exec unshare $options bash "$0" "$@"
    done
    echo "two_hosts.sh: no network namespaces here (root, or user namespaces, are needed)" >&2
    exit 3
fi
set -e
unshare -n sleep infinity &
other=$!
trap 'kill $other' EXIT
# Until it has a namespace of its own.
for _ in $(seq 100); do
    [ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/$$/ns/net)" ] && break
    sleep 0.05
done
export ELSEWHERE="nsenter --net=/proc/$other/ns/net"
ip link add cable type veth peer name cable netns "$other"
for host in 1 2; do
    there=
    [ $host = 2 ] && there=$ELSEWHERE
    $there ip address add 10.99.0.$host/24 dev cable
    $there ip link set cable up
    $there ip link set lo up
done
set +e
"$@"
