//! The locks of the data path: an endpoint's post side, a dispatcher's core. Taken by one exchange, released by a plain
//! store: half the price of a lock that can put waiters to sleep. They are held for a handful of instructions or one
//! call into the provider, which never blocks; a thread that finds one held gives its processor away.

/// A value behind such a lock.
pub(crate) type Lock<T> = spin::mutex::SpinMutex<T, spin::relax::Yield>;
