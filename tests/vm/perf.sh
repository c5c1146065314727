#!/bin/bash
# Speed of the ibverbs provider beside perftest's programs, on one device in one boot:
#   cargo xtask vm 'BUILT=target/release bash tests/vm/perf.sh'
# Each is run ROUNDS times in turn, both sides pinned to a processor each; the best of a program's rounds counts, since
# everything that disturbs makes it slower.
BUILT=${BUILT:-target/release}
DEVICE=${DEVICE:-rxe0}
ADDRESS=${ADDRESS:-192.168.77.1}
ROUNDS=${ROUNDS:-3}
plugins=$(mktemp --suffix .toml)
printf '[provider.perf]\nlibrary = "%s"\nparams = { device = "%s" }\n' \
    "$(realpath "$BUILT/libdat_ibverbs.so")" "$DEVICE" > "$plugins"

# A perftest program as server and client: prints the client's lines of figures. -R sets up by RDMA CM.
perftest() {
    timeout 60 taskset -c 1 "$@" -R -d "$DEVICE" > /dev/null 2>&1 &
    sleep 1.5
    timeout 60 taskset -c 0 "$@" -R -d "$DEVICE" "$ADDRESS" 2> /dev/null | grep -E '^ *[0-9]+ +[0-9]'
    wait
}

for round in $(seq "$ROUNDS"); do
    echo "ib_send_lat  8 B    (bytes, iterations, min, max, typical us, ...): $(perftest ib_send_lat -s 8 -n 2000)"
    echo "ib_write_bw  64 KiB (bytes, iterations, peak, average MB/s, Mmsg/s): $(perftest ib_write_bw -s 65536 -n 300)"
    echo "ib_send_bw   8 B    (bytes, iterations, peak, average MB/s, Mmsg/s): $(perftest ib_send_bw -s 8 -n 10000)"
    perf() { timeout 100 "$BUILT/dat" --plugins "$plugins" perf perf --cpus 0,1 --timeout 60s "$@" | grep -E '^ *(send|write)'; }
    perf -t send -m latency -s 8 --seconds 3s
    perf -t write -m bandwidth -s 64K --seconds 3s
    perf -t send -m rate -s 8 --seconds 3s
done
rm -f "$plugins"
