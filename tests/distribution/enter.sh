#!/bin/sh
# Runs a command in the tree of another distribution, which sees some folders of this machine at their own paths.
#   tests/distribution/enter.sh TREE FOLDER... -- COMMAND...
# Needs root. The mounts are in a name space of their own and end with the command; so does the network, which is the
# loopback interface alone, unless DAT_NETWORK is set.
if [ -z "$DAT_ENTERED" ]; then
    export DAT_ENTERED=1
    apart=-mn
    [ -n "$DAT_NETWORK" ] && apart=-m
    exec unshare $apart sh "$0" "$@"
fi
set -e
tree=$1
shift
mount --make-rprivate /
mount -t proc proc "$tree/proc"
mount --rbind /sys "$tree/sys"
mount --rbind /dev "$tree/dev"
while [ "$1" != -- ]; do
    mkdir -p "$tree$1"
    mount --bind "$1" "$tree$1"
    shift
done
shift
if [ -z "$DAT_NETWORK" ]; then
    ip link set lo up
else
    cp /etc/resolv.conf "$tree/etc/resolv.conf"
fi
unset DAT_ENTERED DAT_NETWORK
exec chroot "$tree" "$@"
