//! The same work at each layer.

pub(crate) mod abi;
pub(crate) mod api;
pub(crate) mod buffer;
pub(crate) mod direct;
pub(crate) mod engine;
mod layer;

#[allow(unused_imports, reason = "not every program that measures layers needs all of it")]
pub(crate) use layer::{BATCH, Layer, config};
