//! libfabric's C interface: structures, constants, the functions of `libfabric.so.1` and the calls that its headers
//! define as inline functions.
//!
//! - [`types`] and [`ops`] are the structures of the headers of version 1.17, written by hand as far as this project
//!   needs them. `tests/layout.rs` compares every size and offset with the headers installed, through the C compiler.
//! - [`inline`] holds the calls that are inline functions in C: one jump through an object's table each.
//! - [`Library`] is the library itself, opened at its first use. Nothing is linked: a program with this crate
//!   starts on a machine without libfabric; [`Library::get`] reports its absence.
//!
//! Newer releases of libfabric append fields to structures. So the library itself allocates the structures that it reads,
//! [`types::fi_info`] above all ([`Library::dupinfo`]). Where it writes a structure whose length it decides, the caller
//! leaves room (`fi_cq_err_entry` in [`types::cq_err_room`]).
#![allow(non_camel_case_types, reason = "the names of the C interface")]

pub mod consts;
mod data;
mod fid;
pub mod inline;
mod library;
mod monitor;
mod objects;

/// Structures and objects.
pub mod types {
    pub use crate::data::*;
    pub use crate::fid::{fi_addr_t, fid};
    pub use crate::objects::{fid_av, fid_cq, fid_domain, fid_ep, fid_eq, fid_fabric, fid_mr, fid_pep};
}

/// Tables of functions.
pub mod ops {
    pub use crate::fid::{Unused, fi_ops};
    pub use crate::objects::*;
}

pub use library::{Library, is_secure_execution, keeping_signals};
