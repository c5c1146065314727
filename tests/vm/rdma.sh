#!/bin/bash
# The RDMA tests, on whatever device there is: in the emulated machine or on a machine with a real one.
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
step conformance 420 "$BUILT/dat-conformance" --plugin "$BUILT/libdat_ibverbs.so" --name ibverbs0 \
    --param "device=$DEVICE" --scale "$SCALE" --expected "$ROOT/tests/expected/ibverbs0.toml" \
    --json "$OUT/ibverbs0.json" --junit "$OUT/ibverbs0.junit.xml"
DAT_TEST_IBVERBS=$DEVICE step "provider tests" 240 "$TESTS" --test-threads=1
exit $failed
