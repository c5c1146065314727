//! Operations beyond messages, reads and writes: immediate values, atomic operations, and what concerns windows.
//! Providers need not have them; those that do not answer `DAT_MODEL_NOT_SUPPORTED`.

use dat_types::{CompletionFlags, LmrTriplet, Result, RmrTriplet};

use super::endpoint::Ep;
use super::operation::Operation;
use super::post::Post;
use crate::region::Slice;
use crate::{Region, Window};

impl Ep {
    /// A send with an immediate value, to be posted; the receive's completion tells it
    /// ([`crate::DtoCompletion::immediate`]).
    pub fn send_immediate_from<'a>(&'a self, segments: &'a [Slice], value: u32) -> Post<'a> {
        Post::new(&self.0, Operation::SendImmediate(value), segments)
    }

    /// An RDMA write with an immediate value, to be posted. It uses a receive of the peer, whose completion tells the
    /// value and how much was written; the receive's memory is untouched.
    pub fn write_immediate_from<'a>(
        &'a self,
        segments: &'a [Slice],
        remote: RmrTriplet,
        value: u32,
    ) -> Post<'a> {
        Post::new(&self.0, Operation::WriteImmediate(remote, value), segments)
    }

    /// A send that ends the peer's window with this context before its receive completes, to be posted.
    pub fn send_invalidate_from<'a>(&'a self, segments: &'a [Slice], context: u32) -> Post<'a> {
        Post::new(&self.0, Operation::SendInvalidate(context), segments)
    }

    /// An RDMA read into a local window that may be written, to be posted.
    pub fn read_into_window(&self, sink: RmrTriplet, remote: RmrTriplet) -> Post<'_> {
        Post::new(&self.0, Operation::ReadInto(sink, remote), &[])
    }

    /// Adds to an aligned 64-bit word of the peer's, atomically with respect to other atomic operations through the same
    /// provider, to be posted. `old`, one slice of 8 bytes, receives what the word was, in this host's byte order.
    pub fn fetch_add<'a>(&'a self, old: &'a [Slice; 1], remote: RmrTriplet, operand: u64) -> Post<'a> {
        Post::new(&self.0, Operation::FetchAdd(remote, operand), old)
    }

    /// Makes an aligned 64-bit word of the peer's `swap` if it is `expected`; otherwise as [`Ep::fetch_add`].
    pub fn compare_swap<'a>(
        &'a self,
        old: &'a [Slice; 1],
        remote: RmrTriplet,
        expected: u64,
        swap: u64,
    ) -> Post<'a> {
        Post::new(&self.0, Operation::CompareSwap(remote, expected, swap), old)
    }

    /// Posts the binding of `window` to a stretch of `region`, and gives what a peer needs to use it: that may be sent to
    /// it with the next message. What the window gave access to before is out of reach once the binding completed.
    ///
    /// # Panics
    /// When the range does not lie inside, or is longer than 4 GiB.
    pub fn bind(
        &self,
        window: &Window,
        region: &Region,
        range: impl std::ops::RangeBounds<usize>,
        privileges: dat_types::Privileges,
        cookie: u64,
    ) -> Result<RmrTriplet> {
        let LmrTriplet { address, length, .. } = region.triplet(range);
        let (engine, flags) = (&self.0.engine, CompletionFlags::empty());
        let lmr = Some(region.inner());
        let context = window.inner().bind(lmr, address, length, privileges, engine, cookie, flags)?;
        Ok(RmrTriplet { address, length, context })
    }

    /// Posts the end of what `window` is bound to.
    pub fn unbind(&self, window: &Window, cookie: u64) -> Result<()> {
        let (engine, flags) = (&self.0.engine, CompletionFlags::empty());
        let none = dat_types::Privileges::empty();
        window.inner().bind(None, 0, 0, none, engine, cookie, flags).map(drop)
    }
}
