//! The data path: posting to queue pairs, and taking completions.

pub(crate) mod adapter;
pub(crate) mod post;
pub(crate) mod queue;
pub(crate) mod queue_pair;
pub(crate) mod ring;
pub(crate) mod sge;
pub(crate) mod srq;
pub(crate) mod work_id;
