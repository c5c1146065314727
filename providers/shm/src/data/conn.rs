//! What both halves of the data path need of their connection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use dat_kit::ForkGuard;
use dat_plugin::ChannelAttr;

use crate::data::completion::Counters;
use crate::data::doorbell::Doorbells;
use crate::data::link::Link;
use crate::data::protocol::Thresholds;
use crate::memory::keys::KeyTable;

/// What the data path asks of the control plane. It does so on cold paths only, with the lock of a half held.
pub(crate) trait Control: Send + Sync {
    /// Has the event thread make progress on this channel in a while.
    fn schedule_progress(&self);
    /// Has the event thread end the connection.
    fn fault(&self, what: &str);
    /// The shared receive queue has a receive again, for which a message of this channel waits.
    fn receive_available(&self);
    /// Wakes the peer's event thread.
    fn kick(&self);
    /// Asks the peer for a descriptor of its memory, once. `false`: too many requests are open.
    fn ask_for(&self, map: u64, write: bool) -> bool;
    /// Ends what a window is bound to, for the peer.
    fn end_window(&self, rkey: u32) -> bool;
}

/// The state of a channel that its two halves share.
pub(crate) struct Conn {
    // First what polls of an idle channel read.
    pub(crate) counters: Counters,
    /// Set once, when the handshake is through.
    pub(crate) link: OnceLock<Link>,
    pub(crate) owner: Arc<ForkGuard>,
    pub(crate) doorbells: Doorbells,
    pub(crate) attr: ChannelAttr,
    pub(crate) thresholds: Thresholds,
    /// The registrations of this device.
    pub(crate) keys: Arc<KeyTable>,
    /// It waits in line for a receive of a shared queue.
    pub(crate) in_line: AtomicBool,
    scheduled: AtomicBool,
    control: Weak<dyn Control>,
}

impl Conn {
    pub(crate) fn new(
        attr: ChannelAttr,
        doorbells: Doorbells,
        thresholds: Thresholds,
        owner: Arc<ForkGuard>,
        keys: Arc<KeyTable>,
        control: Weak<dyn Control>,
    ) -> Conn {
        Conn {
            counters: Counters::default(),
            link: OnceLock::new(),
            owner,
            doorbells,
            attr,
            thresholds,
            keys,
            in_line: AtomicBool::new(false),
            scheduled: AtomicBool::new(false),
            control,
        }
    }

    /// Puts it in line for a receive of a shared queue. `None`: it is in line.
    pub(crate) fn line_up(&self) -> Option<Weak<dyn Control>> {
        (!self.in_line.swap(true, Ordering::AcqRel)).then(|| self.control.clone())
    }

    /// `None` while the channel is being dropped.
    fn control(&self) -> Option<Arc<dyn Control>> {
        self.control.upgrade()
    }

    /// See [`Control::schedule_progress`].
    pub(crate) fn schedule_progress(&self) {
        if !self.scheduled.swap(true, Ordering::AcqRel)
            && let Some(control) = self.control()
        {
            control.schedule_progress();
        }
    }

    /// The event thread is done with it.
    pub(crate) fn unscheduled(&self) {
        self.scheduled.store(false, Ordering::Release);
    }

    #[cold]
    pub(crate) fn fault(&self, what: &str) {
        if let Some(control) = self.control() {
            control.fault(what);
        }
    }

    #[cold]
    pub(crate) fn kick(&self) {
        if let Some(control) = self.control() {
            control.kick();
        }
    }

    #[cold]
    pub(crate) fn ask_for(&self, map: u64, write: bool) -> bool {
        self.control().is_some_and(|control| control.ask_for(map, write))
    }

    #[cold]
    pub(crate) fn end_window(&self, rkey: u32) -> bool {
        self.control().is_some_and(|control| control.end_window(rkey))
    }
}
