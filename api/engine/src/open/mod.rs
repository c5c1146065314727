//! Opening and closing adapters, and what depends on every kind of object: queries, and the IA's thread.

mod async_evd;
mod attributes;
mod calls;
mod thread;

pub use async_evd::AsyncEvd;
