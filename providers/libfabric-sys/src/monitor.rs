//! A monitor of memory that never starts, so that libfabric keeps no registrations for later use.
//!
//! Some of its providers register memory with a device (`verbs`). For them libfabric keeps a cache of registrations, each
//! with all remote rights. The cache must learn when memory is unmapped. So libfabric rewrites the code of `munmap` and
//! others when the first domain opens, and restores it when the last one closes. Other threads may run that code
//! meanwhile. A process may supply its own monitor instead. If that does not start, libfabric keeps no cache.

use std::ffi::{c_int, c_void};
use std::mem::size_of;
use std::ptr;

use crate::fid::fid;
use crate::inline::{fi_bind, fi_close};

/// `fi_open`, as the header has it.
pub type Open = unsafe extern "C" fn(
    u32,
    *const std::ffi::c_char,
    *mut c_void,
    usize,
    u64,
    *mut *mut fid,
    *mut c_void,
) -> c_int;

/// `FI_CLASS_MEM_MONITOR`.
const CLASS: usize = 23;

/// `struct fi_ops_mem_monitor`.
#[repr(C)]
struct Ops {
    size: usize,
    start: extern "C" fn(*mut Monitor) -> c_int,
    stop: extern "C" fn(*mut Monitor),
    subscribe: extern "C" fn(*mut Monitor, *const c_void, usize) -> c_int,
    unsubscribe: extern "C" fn(*mut Monitor, *const c_void, usize),
    valid: extern "C" fn(*mut Monitor, *const c_void, usize) -> bool,
}

/// `struct fid_mem_monitor`.
#[repr(C)]
struct Monitor {
    fid: fid,
    export_ops: *const Ops,
    import_ops: *const c_void,
}

extern "C" fn start(_: *mut Monitor) -> c_int {
    -libc::ENOSYS
}

extern "C" fn stop(_: *mut Monitor) {}

extern "C" fn subscribe(_: *mut Monitor, _: *const c_void, _: usize) -> c_int {
    -libc::ENOSYS
}

extern "C" fn unsubscribe(_: *mut Monitor, _: *const c_void, _: usize) {}

extern "C" fn valid(_: *mut Monitor, _: *const c_void, _: usize) -> bool {
    false
}

static OPS: Ops = Ops { size: size_of::<Ops>(), start, stop, subscribe, unsubscribe, valid };

/// Brings the monitor; 0, or a negative error: `-EBUSY` if there is one at work.
///
/// # Safety
/// `open` is the library's.
pub(crate) unsafe fn import(open: Open, version: u32) -> c_int {
    let mut cache = ptr::null_mut();
    // SAFETY: a name that ends with 0, and room for the answer.
    let opened =
        unsafe { open(version, c"mr_cache".as_ptr(), ptr::null_mut(), 0, 0, &mut cache, ptr::null_mut()) };
    if opened != 0 {
        return opened;
    }
    let nothing = fid { fclass: CLASS, context: ptr::null_mut(), ops: ptr::null_mut() };
    // The library's for the rest of the process.
    let monitor = Box::leak(Box::new(Monitor { fid: nothing, export_ops: &OPS, import_ops: ptr::null() }));
    // SAFETY: an open object, and a monitor as the header has it, which is never freed.
    unsafe {
        let result = fi_bind(cache, (&raw mut *monitor).cast(), 0);
        fi_close(cache);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_takes_it_once() {
        let Ok(library) = crate::Library::get() else {
            println!("NOT RUN: libfabric is not installed (Debian: libfabric1)");
            assert!(std::env::var_os("DAT_REQUIRE_LIBFABRIC").is_none(), "there is no libfabric");
            return;
        };
        assert_eq!(library.keep_no_registrations(), Ok(()));
        assert_eq!(library.keep_no_registrations(), Ok(()), "asked again");
    }

    #[test]
    fn it_is_laid_out_as_in_c() {
        assert_eq!((size_of::<Ops>(), size_of::<Monitor>()), (6 * 8, 5 * 8));
    }
}
