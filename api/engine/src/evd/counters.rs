//! What a dispatcher counted.

use dat_types::{EvdCounter, Result, Subtype};

use super::inner::Evd;

impl Evd {
    /// What happened on it since it was made or the counters were last reset, by [`EvdCounter`].
    pub fn counters(&self, reset: bool) -> Result<Vec<u64>> {
        use EvdCounter as C;
        self.alive("dat_extension_op", Subtype::Handle1)?;
        let mut out = vec![0; C::ALL.len()];
        {
            let core = self.0.core.lock();
            let counts = &core.counts;
            for (counter, value) in [
                (C::Wait, counts.waits),
                (C::WaitBlocked, counts.waits_blocked),
                (C::WaitNotify, counts.waits_notified),
                (C::Dequeue, counts.dequeues),
                (C::DequeueFound, counts.dequeues_found),
                (C::DequeueNotFound, counts.dequeues - counts.dequeues_found),
                (C::DequeuePoll, counts.polls),
                (C::DequeuePollFound, counts.polls_found),
                (C::ConnCallback, counts.connection_events),
                (C::DtoCallback, counts.polls_found),
            ] {
                out[counter as usize] = value;
            }
        }
        Ok(self.0.counted.0.since(out, reset))
    }
}
