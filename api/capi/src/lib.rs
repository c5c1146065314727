//! `libdat2.so.2`: the C interface of uDAPL 2.0 over this project's providers.
//!
//! C programs that were written for uDAPL link `dat_*` functions (version node `DAT_2.0`) or dispatch through the
//! provider table that every handle but the IA's begins with; both arrive here. [`table`] lists the functions once,
//! [`calls`] has one file for each kind of object, [`handle`] makes handles that can be judged without trusting them,
//! [`names`] finds providers by `plugins.toml` and `dat.conf`. [`provider_entry`] is the way in for another `libdat2` that loads
//! this library as a provider.
//!
//! # Unsafe
//! Addresses that C code passes are believed to be what the public headers say: null, or valid for what the call does
//! with them. Handles are not believed. Nothing else is unsafe here but the system calls behind [`handle::epoch`] and
//! the dynamic linker in [`provider_entry`].
//!
//! No panic leaves the library: each entry catches it and answers `DAT_INTERNAL_ERROR`.

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
