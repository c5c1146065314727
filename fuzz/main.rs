//! All targets in one program: `DAT_FUZZ_TARGET` names the one that libFuzzer drives.
#![no_main]

mod private_data;

use std::sync::LazyLock;

use dat_plugin::host::Plugin;

/// What takes an input.
type Target = fn(&[u8]);

/// `cargo xtask fuzz` reads the names from here, so each line has one target.
const TARGETS: [(&str, Target); 13] = [
    ("shm_packet", dat_shm::fuzzing::packet),
    ("shm_ring", dat_shm::fuzzing::image),
    ("shm_program", dat_shm::fuzzing::program),
    ("shm_memory", dat_shm::fuzzing::memory),
    ("shm_connection", dat_shm::fuzzing::connection),
    ("libfabric_wire", dat_libfabric::fuzzing::wire),
    ("libfabric_finder", dat_libfabric::fuzzing::finder),
    ("libfabric_frames", dat_libfabric::fuzzing::frames),
    ("private_data", private_data::run),
    ("plugins_toml", dat_registry::fuzzing::plugins_toml),
    ("dat_conf", dat_registry::fuzzing::dat_conf),
    ("elf_note", |bytes| {
        let _ = dat_plugin::host::inspect_bytes(bytes);
    }),
    ("c_calls", |bytes| dat2::fuzzing::calls(bytes, Plugin::of::<dat_loopback::Loopback>)),
];

static CHOSEN: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("DAT_FUZZ_TARGET").unwrap_or_default();
    let found = TARGETS.iter().find(|(target, _)| *target == name);
    found.unwrap_or_else(|| panic!("DAT_FUZZ_TARGET is {name:?}, which is no target")).1
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| CHOSEN(bytes));
