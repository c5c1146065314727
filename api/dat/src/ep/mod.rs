//! Endpoints.

mod connect;
mod endpoint;
mod extended;
mod many;
mod operation;
mod post;

pub use connect::Connect;
pub use endpoint::{Ep, EpBuilder};
pub use post::Post;
