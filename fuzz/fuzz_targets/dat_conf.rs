#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dat_registry::fuzzing::dat_conf(bytes));
