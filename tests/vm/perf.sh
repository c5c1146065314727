#!/bin/bash
# Speed of the ibverbs provider beside perftest's programs, on one device in one boot: `cargo xtask bench --vm` runs it, or
#   cargo xtask vm 'BUILT=target/release bash tests/vm/perf.sh'
# Each is run ROUNDS times in turn, both sides pinned to a processor each. A line of the output is a program, the
# figure's name, and what the program printed of it.
BUILT=${BUILT:-target/release}
DEVICE=${DEVICE:-rxe0}
ADDRESS=${ADDRESS:-192.168.77.1}
ROUNDS=${ROUNDS:-5}
plugins=$(mktemp --suffix .toml)
printf '[provider.perf]\nlibrary = "%s"\nparams = { device = "%s" }\n' \
    "$(realpath "$BUILT/libdat_ibverbs.so")" "$DEVICE" > "$plugins"

# A perftest program as server and client: the client's line of figures. -R sets up by RDMA CM.
perftest() {
    local name=$1
    shift
    timeout 60 taskset -c 1 "$@" -R -d "$DEVICE" > /dev/null 2>&1 &
    sleep 1.5
    echo "perftest $name $(timeout 60 taskset -c 0 "$@" -R -d "$DEVICE" "$ADDRESS" 2> /dev/null |
        grep -E '^ *[0-9]+ +[0-9]')"
    wait
}
ours() {
    local name=$1
    shift
    echo "dat $name $(timeout 100 "$BUILT/dat" --plugins "$plugins" --json perf perf --cpus 0,1 --timeout 60s \
        --seconds 3s "$@" | tr -d '\n')"
}

for _ in $(seq "$ROUNDS"); do
    perftest send_lat_8 ib_send_lat -s 8 -n 2000
    ours send_lat_8 -t send -m latency -s 8
    perftest write_bw_65536 ib_write_bw -s 65536 -n 300
    ours write_bw_65536 -t write -m bandwidth -s 64K
    perftest send_bw_8 ib_send_bw -s 8 -n 10000
    ours send_bw_8 -t send -m rate -s 8
done
rm -f "$plugins"
exit 0
