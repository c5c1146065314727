//! Calls of the application at a notification.

use dat_types::ObjectId;

/// What a notification object calls once when it is triggered, in addition to waking a waiter: an OS wait proxy agent.
/// It runs on the IA's thread, with no lock held, and must not block: connections do not go on meanwhile. Its argument is the
/// dispatcher, or `None` when the adapter was closed or all dispatchers of the object were freed.
pub struct Agent {
    /// A value of the consumer's, by which a query names the agent.
    pub tag: u64,
    call: Box<dyn FnOnce(Option<ObjectId>) + Send>,
}

impl Agent {
    /// An agent that calls `call`.
    pub fn new(tag: u64, call: impl FnOnce(Option<ObjectId>) + Send + 'static) -> Agent {
        Agent { tag, call: Box::new(call) }
    }

    /// A panic ends here: it is the application's, and the thread is everybody's.
    pub(crate) fn run(self, evd: Option<ObjectId>) {
        let tag = self.tag;
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (self.call)(evd))).is_err() {
            tracing::error!(tag, "the agent of a notification object panicked");
        }
    }
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Agent({})", self.tag)
    }
}
