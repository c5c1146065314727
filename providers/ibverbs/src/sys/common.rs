//! What all owners of the libraries' objects share: results, giving back, descriptors.

use std::ffi::c_int;
use std::io;
use std::os::fd::RawFd;

use dat_plugin::host::ForkGuard;

macro_rules! shareable {
    ($($name:ident),*) => {$(
        // SAFETY: the libraries may be called from any thread, for one object from several at a time; ibv_fork_init(3)
        // and the manual's section on thread safety say so.
        unsafe impl Send for $name {}
        // SAFETY: as for `Send`: the libraries lock inside, so shared references may call from several threads.
        unsafe impl Sync for $name {}
    )*};
}
pub(crate) use shareable;
/// The last error of the operating system.
pub(crate) fn last() -> io::Error {
    io::Error::last_os_error()
}

/// The result of a function that returns an error number.
pub(crate) fn number(code: c_int) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code.abs())) }
}

/// The result of a function that returns -1 and sets `errno`.
pub(crate) fn minus_one(code: c_int) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(last()) }
}

/// Gives an object back, unless it is the parent's. A failure leaves nothing to be done: the device may be gone.
pub(crate) fn give_back(guard: ForkGuard, what: &str, f: impl FnOnce() -> c_int) {
    if !guard.forked() {
        let code = f();
        if code != 0 {
            tracing::debug!(code, "{what} was not given back in order");
        }
    }
}

/// Reads of the descriptor return at once.
pub(crate) fn never_blocks(fd: RawFd) -> io::Result<()> {
    // SAFETY: a descriptor of a live object; the calls change its flags only.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        if flags < 0 || libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) < 0 {
            return Err(last());
        }
    }
    Ok(())
}

/// How much memory this process may register.
pub(crate) fn locked_memory() -> String {
    match locked_memory_limit() {
        None => "locked memory without limit".into(),
        Some(bytes) => format!("locked memory up to {} KiB (ulimit -l)", bytes / 1024),
    }
}

/// The limit on locked memory in bytes; `None` is without limit.
pub(crate) fn locked_memory_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Memlock).current
}
