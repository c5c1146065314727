//! Providers that the application registered itself (`dat_registry_add_provider`): the way to their tables.

use std::ffi::c_char;
use std::sync::atomic::{AtomicBool, Ordering};

use dat_types::{ReturnType, Subtype};
use parking_lot::Mutex;

use crate::abi::*;
use crate::code::{Code, NO_ROOM, Outcome, code, parameter};
use crate::handle;
use crate::text;

struct Registered {
    provider: usize,
    key: Key,
    /// IAs of it that are open.
    open: usize,
}

/// What a registration is known by (spec: conflicts, D-24).
#[derive(Clone, PartialEq, Eq)]
struct Key {
    name: String,
    major: u32,
    minor: u32,
    thread_safe: bool,
}

/// Most registrations at one time.
const MOST: usize = 256;

static REGISTERED: Mutex<Vec<Registered>> = Mutex::new(Vec::new());

/// Open IAs: number and provider.
static OPEN: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// Whether there ever was one. Without, a handle that is not ours is no handle.
static EVER: AtomicBool = AtomicBool::new(false);

/// The provider a handle is of, if it is an application's, and the handle that one knows.
///
/// # Safety
/// Once the application registered a provider, a handle that is not this library's is one of that provider's.
#[inline]
pub unsafe fn route(handle: Handle) -> Option<(&'static Provider, Handle)> {
    if !EVER.load(Ordering::Acquire) || handle::is_ours(handle) {
        return None;
    }
    let address = handle::ia_address(handle);
    if address.is_null() || handle::is_ours(address) || !address.cast::<usize>().is_aligned() {
        return None;
    }
    // SAFETY: as the caller promises; the table outlives its objects.
    unsafe { (*address.cast::<*const Provider>()).as_ref() }.map(|provider| (provider, address))
}

/// `dat_registry_add_provider`.
///
/// # Safety
/// Both are null or valid; the provider's table lives until it is removed.
pub unsafe fn add(provider: *const Provider, info: *const ProviderInfo) -> Outcome {
    // SAFETY: as the caller promises.
    let key = unsafe { key(provider, info)? };
    let mut registered = REGISTERED.lock();
    if registered.iter().any(|other| other.key == key) {
        return Err(code(ReturnType::ProviderAlreadyRegistered, Subtype::None));
    }
    if registered.len() == MOST {
        return Err(NO_ROOM);
    }
    registered.push(Registered { provider: provider as usize, key, open: 0 });
    EVER.store(true, Ordering::Release);
    Ok(())
}

/// `dat_registry_remove_provider`.
///
/// # Safety
/// As for [`add`].
pub unsafe fn remove(provider: *const Provider, info: *const ProviderInfo) -> Outcome {
    // SAFETY: as the caller promises.
    let key = unsafe { key(provider, info)? };
    let mut registered = REGISTERED.lock();
    let Some(index) = registered.iter().position(|other| other.key == key) else {
        return Err(parameter(Subtype::Arg2));
    };
    if registered[index].open > 0 {
        return Err(code(ReturnType::ProviderInUse, Subtype::None));
    }
    registered.swap_remove(index);
    Ok(())
}

/// What registered providers look like in a list.
pub fn list() -> Vec<ProviderInfo> {
    let info = |other: &Registered| ProviderInfo {
        ia_name: text::fixed(&other.key.name),
        dapl_version_major: other.key.major,
        dapl_version_minor: other.key.minor,
        is_thread_safe: other.key.thread_safe.into(),
    };
    REGISTERED.lock().iter().map(info).collect()
}

/// Opens an IA of a registered provider; `None` when none has this name. Name, major version and thread safety must be
/// equal, the smallest minor version that is not too small is taken (spec: conflicts, D-24).
///
/// # Safety
/// `evd` and `ia` are valid for reads and writes.
pub unsafe fn open(
    name: &str,
    c_name: *const c_char,
    qlen: Count,
    evd: *mut Handle,
    ia: *mut Handle,
    (major, minor, thread_safe): (u32, u32, bool),
) -> Option<Outcome> {
    let missing = |subtype| Some(Err(code(ReturnType::ProviderNotFound, subtype)));
    let (provider, key) = {
        let mut registered = REGISTERED.lock();
        let mut left: Vec<&mut Registered> =
            registered.iter_mut().filter(|other| other.key.name == name).collect();
        if left.is_empty() {
            return None;
        }
        left.retain(|other| other.key.major == major);
        if left.is_empty() {
            return missing(Subtype::MajorNotFound);
        }
        left.retain(|other| other.key.minor >= minor);
        if left.is_empty() {
            return missing(Subtype::MinorNotFound);
        }
        left.retain(|other| other.key.thread_safe == thread_safe);
        let Some(best) = left.into_iter().min_by_key(|other| other.key.minor) else {
            return missing(Subtype::ThreadSafetyNotFound);
        };
        best.open += 1;
        (best.provider as *const Provider, best.key.clone())
    };
    // SAFETY: a registered table is valid until it is removed, which is refused while `open` counts this. The pointers
    // are the caller's.
    let result = unsafe { ((*provider).ia_open_func)(c_name, qlen, evd, ia) };
    let number = match result {
        // SAFETY: a success wrote the handle.
        0 => handle::assign_number(unsafe { *ia }),
        _ => None,
    };
    let Some(number) = number else {
        closed(&key);
        return Some(Err(if result == 0 { NO_ROOM } else { Code(result) }));
    };
    OPEN.lock().push((number as usize, provider as usize));
    // SAFETY: valid for writes, says the caller.
    unsafe { ia.write(number) };
    Some(Ok(()))
}

/// Closes an IA of a registered provider; `None` when this is none.
///
/// # Safety
/// As for [`route`].
pub unsafe fn close(ia: Handle, flags: u32) -> Option<Return> {
    // SAFETY: as the caller promises.
    let (provider, address) = unsafe { route(ia)? };
    // SAFETY: the IA is this provider's.
    let result = unsafe { (provider.ia_close_func)(address, flags) };
    if result == 0 {
        let mut open = OPEN.lock();
        if let Some(index) = open.iter().position(|(number, _)| *number == ia as usize) {
            let (number, of) = open.swap_remove(index);
            handle::release_number(number as Handle);
            if let Some(other) = REGISTERED.lock().iter_mut().find(|other| other.provider == of) {
                other.open = other.open.saturating_sub(1);
            }
        }
    }
    Some(result)
}

fn closed(key: &Key) {
    if let Some(other) = REGISTERED.lock().iter_mut().find(|other| other.key == *key) {
        other.open -= 1;
    }
}

unsafe fn key(provider: *const Provider, info: *const ProviderInfo) -> Outcome<Key> {
    if provider.is_null() {
        return Err(parameter(Subtype::Arg1));
    }
    // SAFETY: null or valid, says the caller.
    let info = unsafe { info.as_ref() }.ok_or(parameter(Subtype::Arg2))?;
    let bytes: Vec<u8> = info.ia_name.iter().map(|c| *c as u8).take_while(|c| *c != 0).collect();
    if bytes.is_empty() || bytes.len() == NAME_MAX {
        return Err(parameter(Subtype::Arg2));
    }
    Ok(Key {
        name: String::from_utf8_lossy(&bytes).into_owned(),
        major: info.dapl_version_major,
        minor: info.dapl_version_minor,
        thread_safe: info.is_thread_safe != 0,
    })
}
