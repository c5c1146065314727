#!/bin/bash
# The RDMA tests, on the device of the emulated machine or on a real one.
#   BUILT   folder of the programs     ROOT   the repository     OUT   where reports go
#   DEVICE  the device's name          SCALE  how much slower than hardware it is
#   TESTS   the provider's own test program
# Each step has a deadline; the exit status is the number of steps that failed.
failed=0
step() {
    local name=$1 limit=$2
    shift 2
    echo "--- $name"
    local start=$SECONDS
    if timeout -k 5 "$limit" "$@"; then
        echo "--- $name: passed in $((SECONDS - start)) s"
    else
        echo "--- $name: FAILED with status $? after $((SECONDS - start)) s"
        failed=$((failed + 1))
    fi
}
export BUILT
expected=$(mktemp --suffix .toml)
cat "$ROOT/conformance/expected/ibverbs0.toml" > "$expected"
case $DEVICE in rxe*) cat "$ROOT/conformance/expected/soft-roce.toml" >> "$expected" ;; esac
step conformance 420 "$BUILT/dat-conformance" --plugin "$BUILT/libdat_ibverbs.so" --name ibverbs0 \
    --param "device=$DEVICE" --scale "$SCALE" --expected "$expected" \
    --json "$OUT/ibverbs0.json" --junit "$OUT/ibverbs0.junit.xml"
# Delays and reordering below the engine, as `xtask/src/legs/faults.rs` has it for the others.
some=()
for clauses in C-04 C-05 C-10 C-11 C-24 C-25 C-26 C-27 C-28 C-29 C-30 C-31 C-36 P-00; do some+=(--filter "$clauses"); done
step "conformance under faults" 240 "$BUILT/dat" conformance --plugin "$BUILT/libdat_ibverbs.so" --ia-name ibverbs0 \
    --param "device=$DEVICE" --scale "$SCALE" --expected "$expected" "${some[@]}" \
    --layer trace,count,faults:seed=7,delay_us=300,reorder_one_in=4
# What conformance/expected/soft-roce.toml says of the driver, C-191 and C-308.
faults=()
case $DEVICE in rxe*) faults=(--soft-roce) ;; esac
step "differential programs" 180 "$BUILT/dat-differential" --plugin "$BUILT/libdat_ibverbs.so" \
    --param "device=$DEVICE" "${faults[@]}" --count 100
DAT_TEST_IBVERBS=$DEVICE step "provider tests" 240 "$TESTS" --ignored --test-threads=1
address=$(ip -4 -o addr show dev "$(cat "/sys/class/infiniband/$DEVICE/ports/1/gid_attrs/ndevs/0")" |
    awk '{ sub("/.*", "", $4); print $4; exit }')
# The same device through libfabric.
if fi_info -p verbs -t FI_EP_MSG > /dev/null 2>&1; then
    verbs=(--plugin "$BUILT/libdat_libfabric.so" --param fabric=verbs --param endpoint=msg
        --param "interface=$DEVICE" --param "address=$address")
    step "conformance over libfabric" 420 "$BUILT/dat-conformance" "${verbs[@]}" --name libfabric/verbs \
        --scale "$SCALE" --expected "$ROOT/conformance/expected/libfabric-verbs.toml" \
        --json "$OUT/libfabric-verbs.json" --junit "$OUT/libfabric-verbs.junit.xml"
    step "differential programs over libfabric" 120 "$BUILT/dat-differential" "${verbs[@]}" --count 40
else
    echo "--- conformance over libfabric: NOT RUN, libfabric has no verbs provider here (libfabric1, libfabric-bin)"
fi
# Against a program that knows nothing of DAT. Plain RDMA CM is all they have in common.
export DAT_PLUGINS address
DAT_PLUGINS=$(mktemp --suffix .toml)
printf '[provider.ibverbs0]\nlibrary = "%s"\nparams = { device = "%s" }\n' \
    "$BUILT/libdat_ibverbs.so" "$DEVICE" > "$DAT_PLUGINS"

# Waits until a process listens on an RDMA CM port.
listening() {
    for _ in $(seq 100); do
        rdma resource show cm_id | grep -q "state LISTEN.*:$1 " && return
        sleep 0.1
    done
    echo "nobody listens on port $1"
    return 1
}
rping_asks_us() {
    timeout 60 "$BUILT/examples/rping" ibverbs0 server 7174 &
    local ours=$!
    listening 7174 && timeout 60 rping -c -a "$address" -p 7174 -C 5 -v -V
    local theirs=$?
    wait $ours && return $theirs
}
we_ask_rping() {
    timeout 60 rping -s -a "$address" -p 7175 -v -V &
    local theirs=$!
    listening 7175 && timeout 60 "$BUILT/examples/rping" ibverbs0 client "$address" 7175 5
    local ours=$?
    # The program ends with a status other than 0 when its peer leaves.
    wait $theirs
    return $ours
}
if [ -x "$(command -v rping)" ]; then
    for test in rping_asks_us we_ask_rping; do
        step "interoperation: $test" 90 bash -c "$(declare -f listening "$test"); $test"
    done
else
    echo "--- interoperation: NOT RUN, there is no rping here (rdmacm-utils)"
fi
rm -f "$DAT_PLUGINS"
exit $failed
