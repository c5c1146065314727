//! The end of a key peers may be using.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::channel::{Chan, Phase};
use crate::device::Dev;
use crate::flow::Lull;
use crate::memory::Removed;

/// How long a deregistration waits for peers that use the memory.
const REVOKE_TIME: Duration = Duration::from_millis(200);

impl Dev {
    /// Ends a registration whose keys peers may be using: they are told, and for a bounded time waited for; who does not
    /// answer loses its connection. After that nothing of the peer's reaches the memory.
    pub fn end_registration(&self, removed: Removed) {
        let chans: Vec<Arc<Chan>> = removed.told.iter().filter_map(|id| self.chan(*id)).collect();
        for chan in &chans {
            chan.revoke(removed.rkey);
        }
        let deadline = Instant::now() + REVOKE_TIME;
        let mut turns = 0u32;
        while chans.iter().any(|chan| chan.waits_for_revoked(removed.rkey)) {
            if Instant::now() >= deadline {
                for chan in chans.iter().filter(|chan| chan.waits_for_revoked(removed.rkey)) {
                    tracing::warn!(
                        channel = chan.id,
                        "a peer does not let go of memory; its connection is broken"
                    );
                    chan.break_off();
                }
                break;
            }
            if self.progress() == 0 {
                self.look_after_channels(Lull::Long);
                turns += 1;
                if turns > 50 {
                    std::thread::sleep(Duration::from_micros(50));
                } else {
                    std::thread::yield_now();
                }
            }
        }
        drop(removed);
    }

    /// Ends a key of a window. The memory stays registered, so nothing has to be waited for.
    pub fn take_back(&self, rkey: u32) {
        if let Some(removed) = self.regions.unpublish(rkey) {
            for chan in removed.told.iter().filter_map(|id| self.chan(*id)) {
                chan.revoke_later(removed.rkey);
            }
        }
    }
}

impl Chan {
    fn revoke(&self, rkey: u32) {
        let mut st = self.lock();
        if st.phase == Phase::Up && st.explained.contains(&rkey) {
            st.owed.revoke.push(rkey);
            self.say_what_is_owed(&mut st, false);
        }
    }

    /// As [`Chan::revoke`], from under a channel's lock.
    fn revoke_later(&self, rkey: u32) {
        self.revokes.lock().push(rkey);
        self.list();
    }

    fn waits_for_revoked(&self, rkey: u32) -> bool {
        let st = self.lock();
        st.phase == Phase::Up && st.explained.contains(&rkey)
    }

    fn break_off(&self) {
        let mut st = self.lock();
        self.end(&mut st, dat_plugin::EventKind::BROKEN, &[], Some(crate::wire::Farewell::Broken));
    }
}
