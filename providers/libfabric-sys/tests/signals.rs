//! Loading libfabric leaves the process's signals alone, even if libraries below it change them.

use std::ffi::c_int;

use libfabric_sys::Library;

const SIGNALS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGABRT, libc::SIGINT, libc::SIGTERM];

#[allow(clippy::disallowed_methods, reason = "looks only")]
fn handler(signal: c_int) -> usize {
    // SAFETY: a plain structure of numbers.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: nothing is changed.
    assert_eq!(unsafe { libc::sigaction(signal, std::ptr::null(), &mut action) }, 0);
    action.sa_sigaction
}

#[test]
fn signals_are_as_they_were() {
    let before = SIGNALS.map(handler);
    if let Err(why) = Library::get() {
        println!("NOT RUN: {why}");
        assert!(
            std::env::var_os("DAT_REQUIRE_LIBFABRIC").is_none(),
            "DAT_REQUIRE_LIBFABRIC is set, and there is no library"
        );
        return;
    }
    assert_eq!(SIGNALS.map(handler), before);
}
