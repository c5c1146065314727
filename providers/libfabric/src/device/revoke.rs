//! The end of a key that peers may be using.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dat_plugin::EventKind;

use crate::channel::{ChannelInner, Phase};
use crate::core::CreditDelay;
use crate::device::DeviceInner;
use crate::memory::Removed;
use crate::wire::control::CloseReason;

/// How long a deregistration waits for peers that use the memory.
const REVOKE_TIME: Duration = Duration::from_millis(200);

impl DeviceInner {
    /// Ends a registration whose key peers may be using. They are sent a revocation and get a bounded time to confirm it; a
    /// peer that does not loses its connection. After that no peer reaches the memory.
    pub fn end_registration(&self, removed: Removed) {
        let chans: Vec<Arc<ChannelInner>> =
            removed.users.iter().filter_map(|id| self.channels.get(*id)).collect();
        for chan in &chans {
            revoke(chan, removed.rkey);
        }
        let deadline = Instant::now() + REVOKE_TIME;
        let mut turns = 0u32;
        while chans.iter().any(|chan| awaits_revoked(chan, removed.rkey)) {
            if Instant::now() >= deadline {
                for chan in chans.iter().filter(|chan| awaits_revoked(chan, removed.rkey)) {
                    tracing::warn!(
                        channel = chan.id,
                        "the peer does not confirm that it stopped using memory; its connection is broken"
                    );
                    break_connection(chan);
                }
                break;
            }
            if self.progress.once() == 0 {
                self.core.run_tasks(CreditDelay::None);
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
}

fn revoke(channel: &ChannelInner, rkey: u32) {
    let mut st = channel.lock();
    if st.phase == Phase::Connected && st.resolved_keys.contains(&rkey) {
        st.pending.revoke.push(rkey);
        channel.flush_control(&mut st, false);
    }
}

fn awaits_revoked(channel: &ChannelInner, rkey: u32) -> bool {
    let st = channel.lock();
    st.phase == Phase::Connected && st.resolved_keys.contains(&rkey)
}

fn break_connection(channel: &ChannelInner) {
    let mut st = channel.lock();
    channel.end(&mut st, EventKind::BROKEN, &[], Some(CloseReason::Broken));
}
