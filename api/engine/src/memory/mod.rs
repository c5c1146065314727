//! Protection zones and memory regions.

pub(crate) mod lmr;
pub(crate) mod pz;

pub use lmr::{ExclusiveLmr, Lmr, LmrParam, Origin, Region};
pub use pz::Pz;
