//! Data and control messages of a connection: posts, completions, waits.

use std::time::{Duration, Instant};

use dat::{ConnectionKind, DtoCompletion, DtoOperation, Event, Region, RmrTriplet, Slice};

use super::reason::{describe, failed};
use super::{Link, Received};
use crate::failure::{Failure, Outcome};
use crate::protocol::{CONTROL, Control};

/// Polls between two checks of the clock and the connection.
const PATIENCE: u32 = 4096;
/// How long to wait for the connection event after a failed operation.
const REASON: Duration = Duration::from_millis(300);

impl Link {
    /// Writes the source bytes of [`Link::send`] and [`Link::write`] with index 0.
    pub fn put(&self, bytes: &[u8]) {
        self.messages.write(0, bytes);
    }

    /// Copies the result of [`Link::read`] with index 0.
    pub fn get(&self, out: &mut [u8]) {
        self.messages.read(0, out);
    }

    /// The memory that the peer may access.
    pub fn window(&self) -> &Region {
        &self.window
    }

    /// Writes one source byte.
    #[inline]
    pub fn put_byte(&self, offset: usize, byte: u8) {
        self.messages.write(offset, &[byte]);
    }

    /// Copies a message out.
    pub fn copy(&self, message: Received, out: &mut [u8]) {
        self.messages.read((self.slots + message.slot as usize) * self.slot, out);
    }

    /// Posts a send of `length` bytes; `index` spreads sends over the buffers.
    #[inline]
    pub fn send(&mut self, index: u32, length: u32, suppressed: bool) -> Outcome {
        let (slice, cookie) = (self.local_slice(index, length), self.posted + 1);
        let segments = [slice];
        let post = self.ep.send_from(&segments).cookie(cookie);
        if suppressed {
            post.suppress().post()?
        } else {
            post.post()?
        }
        self.posted = cookie;
        Ok(())
    }

    /// Posts an RDMA write in the same way.
    #[inline]
    pub fn write(&mut self, index: u32, length: u32, suppressed: bool) -> Outcome {
        let (slice, remote, cookie) =
            (self.local_slice(index, length), self.remote_slice(index, length), self.posted + 1);
        let segments = [slice];
        let post = self.ep.write_from(&segments, remote).cookie(cookie);
        if suppressed {
            post.suppress().post()?
        } else {
            post.post()?
        }
        self.posted = cookie;
        Ok(())
    }

    /// Posts an RDMA read in the same way.
    #[inline]
    pub fn read(&mut self, index: u32, length: u32, suppressed: bool) -> Outcome {
        let (slice, remote, cookie) =
            (self.local_slice(index, length), self.remote_slice(index, length), self.posted + 1);
        let segments = [slice];
        let post = self.ep.read_into(&segments, remote).cookie(cookie);
        if suppressed {
            post.suppress().post()?
        } else {
            post.post()?
        }
        self.posted = cookie;
        Ok(())
    }

    /// The next message. It must be given back with [`Link::release`].
    #[inline]
    pub fn receive(&mut self) -> Outcome<Received> {
        if let Some(message) = self.early.take() {
            return Ok(message);
        }
        loop {
            if let Some(message) = self.next(self.limit)? {
                return Ok(message);
            }
        }
    }

    /// Takes 1 to `most` messages and posts their receives again. Returns their number.
    #[inline]
    pub fn absorb(&mut self, most: u32) -> Outcome<u32> {
        if let Some(message) = self.early.take() {
            self.release(message)?;
            return Ok(1);
        }
        self.reposts.clear();
        while self.reposts.is_empty() {
            if self.consumed == self.completions.len() {
                self.take_completions(self.limit)?;
            }
            while self.reposts.len() < most as usize
                && let Some(done) = self.buffered()
            {
                if let Some(message) = self.record(&done)? {
                    self.reposts.push((self.receive_slices[message.slot as usize], message.slot));
                }
            }
        }
        self.ep.recv_each(&self.reposts).1?;
        Ok(self.reposts.len() as u32)
    }

    /// Posts the receive of a message again.
    #[inline]
    pub fn release(&self, message: Received) -> Outcome {
        self.post_recv(message.slot)
    }

    /// Waits until at most `most` requests are outstanding. The peer's answer may arrive in the meantime.
    #[inline]
    pub fn drain_to(&mut self, most: u64) -> Outcome {
        while self.outstanding() > most {
            if let Some(message) = self.next(self.limit)? {
                self.hold_early(message)?;
            }
        }
        Ok(())
    }

