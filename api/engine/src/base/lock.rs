//! The locks of the data path: an endpoint's post side, a dispatcher's core. They are held for a handful of
//! instructions or one call into the provider, which never blocks; a thread that keeps taking one takes it without an
//! atomic exchange (see `dat-sync`).

pub(crate) use dat_sync::{Guard, Lock};
