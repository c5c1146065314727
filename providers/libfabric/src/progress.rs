//! Taking completions from the fabric and handing each to the channel it belongs to. Whoever polls does it, for all; one
//! thread at a time.

use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

use libfabric_sys::consts::*;
use libfabric_sys::inline::{fi_cq_read, fi_cq_readerr};
use libfabric_sys::types::{cq_err_room, fi_cq_data_entry, fi_cq_err_entry, fi_cq_tagged_entry};

use crate::cq::Cq;
use crate::device::Dev;
use crate::wire::read_doorbell;
use crate::work::{Context, Role};

/// What the thread that takes completions needs, and only it.
pub struct Reader {
    entries: Box<[MaybeUninit<fi_cq_tagged_entry>; BATCH]>,
    error_data: Box<[u8; 512]>,
}

// SAFETY: the entries' pointers are looked at only by who has the lock, right after reading.
unsafe impl Send for Reader {}

const BATCH: usize = 32;

impl Reader {
    pub fn new() -> Reader {
        Reader { entries: Box::new([const { MaybeUninit::uninit() }; BATCH]), error_data: Box::new([0; 512]) }
    }
}

impl Dev {
    /// Takes what completions there are, at most a batch; how many. 0 also when another thread is at it.
    pub fn progress(&self) -> usize {
        self.reader.try_lock().map_or(0, |mut reader| self.read(&mut reader))
    }

    /// The same, after another thread that is at it. Not for who holds a channel's lock.
    pub fn progress_now(&self) -> usize {
        self.read(&mut self.reader.lock())
    }

    fn read(&self, reader: &mut Reader) -> usize {
        let mut taken = 0;
        for queue in self.fabric.queues() {
            taken += self.read_one(queue, reader);
            queue.keep_watching();
        }
        taken
    }

    fn read_one(&self, queue: &Cq, reader: &mut Reader) -> usize {
        // SAFETY: room for `BATCH` entries of the format the queue was opened with.
        let count = unsafe { fi_cq_read(queue.cq, reader.entries.as_mut_ptr().cast(), BATCH) };
        if count > 0 {
            let first = reader.entries.as_ptr().cast::<u8>();
            for at in 0..count as usize {
                // SAFETY: libfabric filled so many, of the size of the queue's format, which begins so.
                self.on_completion(unsafe { &*first.add(at * self.fabric.limits.entry_size()).cast() });
            }
            return count as usize;
        }
        match count as i32 {
            error if error == -FI_EAVAIL => self.take_error(queue, reader),
            error if error == -libc::EAGAIN || error == 0 => 0,
            error => {
                tracing::error!(error, "fi_cq_read");
                0
            }
        }
    }

    fn take_error(&self, queue: &Cq, reader: &mut Reader) -> usize {
        let entry = fi_cq_err_entry {
            op_context: std::ptr::null_mut(),
            flags: 0,
            len: 0,
            buf: std::ptr::null_mut(),
            data: 0,
            tag: 0,
            olen: 0,
            err: 0,
            prov_errno: 0,
            err_data: reader.error_data.as_mut_ptr().cast(),
            err_data_size: reader.error_data.len(),
        };
        let mut room = cq_err_room { entry, room: [0; 16] };
        // SAFETY: more room than the entry of any release, and a buffer of the length that is said.
        let count = unsafe { fi_cq_readerr(queue.cq, &mut room.entry, 0) };
        if count <= 0 {
            return 0;
        }
        let entry = &room.entry;
        if entry.err != libc::ECANCELED {
            tracing::debug!(error = %self.fabric.words(queue, entry), "an operation failed");
        }
        if entry.flags & FI_REMOTE_WRITE == 0 && !entry.op_context.is_null() {
            // SAFETY: operations are given contexts of channels and frames, which live as long as operations are out.
            let context = unsafe { Context::from_ptr(entry.op_context) };
            self.hand_over(context, Err(self.fabric.errno_of(entry).abs().max(1)), 0);
        }
        1
    }

    fn on_completion(&self, entry: &fi_cq_data_entry) {
        if entry.flags & FI_REMOTE_WRITE != 0 {
            // A peer's doorbell; its context means nothing.
            if let Some((bell, id, arg)) = read_doorbell(entry.data)
                && let Some(chan) = self.chan(id)
            {
                chan.heard.store(true, Ordering::Relaxed);
                let payload = chan.page.read(bell.slot());
                chan.on_bell(&mut chan.lock(), bell, arg, &payload);
            }
            return;
        }
        if entry.op_context.is_null() {
            return;
        }
        // SAFETY: as for errors.
        let context = unsafe { Context::from_ptr(entry.op_context) };
        let data = if entry.flags & FI_REMOTE_CQ_DATA != 0 { entry.data } else { 0 };
        self.hand_over(context, Ok(entry.len), data);
    }

    fn hand_over(&self, context: &Context, result: Result<usize, i32>, data: u64) {
        match (context.role, context.chan()) {
            (Role::FrameIn, None) => {
                if let Some(datagrams) = &self.datagrams {
                    datagrams.on_frame_in(self, context.index, result);
                }
            }
            (Role::FrameOut, None) => {
                if let Some(datagrams) = &self.datagrams {
                    datagrams.on_frame_out(self, context.index, result.err());
                }
            }
            (role, Some(chan)) => chan.on_operation(role, context.index, result.map(|len| (len, data))),
            (_, None) => {}
        }
    }
}