    /// Waits until a byte of the window has this value.
    #[inline]
    pub fn wait_for_byte(&mut self, offset: usize, value: u8) -> Outcome {
        let mut deadline = None;
        loop {
            for _ in 0..PATIENCE {
                if self.window.poll_byte(offset) == value {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            self.check(&mut deadline, self.limit)?;
            if let Some(done) = self.poll()?
                && let Some(message) = self.record(&done)?
            {
                self.hold_early(message)?;
            }
        }
    }

    /// Sends a control message.
    pub fn send_control(&mut self, control: Control) -> Outcome {
        // There is one buffer for control messages: the previous one must be sent.
        self.drain_to(0)?;
        let start = 2 * self.slots * self.slot;
        self.messages.write(start, &control.encode());
        let cookie = self.posted + 1;
        self.ep.send_from(&[self.messages.slice(start..start + CONTROL)]).cookie(cookie).post()?;
        self.posted = cookie;
        Ok(())
    }

    /// Waits for a control message.
    pub fn receive_control(&mut self) -> Outcome<Control> {
        let message = self.receive()?;
        self.as_control(message)
    }

    /// Sends a control message and waits until the peer reports `Done`.
    pub fn request(&mut self, control: Control) -> Outcome {
        self.send_control(control)?;
        match self.receive_control()? {
            Control::Done => Ok(()),
            Control::Mismatch { offset, found } => Err(Failure::new(format!(
                "the peer found {found:#04x} at byte {offset}, which is not what was sent"
            ))),
            other => Err(Failure::new(format!("the peer answered {other:?}"))),
        }
    }

    /// Sleeps until a control message arrives. `None` if the peer disconnected or `stop` returns true.
    pub fn next_command(&mut self, stop: impl Fn() -> bool) -> Outcome<Option<Control>> {
        if let Some(message) = self.early.take() {
            return self.as_control(message).map(Some);
        }
        while !stop() {
            if let Some(Event::Connection { kind: ConnectionKind::Disconnected, .. }) =
                self.connection.poll()?
            {
                return Ok(None);
            }
            let done = match self.buffered() {
                Some(done) => done,
                None => match self.dto.wait(Duration::from_millis(100))? {
                    Some(Event::Completion(done)) => done,
                    _ => continue,
                },
            };
            if !done.status.is_success() {
                return match self.connection.wait(REASON)? {
                    Some(Event::Connection { kind: ConnectionKind::Disconnected, .. }) => Ok(None),
                    event => Err(failed(done.status, event.as_ref())),
                };
            }
            if done.operation == DtoOperation::Receive {
                return self.as_control(Received { slot: done.cookie, length: done.length }).map(Some);
            }
            self.done = done.cookie;
        }
        Ok(None)
    }

    fn as_control(&self, message: Received) -> Outcome<Control> {
        let mut bytes = [0; CONTROL];
        self.copy(message, &mut bytes);
        self.release(message)?;
        let control = if message.length == CONTROL as u64 { Control::decode(&bytes) } else { None };
        control.ok_or_else(|| {
            Failure::new(format!(
                "a message of {} bytes came from the peer out of turn: {bytes:02x?}",
                message.length
            ))
        })
    }

    #[inline]
    pub(super) fn post_recv(&self, slot: u64) -> Outcome {
        Ok(self.ep.recv_into(&[self.receive_slices[slot as usize]]).cookie(slot).post()?)
    }

    #[inline]
    fn local_slice(&self, index: u32, length: u32) -> Slice {
        let start = (index as usize & (self.slots - 1)) * self.slot;
        self.messages.slice(start..start + length as usize)
    }

    #[inline]
    fn remote_slice(&self, index: u32, length: u32) -> RmrTriplet {
        let offset = (index as usize & (self.slots - 1)) * self.slot;
        RmrTriplet { address: self.remote.address + offset as u64, length, context: self.remote.context }
    }

    /// One completion: a message, or `None` for a request of our own.
    #[inline]
    fn next(&mut self, limit: Duration) -> Outcome<Option<Received>> {
        loop {
            if let Some(done) = self.buffered() {
                return self.record(&done);
            }
            self.take_completions(limit)?;
        }
    }

    /// Takes completions, one at least.
    #[inline]
    fn take_completions(&mut self, limit: Duration) -> Outcome {
        self.consumed = 0;
        self.completions.clear();
        let mut deadline = None;
        loop {
            if self.wait {
                if let Some(Event::Completion(done)) = self.dto.wait(Duration::from_millis(100))? {
                    self.completions.push(done);
                    return Ok(());
                }
            } else {
                for _ in 0..PATIENCE {
                    if self.dto.poll_completions(&mut self.completions)? > 0 {
                        return Ok(());
                    }
                }
            }
            self.check(&mut deadline, limit)?;
        }
    }

    /// The oldest completion that was taken and not consumed.
    #[inline]
    fn buffered(&mut self) -> Option<DtoCompletion> {
        let done = self.completions.get(self.consumed).copied()?;
        self.consumed += 1;
        Some(done)
    }

    /// The same, or a new one.
    fn poll(&mut self) -> Outcome<Option<DtoCompletion>> {
        if self.consumed == self.completions.len() {
            self.consumed = 0;
            self.completions.clear();
            self.dto.poll_completions(&mut self.completions)?;
        }
        Ok(self.buffered())
    }

    fn hold_early(&mut self, message: Received) -> Outcome {
        match self.early.replace(message) {
            None => Ok(()),
            Some(_) => Err(Failure::new("the peer sent a message out of turn")),
        }
    }

    #[inline]
    fn record(&mut self, done: &dat::DtoCompletion) -> Outcome<Option<Received>> {
        if !done.status.is_success() {
            let event = self.connection.wait(REASON)?;
            return Err(failed(done.status, event.as_ref()));
        }
        if done.operation == DtoOperation::Receive {
            return Ok(Some(Received { slot: done.cookie, length: done.length }));
        }
        // Requests complete in order, so this one includes all earlier, suppressed ones.
        self.done = done.cookie;
        Ok(None)
    }

    /// Checks connection and deadline during a wait.
    #[cold]
    fn check(&self, deadline: &mut Option<Instant>, limit: Duration) -> Outcome {
        if let Some(event) = self.connection.poll()? {
            return Err(Failure::new(format!("the connection ended: {}", describe(&event))));
        }
        let now = Instant::now();
        if now > *deadline.get_or_insert(now + limit) {
            return Err(Failure::new(format!(
                "the peer did nothing for {limit:?}; a longer --timeout may help"
            )));
        }
        Ok(())
    }
}
