//! libfabric's C interface: structures, constants, the functions of `libfabric.so.1` and the calls that its headers
//! define as inline functions.
//!
//! - [`types`] and [`ops`] are the structures of the headers of version 1.17, written by hand as far as this project
//!   needs them. `tests/layout.rs` compares every size and offset with the headers installed, through the C compiler.
//! - [`inline`] holds the calls that are inline functions in C: a jump through an object's table, nothing else.
//! - [`Library`] is the library itself, opened when it is first asked for. Nothing is linked: a program with this crate
//!   starts on a machine without libfabric, and learns of its absence from [`Library::get`].
//!
//! Newer releases of libfabric append fields to structures. So a structure that the library reads, [`types::fi_info`]
//! above all, is always one that the library allocated ([`Library::dupinfo`]); and where the library writes one whose
//! length it decides, the caller leaves room (`fi_cq_err_entry` in [`types::cq_err_room`]).
#![allow(non_camel_case_types, reason = "the names of the C interface")]

pub mod consts;
pub mod inline;
mod library;
mod monitor;
pub mod ops;
pub mod types;

pub use library::{Library, keeping_signals};
