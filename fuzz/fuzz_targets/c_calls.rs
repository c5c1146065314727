#![no_main]

use dat_plugin::host::Plugin;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| dat2::fuzzing::calls(bytes, Plugin::of::<dat_loopback::Loopback>));
