//! `libdat2.so.2`: the C interface of uDAPL 2.0 over this project's providers.
//!
//! Programs written for uDAPL link `dat_*` functions (version node `DAT_2.0`). Others dispatch through the provider
//! table, to which every handle but the IA's points. Both arrive here.
//!
//! - [`table`] lists the functions once.
//! - [`calls`] has one file for each kind of object.
//! - [`handle`] makes handles that are checked before they are dereferenced.
//! - [`names`] finds providers by `plugins.toml` and `dat.conf`.
//! - [`provider_entry`] is for another `libdat2` that loads this library as a provider.
//!
//! # Unsafe
//! Pointers of C code are trusted as the public headers demand: null, or valid for what the call does with them. Handles
//! are checked. The rest of the unsafe code is system calls ([`handle::epoch`]) and the dynamic linker
//! ([`provider_entry`]).
//!
//! No panic leaves the library: each entry catches it and returns `DAT_INTERNAL_ERROR`.

mod abi;
mod address;
mod calls;
mod code;
mod counter;
mod event;
mod exports;
mod foreign;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod handle;
mod names;
mod object;
mod provider_entry;
mod registered;
mod table;
mod text;

/// Puts an exported function into the version node of uDAPL 2.0. The linker knows it by `exports.map`.
macro_rules! symbol_version {
    ($symbol:ident) => {
        #[cfg(not(any(test, fuzzing)))]
        std::arch::global_asm!(concat!(
            ".symver ",
            stringify!($symbol),
            ", ",
            stringify!($symbol),
            "@@DAT_2.0"
        ));
    };
}
use symbol_version;
