//! What each layer does in a round, and what they share.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use dat_plugin::{ChannelAttr, Config};

/// Messages a round; fits every queue and the provider's default ring.
pub(crate) const BATCH: usize = 64;

/// A connected pair, both ends on this thread.
pub(crate) trait Layer {
    fn name(&self) -> &'static str;
    fn post_recvs(&mut self);
    fn post_sends(&mut self);
    fn take_recvs(&mut self);
    fn take_sends(&mut self);
    /// Polls that find nothing; their number is that of the messages.
    fn poll_nothing(&mut self);
    /// One poll of an end that has nothing to find.
    #[allow(dead_code, reason = "not every program that measures layers needs it")]
    fn idle(&mut self, _side: usize) {}
}

/// A name space of its own for each layer.
pub(crate) fn config(layer: &str) -> Config {
    let domain = format!("bench-{layer}-{}", std::process::id());
    Config { ia_name: format!("bench-{layer}"), params: BTreeMap::from([("domain".into(), domain)]) }
}

pub(crate) fn channel_attr(user: u64) -> ChannelAttr {
    ChannelAttr {
        user,
        send_user: user,
        recv_user: user,
        domain: 1,
        max_requests: BATCH as u32 * 2,
        max_recvs: BATCH as u32 * 2,
        max_request_segments: 4,
        max_recv_segments: 4,
        max_reads_out: 4,
        max_reads_in: 4,
        reserved: 0,
        max_message: 1 << 20,
    }
}

/// Calls `step` until it returns `true`; panics with a sentence after 10 s.
pub(crate) fn until(what: &str, mut step: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !step() {
        assert!(Instant::now() < deadline, "{what} did not happen within 10 s");
    }
}
