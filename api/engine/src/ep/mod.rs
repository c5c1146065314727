//! Endpoints.

mod attr;
mod below;
mod connect;
mod connect_param;
mod counters;
mod disconnect;
mod ending;
mod exclusive;
mod extended;
pub(crate) mod inner;
mod kind;
#[cfg(test)]
#[path = "../../tests/unit/lock_bias.rs"]
mod lock_bias;
mod many;
mod mask;
mod modify;
mod post;
mod post_error;
mod post_side;
mod reservation;
mod watermark;

pub use connect_param::ConnectOptions;
pub use exclusive::PostNumber;
pub use inner::{Ep, EpParam, EpStatus};
pub use many::Posting;
pub use mask::EpMask;
pub use modify::EpModify;
pub use watermark::EpRecvParam;
