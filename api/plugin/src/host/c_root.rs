//! The root of a plugin in C: a function that returns one table of tables. A C plugin has no layout to compare, unlike
//! one in Rust. So each table is checked: its size, that no entry is null, and the version that the file notes.

use std::mem::MaybeUninit;
use std::ptr;

use super::error::{LoadError, loader_said};
use super::inspect::{C_ROOT, Inspection};
use super::tables::{Loaded, Tables};
use crate::ops::{CModule, ChannelOps, DeviceOps, ListenerOps, ProbeOps, ProviderOps, QueueOps, SrqOps, Str};

/// A table of functions led by its size and a word that must be 0, as all are.
///
/// # Safety
/// `#[repr(C)]`: two `u32`, then pointers to functions and nothing else.
unsafe trait Ops: Sized + 'static {
    const NAME: &'static str;
}

macro_rules! ops {
    ($($table:ident),*) => {$(
        // SAFETY: by its definition in `crate::ops`.
        unsafe impl Ops for $table {
            const NAME: &'static str = stringify!($table);
        }
    )*};
}
ops!(ProviderOps, DeviceOps, ChannelOps, QueueOps, SrqOps, ListenerOps, ProbeOps);

/// The size of the module of interface 1.1, the first with plugins in C. It never changes.
const FIRST_MODULE: usize = 120;

/// The longest of a module's texts.
const MOST_TEXT: usize = 1024;

/// Reads the tables of a library. The library is never unloaded.
pub(super) fn load(
    library: libloading::os::unix::Library,
    inspection: &Inspection,
) -> Result<Loaded, LoadError> {
    // SAFETY: a symbol of this name is such a function, by the plugin interface; `include/dat_plugin.h` declares it.
    let module = unsafe {
        let root = library
            .get::<extern "C" fn() -> *const CModule>(C_ROOT.as_bytes())
            .map_err(|error| LoadError::Loader(loader_said(&error)))?;
        let module = root();
        std::mem::forget(library);
        module
    };
    let broken = |what: String| LoadError::Layout(format!("{C_ROOT}: {what}"));
    if module.is_null() {
        return Err(broken("it returned a null pointer".into()));
    }
    // SAFETY: it points to a module of the plugin, which begins with its size. That is read first.
    let size = unsafe { ptr::read_unaligned(module.cast::<u32>()) };
    let size = size as usize;
    if size < FIRST_MODULE {
        return Err(broken(format!("the module has {size} bytes, not {FIRST_MODULE}")));
    }
    if !module.is_aligned() {
        return Err(broken("the module is not aligned".into()));
    }
    // A module of a later minor version is longer, one of an earlier one shorter: what it does not have is null.
    let mut known = MaybeUninit::<CModule>::zeroed();
    // SAFETY: so many bytes are the module's, by its size, and so many have room; all fields of it are plain, and zero is
    // a value of each.
    let module = unsafe {
        let bytes = size.min(size_of::<CModule>());
        ptr::copy_nonoverlapping(module.cast::<u8>(), known.as_mut_ptr().cast::<u8>(), bytes);
        known.assume_init()
    };
    let (abi, noted) = ((module.abi_major, module.abi_minor), inspection.abi);
    if abi != noted {
        let what =
            format!("the module is for interface {}.{}, the note for {}.{}", abi.0, abi.1, noted.0, noted.1);
        return Err(broken(what));
    }
    if module.reserved != 0 {
        return Err(broken("the module has a reserved word that is not 0".into()));
    }
    let text = |what: &str, text: Str| {
        if text.len > MOST_TEXT || (text.len > 0 && text.ptr.is_null()) {
            return Err(broken(format!("the {what} makes no sense")));
        }
        // SAFETY: constant text of a library that stays loaded, of a sane length.
        Ok(unsafe { text.text() }.into_owned())
    };
    let [name, version, description] = [
        text("name", module.name)?,
        text("version", module.version)?,
        text("description", module.description)?,
    ];
    // Written twice by the author; what was shown without running it must be what runs.
    for (what, own, noted) in [("name", &name, &inspection.name), ("version", &version, &inspection.version)]
    {
        if own != noted {
            return Err(broken(format!("the module's {what} is {own:?}, the note's {noted:?}")));
        }
    }
    let texts = [name, version, description];
    let tables = Tables {
        provider: table(module.provider)?.ok_or_else(missing::<ProviderOps>)?,
        device: table(module.device)?.ok_or_else(missing::<DeviceOps>)?,
        channel: table(module.channel)?.ok_or_else(missing::<ChannelOps>)?,
        queue: table(module.queue)?.ok_or_else(missing::<QueueOps>)?,
        srq: table(module.srq)?.ok_or_else(missing::<SrqOps>)?,
        listener: table(module.listener)?.ok_or_else(missing::<ListenerOps>)?,
        probe: table(module.probe)?,
    };
    Ok(Loaded { tables, abi, texts })
}

fn missing<T: Ops>() -> LoadError {
    LoadError::Layout(format!("{C_ROOT}: the module has no {}", T::NAME))
}

/// A table that can be called: present, aligned, of the right size, without a null pointer.
fn table<T: Ops>(from: *const T) -> Result<Option<&'static T>, LoadError> {
    let broken = |what: String| Err(LoadError::Layout(format!("{C_ROOT}: {} {what}", T::NAME)));
    if from.is_null() {
        return Ok(None);
    }
    if !from.is_aligned() {
        return broken("is not aligned".into());
    }
    let words = from.cast::<usize>();
    // SAFETY: a table of the plugin's leads with its size; it lives as long as the library, which is for ever.
    let [size, reserved] = unsafe { words.cast::<[u32; 2]>().read() };
    if size as usize != size_of::<T>() {
        return broken(format!("has {size} bytes, not {}", size_of::<T>()));
    }
    if reserved != 0 {
        return broken("has a reserved word that is not 0".into());
    }
    for at in 1..size_of::<T>() / size_of::<usize>() {
        // SAFETY: inside of the table, by its size. A pointer to a function is a word, read as a number here.
        if unsafe { words.add(at).read() } == 0 {
            return broken(format!("has a null pointer at offset {}", at * size_of::<usize>()));
        }
    }
    // SAFETY: constant, aligned, complete, and no entry is null: a value of the type, for ever.
    Ok(Some(unsafe { &*from }))
}
