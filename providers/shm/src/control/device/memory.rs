//! The ends of registrations, windows and blocks, which peers may be using.

use super::*;

impl Dev {
    /// The peer freed an area of its memory: caches of mappings let it go.
    pub(crate) fn forget_mapping(&self, peer: &Arc<Peer>, map: u64) {
        for chan in self.channels_of(|chan| chan.peer().is_some_and(|its| Arc::ptr_eq(its, peer))) {
            chan.forget_mapping(map);
        }
    }

    /// This device freed a block: peers that may have it mapped let it go.
    pub(crate) fn unshare(&self, map: u64) {
        for peer in self.peers.all().iter().filter(|peer| peer.unshare(map)) {
            let chans = self.channels_of(|chan| chan.peer().is_some_and(|its| Arc::ptr_eq(its, peer)));
            let unmap = Packet::Unmap { map };
            let sent =
                chans.iter().any(|chan| chan.session.get().is_some_and(|session| session.send(&unmap)));
            if !sent && !chans.is_empty() {
                // Its socket is full: tried again with the next block.
                tracing::debug!(pid = peer.pid, "a peer is not told that memory is free");
            }
        }
    }

    fn channels_of(&self, which: impl Fn(&Chan) -> bool) -> Vec<Arc<Chan>> {
        let sources = self.sources();
        let channels = sources.values().filter_map(|source| match source {
            Source::Channel(chan) => Some(chan),
            _ => None,
        });
        channels.filter(|chan| which(chan)).cloned().collect()
    }

    /// Binds a window; what it was bound to is out of reach then.
    pub(crate) fn bind(&self, window: u64, range: Option<(Segment, Access)>) -> Option<u32> {
        let bound = self.keys.bind(window, range);
        self.wait_for_peers();
        bound
    }

    /// Ends a window for a peer that has its key.
    pub(crate) fn end_window(&self, rkey: u32, domain: u32) -> bool {
        let ended = self.keys.end_window(rkey, domain);
        if ended {
            self.wait_for_peers();
        }
        ended
    }

    /// After a key became invalid: waits until no peer is in an access that began before. `false`: a peer that lives does
    /// not end its access. It may be stopped, and go on whenever it likes, so what it accesses must stay.
    pub(crate) fn wait_for_peers(&self) -> bool {
        barrier::barrier(self.barriers);
        let deadline = Instant::now() + LEAVE;
        for chan in self.channels_of(|_| true) {
            if !chan.peer_left(deadline) {
                let what = "the peer does not end its access to memory whose registration ended";
                chan.pair.conn.fault(what);
                self.unsettled().push(chan);
            }
        }
        let mut unsettled = self.unsettled();
        unsettled.retain(|chan| !chan.is_settled());
        unsettled.is_empty()
    }

    /// Connections whose peer may still be in the middle of a copy.
    pub(crate) fn unsettled(&self) -> MutexGuard<'_, Vec<Arc<Chan>>> {
        self.unsettled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
