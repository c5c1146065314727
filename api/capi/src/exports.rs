//! Exported functions that are no slots of the table: opening, the registry, texts, extensions.

use std::ffi::{c_char, c_int};

use dat_types::{ReturnCode, ReturnType, Subtype};

use crate::abi::*;
use crate::calls::{extension, ia};
use crate::code::{code, guarded, handle as bad_handle, parameter, put};
use crate::table::table;
use crate::{foreign, handle, names, symbol_version};

/// `dat_ia_openv`: opens the IA of this name.
///
/// # Safety
/// Pointers are null or valid, as the headers say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_ia_openv(
    name: *const c_char,
    qlen: Count,
    evd: *mut Handle,
    ia: *mut Handle,
    major: u32,
    minor: u32,
    thread_safe: Boolean,
) -> Return {
    // SAFETY: as the caller promises.
    guarded(|| unsafe { ia::open(name, qlen, evd, ia, (major, minor, thread_safe != 0), table) })
}
symbol_version!(dat_ia_openv);

/// `dat_ia_close`.
///
/// # Safety
/// Threads no longer use the memory of regions an abrupt close ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_ia_close(ia: Handle, flags: u32) -> Return {
    // SAFETY: objects of registered providers begin with their table.
    if let Some(result) = unsafe { foreign::close(ia, flags) } {
        return result;
    }
    // SAFETY: as the caller promises.
    guarded(|| unsafe { ia::close(ia, flags) })
}
symbol_version!(dat_ia_close);

/// `dats_get_ia_handle`: from an IA's number to the address whose first word is the provider, and back.
///
/// # Safety
/// `out` is null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dats_get_ia_handle(ia: Handle, out: *mut Handle) -> Return {
    guarded(|| {
        let found = match handle::is_number(ia) {
            true => Some(handle::ia_address(ia)).filter(|address| !address.is_null()),
            false => handle::number_of(ia),
        };
        let found = found.ok_or(bad_handle(Subtype::HandleIa))?;
        // SAFETY: null or valid.
        unsafe { put(out, Subtype::Arg2, found) }
    })
}
symbol_version!(dats_get_ia_handle);

/// `dat_strerror`: the names of a return code's type and subtype.
///
/// # Safety
/// Both pointers are null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_strerror(
    value: Return,
    major: *mut *const c_char,
    minor: *mut *const c_char,
) -> Return {
    guarded(|| {
        let (kind, subtype) = names_of(value).ok_or(parameter(Subtype::Arg1))?;
        // SAFETY: null or valid; the texts live for ever.
        unsafe {
            crate::code::put_if(major, kind);
            crate::code::put_if(minor, subtype);
        }
        Ok(())
    })
}
symbol_version!(dat_strerror);

/// `dat_registry_list_providers`: what can be opened by name, whether or not it would load.
///
/// # Safety
/// `returned` is null or valid for a write, `list` null or an array of `most` pointers to valid structures.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_registry_list_providers(
    most: Count,
    returned: *mut Count,
    list: *const *mut ProviderInfo,
) -> Return {
    guarded(|| {
        let found = names::list()?;
        // SAFETY: as the caller promises.
        unsafe {
            put(returned, Subtype::Arg2, found.len() as Count)?;
            if list.is_null() {
                return Err(parameter(Subtype::Arg3));
            }
            if most < found.len() as Count {
                return Err(parameter(Subtype::Arg1));
            }
            for (i, info) in found.into_iter().enumerate() {
                put(list.add(i).read(), Subtype::Arg3, info)?;
            }
        }
        Ok(())
    })
}
symbol_version!(dat_registry_list_providers);

/// `dat_registry_add_provider`: registers a provider the application brings along.
///
/// # Safety
/// Both are null or valid; the table lives until it is removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_registry_add_provider(
    provider: *const Provider,
    info: *const ProviderInfo,
) -> Return {
    // SAFETY: as the caller promises.
    guarded(|| unsafe { foreign::add(provider, info) })
}
symbol_version!(dat_registry_add_provider);

/// `dat_registry_remove_provider`.
///
/// # Safety
/// As for `dat_registry_add_provider`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_registry_remove_provider(
    provider: *const Provider,
    info: *const ProviderInfo,
) -> Return {
    // SAFETY: as the caller promises.
    guarded(|| unsafe { foreign::remove(provider, info) })
}
symbol_version!(dat_registry_remove_provider);

/// `dat_extension_op`, which is variadic in C: handle, operation, and up to six arguments more, all of them integers or
/// pointers.
///
/// On x86-64 (System V) a variadic call passes integers and pointers as a call of fixed arity does: six words in
/// registers, the rest on the stack. So a function of fixed arity reads what a variadic caller put there. An argument
/// that was not passed is an unset register, or a slot of the caller's stack. That slot exists, because the frame of
/// `main` does. Only the arguments that the operation defines are used.
///
/// # Safety
/// The arguments are those the operation takes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dat_extension_op(
    handle: Handle,
    op: c_int,
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    e: u64,
    f: u64,
) -> Return {
    // SAFETY: objects of registered providers begin with their table.
    if unsafe { foreign::route(handle) }.is_some() {
        return code(ReturnType::NotImplemented, Subtype::None).0;
    }
    // SAFETY: as the caller promises.
    guarded(|| unsafe { extension::operation(handle, op, [a, b, c, d, e, f], table) })
}
symbol_version!(dat_extension_op);

/// The two texts of a code, terminated.
fn names_of(value: Return) -> Option<(*const c_char, *const c_char)> {
    use std::collections::HashMap;
    use std::ffi::CString;
    use std::sync::LazyLock;
    static TEXTS: LazyLock<parking_lot::Mutex<HashMap<&'static str, CString>>> =
        LazyLock::new(Default::default);
    let (kind, subtype) = ReturnCode(value).names()?;
    let mut texts = TEXTS.lock();
    let mut c = |text: &'static str| {
        // An entry is never taken out again, and a CString's bytes stay where they are when the map grows.
        texts.entry(text).or_insert_with(|| CString::new(text).unwrap_or_default()).as_ptr()
    };
    Some((c(kind), c(subtype)))
}
