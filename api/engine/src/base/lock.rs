//! The locks of the data path: an endpoint's post side and a dispatcher's core. A thread holds one for a few
//! instructions, or for one call into the provider, which never blocks. A thread that takes the same lock again and
//! again needs no atomic exchange (see `dat-sync`).

pub(crate) use dat_sync::{Guard, Lock};
