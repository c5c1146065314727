//! What the numbers in the events of RDMA CM and of the device stand for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::control::channel::ChannelInner;
use crate::data::adapter::lock;
use crate::sys::cm::CmId;

#[derive(Default)]
pub(crate) struct Sources(Mutex<HashMap<u64, Source>>);

pub(crate) enum Source {
    Listener(Listening),
    Request(Request),
    Channel(Arc<ChannelInner>),
}

/// An open listener.
pub(crate) struct Listening {
    /// Listens as long as it is here.
    pub(crate) _id: CmId,
    /// The qualifier, and what requests for it carry.
    pub(crate) port: u64,
    pub(crate) quotient: u64,
    pub(crate) user: u64,
}

/// A request of a peer, until it is answered.
pub(crate) struct Request {
    pub(crate) id: CmId,
    /// Reads the peer may have under way, and those it accepts.
    pub(crate) reads: (u8, u8),
    /// The peer has gone.
    pub(crate) gone: bool,
}

impl Sources {
    pub(crate) fn lock(&self) -> MutexGuard<'_, HashMap<u64, Source>> {
        lock(&self.0)
    }

    pub(crate) fn channel(&self, token: u64) -> Option<Arc<ChannelInner>> {
        match self.lock().get(&token) {
            Some(Source::Channel(channel)) => Some(channel.clone()),
            _ => None,
        }
    }

    /// All channels, each once.
    pub(crate) fn channels(&self) -> Vec<Arc<ChannelInner>> {
        let sources = self.lock();
        let own = |(token, source): (&u64, &Source)| match source {
            Source::Channel(channel) if channel.token() == *token => Some(channel.clone()),
            _ => None,
        };
        sources.iter().filter_map(own).collect()
    }

    pub(crate) fn add_channel(&self, channel: &Arc<ChannelInner>) {
        self.lock().insert(channel.token(), Source::Channel(channel.clone()));
    }

    pub(crate) fn remove_channel(&self, channel: &ChannelInner) {
        let mut sources = self.lock();
        let own = sources.remove(&channel.token());
        let accepted = channel.cm_token.get().and_then(|token| sources.remove(token));
        drop(sources);
        // Outside the lock: dropping an identifier waits for its events to be acknowledged.
        drop((own, accepted));
    }

    /// Takes a request; what RDMA CM reports about it goes to `channel` from now on.
    pub(crate) fn take_request(&self, token: u64, channel: &Arc<ChannelInner>) -> Option<Request> {
        let mut sources = self.lock();
        let source = sources.get_mut(&token).filter(|source| matches!(source, Source::Request(_)))?;
        match std::mem::replace(source, Source::Channel(channel.clone())) {
            Source::Request(request) => Some(request),
            other => {
                *source = other;
                None
            }
        }
    }
}
