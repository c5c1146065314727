//! A shared object that is no plugin: it has no note.

/// Something to export.
#[unsafe(no_mangle)]
pub extern "C" fn dat_test_no_root() -> i32 {
    7
}
