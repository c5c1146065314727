//! libibverbs and librdmacm: the types and functions this project uses, and nothing else.
//!
//! The libraries are loaded when they are first asked for, so that everything builds, and everything but RDMA runs, on
//! a machine without them. The structures are those of the libraries' binary interface; `tests/layout.rs` compares
//! them with the C headers where these are installed.
//!
//! Names are the C names. What the C headers have as inline functions (posting, polling) is in [`verbs`] as inline
//! functions too: one jump through the table of the device's driver.

mod load;

pub mod cm;
pub mod verbs;

pub use load::{Cm, Libraries, Verbs, libraries};
