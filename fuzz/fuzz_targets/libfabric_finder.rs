#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dat_libfabric::fuzzing::finder(bytes));
