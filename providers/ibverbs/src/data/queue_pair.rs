//! A queue pair as the data path sees it: what posting and completing need, and nothing of the connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dat_plugin::ChannelAttr;

use crate::data::adapter::Adapter;
use crate::data::ring::Ring;
use crate::data::srq::SrqInner;
use crate::sys::queue_pair::Qp;

pub(crate) struct QueuePair {
    pub(crate) handle: Qp,
    /// May post requests.
    pub(crate) live: AtomicBool,
    /// The upper bits of the work ids of requests and of receives.
    pub(crate) send_base: u64,
    pub(crate) recv_base: u64,
    /// Longest message that travels inside a request, in bytes.
    pub(crate) inline: u64,
    pub(crate) max_message: u64,
    /// Requests; open while live.
    pub(crate) tx: Ring,
    /// Receives; open until stopped.
    pub(crate) rx: Ring,
    pub(crate) attr: ChannelAttr,
    pub(crate) adapter: Arc<Adapter>,
    /// May no longer post receives, and failures are no news.
    pub(crate) stopped: AtomicBool,
    pub(crate) faulty: AtomicBool,
    /// A marker is with the device; another is to follow it.
    pub(crate) marker_out: AtomicBool,
    pub(crate) marker_again: AtomicBool,
    /// The number that the device's events carry.
    pub(crate) token: u64,
    pub(crate) srq: Option<Arc<SrqInner>>,
}

impl QueuePair {
    pub(crate) fn srq(&self) -> Option<&SrqInner> {
        self.srq.as_deref()
    }

    /// The data path, or the device, met a failure: the event thread ends the connection.
    #[cold]
    pub(crate) fn fault(&self, what: &str) {
        if !self.stopped.load(Ordering::Acquire) && !self.faulty.swap(true, Ordering::AcqRel) {
            tracing::debug!(ia = %self.adapter.params.ia_name, qp = self.handle.number(), "{what}");
            self.adapter.report_fault(self.token);
        }
    }

    /// Takes requests from now on.
    pub(crate) fn go_live(&self) {
        self.live.store(true, Ordering::Release);
        self.tx.open();
    }

    /// Takes no more posts.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.live.store(false, Ordering::Release);
        self.tx.close();
        self.rx.close();
    }
}
