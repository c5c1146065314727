//! The passive side: service points and connection requests.

pub(crate) mod cr;
mod csp;
pub(crate) mod point;
mod psp;
mod rsp;

pub use cr::{Cr, CrParam};
pub use csp::{Csp, CspParam};
pub use psp::{Psp, PspParam};
pub use rsp::{Rsp, RspParam};
