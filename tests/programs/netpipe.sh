#!/bin/bash
# netpipe.sh [PLUGIN [PARAMS]]: NetPIPE's uDAPL module over the C library of `cargo xtask capi`, in its six modes. The
# source is Debian's (netpipe 3.7.2, GPL); nothing of it is kept here. PLUGIN is libdat_shm.so by default, PARAMS are those of
# plugins.toml. Exit status: 0 all passed, 1 one failed, 3 NOT RUN.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
plugin=${1:-libdat_shm.so}
params=${2:-domain = \"netpipe\"}
# Fixed ports: a network of its own keeps them apart from others'.
if [ -z "${APART:-}" ] && unshare -n true 2>/dev/null; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    cd "$work" && mkdir -p lists/partial || exit 3
    echo 'deb-src http://deb.debian.org/debian bookworm main' > sources.list
    apt="-o Dir::Etc::sourcelist=$work/sources.list -o Dir::Etc::sourceparts=- -o Dir::State::lists=$work/lists
         -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root"
    # shellcheck disable=SC2086
    if ! { apt-get -qq $apt update && apt-get -qq $apt --tar-only --download-only source netpipe; } > apt.log 2>&1; then
        tail -3 apt.log
        echo "NOT RUN: no source of netpipe from Debian"
        exit 3
    fi
    tar xf netpipe_*.orig.tar.gz || exit 3
    APART=$work unshare -n sh -c 'ip link set lo up && exec bash "$@"' sh "$root/tests/programs/netpipe.sh" "$plugin" "$params"
    exit
fi
[ -n "${APART:-}" ] || { echo "NOT RUN: no network namespace"; exit 3; }
cd "$APART" || exit 3
# Its queues are longer than most adapters': "these values may have to be tuned for your uDAPL device".
# Its client may connect before its server listens. It is refused then, and its clean-up waits for ever: a pause helps.
sed -e 's/\(REQ\|RCV\)_QUEUE_SIZE  50000/\1_QUEUE_SIZE  4000/' -e 's/dat_ep_connect *(/(usleep(400000), dat_ep_connect)(/' \
    NetPIPE-*/src/udapl.c > udapl.c
cc -w -O2 udapl.c NetPIPE-*/src/netpipe.c -INetPIPE-3.7.2/src -o NPudapl -DDAT -DTCP -DUSE_VOLATILE_RPTR \
    -I"$root/tests/programs/udapl12" -I"$root/target/capi/include" "$root/target/capi/lib/libdat2.so.2" -lpthread || exit 1
# The name in its source.
printf '[provider.OpenIB-cma-name]\nlibrary = "%s"\nparams = { %s }\n' "$plugin" "$params" > plugins.toml
export LD_LIBRARY_PATH=$root/target/capi/lib DAT_PLUGINS=$APART/plugins.toml
listens() { grep -q ':138A 00000000:0000 0A' /proc/net/tcp; }
passed=0 failed=0
for mode in "send_recv local_poll" "send_recv dq_poll" "send_recv evd_wait" "send_recv cno_wait" \
    "rdma_write local_poll" "rdma_write evd_wait"; do
    # The client may ask before the server listens for uDAPL, and is refused: three tries.
    for try in 1 2 3; do
        # shellcheck disable=SC2086
        set -- $mode
        timeout 60 ./NPudapl -t "$1" -c "$2" -u 3000 -n 20 > server.txt 2>&1 & server=$!
        for _ in $(seq 200); do listens && break; sleep 0.05; done
        timeout 60 ./NPudapl -t "$1" -c "$2" -u 3000 -n 20 -h 127.0.0.1 > client.txt 2>&1; client=$?
        [ $client = 0 ] || kill $server 2>/dev/null
        wait $server; status=$?
        [ $client = 0 ] && [ $status = 0 ] && grep -q '2051 bytes' client.txt && break
    done
    if [ $client = 0 ] && [ $status = 0 ] && grep -q '2051 bytes' client.txt; then
        passed=$((passed + 1)); echo "$mode: passed, at try $try:$(tail -1 <(grep bytes client.txt))"
    else
        failed=$((failed + 1)); echo "$mode: FAILED, client $client, server $status"; tail -3 client.txt server.txt
    fi
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
