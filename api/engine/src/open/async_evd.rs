//! Which dispatcher takes the asynchronous errors of an adapter (spec: adapter).

use std::sync::Weak;

use dat_types::{Error, EvdFlags, Result, ReturnType, Subtype};
use parking_lot::Mutex;

use crate::evd::inner::{Evd, EvdInner};

/// What an IA is opened with for its asynchronous errors.
#[derive(Clone, Debug, Default)]
pub enum AsyncEvd {
    /// One of its own, which goes with it.
    #[default]
    Own,
    /// The one an earlier open of the same adapter has; it is out of scope for this one.
    Exists,
    /// This one, of the same adapter. It outlives the IA opened with it.
    Shared(Evd),
}

/// Async dispatchers of open IAs, by the name of the adapter, oldest first.
static KNOWN: Mutex<Vec<(String, Weak<EvdInner>)>> = Mutex::new(Vec::new());

/// Makes `evd` known as one of `adapter`.
pub(crate) fn announce(adapter: &str, evd: &Evd) {
    let mut known = KNOWN.lock();
    known.retain(|(_, evd)| evd.strong_count() > 0);
    known.push((adapter.to_owned(), std::sync::Arc::downgrade(&evd.0)));
}

/// The one `adapter` has.
pub(crate) fn existing(call: &'static str, adapter: &str) -> Result<Evd> {
    let known: Vec<_> = KNOWN
        .lock()
        .iter()
        .filter(|(name, _)| name == adapter)
        .filter_map(|(_, evd)| evd.upgrade())
        .collect();
    known.into_iter().map(Evd).find(|evd| evd.alive(call, Subtype::HandleEvdAsync).is_ok()).ok_or_else(|| {
        let message = format!("no open IA of {adapter:?} has an async dispatcher yet; open one with its own");
        Error::new(call, ReturnType::InvalidHandle, Subtype::HandleEvdAsync, message)
    })
}

/// Fails unless `evd` may take the asynchronous errors of `adapter`.
pub(crate) fn check(call: &'static str, adapter: &str, evd: &Evd) -> Result<()> {
    evd.alive(call, Subtype::HandleEvdAsync)?;
    let bad = |message| Err(Error::new(call, ReturnType::InvalidHandle, Subtype::HandleEvdAsync, message));
    if !evd.0.flags.contains(EvdFlags::ASYNC) {
        return bad(format!("event dispatcher {} does not take asynchronous errors", evd.id()));
    }
    match evd.0.owner.upgrade() {
        Some(ia) if ia.name() == adapter => Ok(()),
        _ => bad(format!("event dispatcher {} is not of an open IA of {adapter:?}", evd.id())),
    }
}
