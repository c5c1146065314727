//! Entry points for the system's `libdat2`, which can load this library as a provider.
//!
//! A line of `dat.conf` names this file as its library. That `libdat2` loads it and calls `dat_provider_init`, which
//! registers our table under the line's name. Programs then reach this library through the table alone.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::abi::*;
use crate::calls::extension;
use crate::code::guarded;
use crate::registered::{self, Line};
use crate::table::table;
use crate::{names, text};

/// Called by a registry that loaded this library: registers the provider it asks for.
///
/// # Safety
/// Both are null or valid; `instance` is a terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_provider_init(info: *const ProviderInfo, instance: *const c_char) {
    guarded(|| {
        // SAFETY: null or valid.
        let Some(info) = (unsafe { info.as_ref() }) else { return Ok(()) };
        // SAFETY: null or terminated.
        let params = unsafe { text::read(instance) }.unwrap_or_default();
        let name = name_of(info);
        match registry(c"dat_registry_add_provider") {
            Some(add) => {
                let version = (info.dapl_version_major, info.dapl_version_minor);
                let line = Line { params, version, thread_safe: info.is_thread_safe != 0 };
                registered::insert(&name, line);
                // SAFETY: the function of that name, with the table of that name, which lives for ever.
                let result = unsafe { add(table(&name), info) };
                if result != 0 {
                    registered::remove(&name);
                    names::complain(&format!(
                        "the registry that loaded this library refused {name:?}: {result:#x}"
                    ));
                }
            }
            None => names::complain(
                "dat_provider_init was called, but no other libdat2 is loaded to register with",
            ),
        }
        Ok(())
    });
}

/// Called by that registry before it unloads this library.
///
/// # Safety
/// Null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_provider_fini(info: *const ProviderInfo) {
    guarded(|| {
        // SAFETY: null or valid.
        let Some(info) = (unsafe { info.as_ref() }) else { return Ok(()) };
        let name = name_of(info);
        if let Some(remove) = registry(c"dat_registry_remove_provider") {
            // SAFETY: as in `dat_provider_init`.
            unsafe { remove(table(&name), info) };
        }
        registered::remove(&name);
        Ok(())
    });
}

/// What registries call for extensions that need no IA; its presence says that there are extensions.
///
/// # Safety
/// `list` is a `va_list` with the operation's arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dapl_extensions(handle: Handle, op: c_int, list: *mut c_void) -> Return {
    // SAFETY: as the caller promises.
    guarded(|| unsafe { extension::from_list(handle, op, list, table) })
}

type Register = unsafe extern "C" fn(*const Provider, *const ProviderInfo) -> Return;

/// A function of the registry that loaded us: the program's, not our own of the same name.
fn registry(symbol: &CStr) -> Option<Register> {
    [libc::RTLD_DEFAULT, libc::RTLD_NEXT].into_iter().find_map(|scope| {
        // SAFETY: a terminated name; the scopes are constants of the linker's.
        let found = unsafe { libc::dlsym(scope, symbol.as_ptr()) };
        let theirs = !found.is_null() && base_of(found) != base_of(registry as *const () as *mut c_void);
        // SAFETY: both functions of these names have this type.
        theirs.then(|| unsafe { std::mem::transmute::<*mut c_void, Register>(found) })
    })
}

/// Where the library an address belongs to begins.
fn base_of(address: *mut c_void) -> usize {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked for; a place for the answer.
    unsafe { libc::dladdr(address, info.as_mut_ptr()) };
    // SAFETY: zeroed, which is a value, or filled in.
    unsafe { info.assume_init() }.dli_fbase as usize
}

fn name_of(info: &ProviderInfo) -> String {
    let bytes: Vec<u8> = info.ia_name.iter().map(|c| *c as u8).take_while(|c| *c != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
