//! Services of the system: memory mapped by several processes, a signal for one thread, the size of the heap. The only
//! unsafe code of the suite.
#![allow(unsafe_code)]

use std::fs::OpenOptions;
use std::os::unix::thread::JoinHandleExt;
use std::path::Path;
use std::sync::Once;
use std::thread::JoinHandle;

use dat_engine::Memory;
use rustix::mm::{MapFlags, ProtFlags, mmap};

/// Maps the first `len` bytes of a file, shared with other processes. The mapping lives as long as the process.
pub(crate) fn shared_memory(file: &Path, len: u64) -> std::io::Result<Memory> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(file)?;
    if file.metadata()?.len() < len {
        file.set_len(len)?;
    }
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the system's choice; it replaces nothing.
    let at = unsafe { mmap(std::ptr::null_mut(), len as usize, rights, MapFlags::SHARED, &file, 0) }?;
    // SAFETY: the range was mapped just now, is never unmapped, and the suite never shortens the file; it is used
    // through `Memory` alone, so there is no reference to it.
    Ok(unsafe { Memory::foreign(at as u64, len, None) })
}

/// Interrupts what the thread waits for: sends it a signal whose handler does nothing and restarts no call.
pub(crate) fn interrupt<T>(thread: &JoinHandle<T>) {
    static HANDLED: Once = Once::new();
    HANDLED.call_once(|| {
        // SAFETY: all zeros is a valid sigaction: no flags, an empty mask; the handler is set below.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = nothing as *const () as usize;
        #[allow(
            clippy::disallowed_methods,
            reason = "the suite is an application, and handlers are its own"
        )]
        // SAFETY: the handler does nothing, which any thread may do at any time; the old action is not requested.
        unsafe {
            libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut())
        };
    });
    // SAFETY: the handle keeps the thread's id valid until it is joined, and it is borrowed here.
    unsafe { libc::pthread_kill(thread.as_pthread_t(), libc::SIGUSR2) };
}

extern "C" fn nothing(_signal: libc::c_int) {}

/// Bytes of the heap in use by the whole process. The caches of its threads count too.
pub(crate) fn heap() -> usize {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: takes nothing; any thread may call it at any time.
        let now = unsafe { libc::mallinfo2() };
        now.uordblks + now.hblkhd
    }
    #[cfg(not(target_env = "gnu"))]
    0
}
