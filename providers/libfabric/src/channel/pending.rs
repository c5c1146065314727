//! Control messages that are still to be sent.

use dat_plugin::Event;

use crate::wire::control::{Control, Resolved};

/// Control messages that libfabric did not take yet, or that wait for a condition.
#[derive(Debug, Default)]
pub struct PendingControl {
    /// The connecting side is connected. Sent before anything else.
    pub connected: bool,
    /// The smallest receive became smaller. The peer must know before it may rely on the new receive.
    pub room: bool,
    pub resolve: Option<u32>,
    pub resolved: Option<Resolved>,
    pub ask_room: Option<(u32, u64)>,
    /// Receives are requested for all messages before this one.
    pub request_receives: Option<u32>,
    /// Receives that the peer requested are posted: it waits for this credit.
    pub credit: bool,
    pub answer: Option<(Control, u32)>,
    pub ping: bool,
    pub pong: bool,
    pub revoke: Vec<u32>,
    /// Keys that the peer revoked; confirmed when no operation uses them.
    pub revoked: Vec<u32>,
    /// The last event, handed out when libfabric has let go of all memory.
    pub last_event: Option<Box<Event>>,
}

impl PendingControl {
    /// Whether anything is pending that no message carries.
    pub fn any(&self) -> bool {
        self.connected
            || self.room
            || self.credit
            || self.resolve.is_some()
            || self.resolved.is_some()
            || self.ask_room.is_some()
            || self.request_receives.is_some()
            || self.answer.is_some()
            || self.ping
            || self.pong
            || !self.revoke.is_empty()
    }
}
