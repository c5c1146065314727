//! Takes completions from the fabric and hands each to the channel it belongs to. Any thread that polls does this for all
//! channels; one thread at a time.

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dat_sync::Lock;
use libfabric_sys::consts::*;
use libfabric_sys::inline::{fi_cq_read, fi_cq_readerr};
use libfabric_sys::types::{cq_err_room, fi_cq_data_entry, fi_cq_err_entry, fi_cq_tagged_entry};

use crate::channel::ChannelInner;
use crate::channel::table::ChannelTable;
use crate::core::Core;
use crate::datagram::Datagrams;
use crate::endpoint::context::{Context, Role};
use crate::fabric::cq::Cq;
use crate::wire::control::decode_doorbell;

/// Reads the completion queues of a device.
pub struct Progress {
    core: Arc<Core>,
    channels: Arc<ChannelTable>,
    datagrams: Option<Arc<Datagrams>>,
    reader: Lock<Reader>,
}

/// The memory that a thread reads completions into.
struct Reader {
    entries: Box<[MaybeUninit<fi_cq_tagged_entry>; BATCH]>,
    error_data: Box<[u8; 512]>,
}

// SAFETY: only the holder of the lock uses the entries' pointers, and only until it releases the lock.
unsafe impl Send for Reader {}

const BATCH: usize = 32;

/// Most batches of one call.
const MAX_BATCHES: usize = 64;

impl Progress {
    pub fn new(
        core: &Arc<Core>,
        channels: &Arc<ChannelTable>,
        datagrams: &Option<Arc<Datagrams>>,
    ) -> Arc<Progress> {
        let reader = Reader {
            entries: Box::new([const { MaybeUninit::uninit() }; BATCH]),
            error_data: Box::new([0; 512]),
        };
        Arc::new(Progress {
            core: core.clone(),
            channels: channels.clone(),
            datagrams: datagrams.clone(),
            reader: Lock::new(reader),
        })
    }

    /// Takes at most one batch of completions and returns its size; 0 also if another thread is reading.
    pub fn once(&self) -> usize {
        self.reader.try_lock().map_or(0, |mut reader| self.read(&mut reader))
    }

    /// The same; waits for another thread that is reading. The caller holds no channel's lock.
    pub fn once_waiting(&self) -> usize {
        self.read(&mut self.reader.lock())
    }

    /// Takes completions until there are none, up to a limit.
    pub fn all(&self) -> usize {
        let mut all = 0;
        for _ in 0..MAX_BATCHES {
            match self.once() {
                0 => break,
                some => all += some,
            }
        }
        all
    }

    /// The same; waits for another thread that is reading. Completions that were there before the call are taken when it
    /// returns. The caller holds no channel's lock.
    pub fn all_waiting(&self) {
        for _ in 0..MAX_BATCHES {
            if self.once_waiting() == 0 {
                break;
            }
        }
    }

    /// Whether a thread may sleep until the fabric wakes it, or the event thread where the fabric wakes none. `false`:
    /// there was something to read, or is.
    pub fn may_sleep(&self) -> bool {
        if !self.core.fabric.wakes() {
            return self.once() == 0;
        }
        // libfabric changes the set of sockets while it reads.
        let _reader = self.reader.lock();
        self.core.fabric.may_wait_for_completions() && {
            self.core.fabric.watch();
            true
        }
    }

    /// Drops closed channels that libfabric has let go of. No thread hands out completions meanwhile.
    pub fn drop_closed_channels(&self) {
        if self.channels.has_closed() {
            let reader = self.reader.lock();
            let gone = self.channels.take_closed();
            drop(reader);
            drop(gone);
        }
    }

    fn read(&self, reader: &mut Reader) -> usize {
        let mut taken = 0;
        for queue in self.core.fabric.queues() {
            taken += self.read_one(queue, reader);
            queue.keep_watching();
        }
        taken
    }

    fn read_one(&self, queue: &Cq, reader: &mut Reader) -> usize {
        // SAFETY: the fabric keeps the queue open; there is room for `BATCH` entries of its format or a longer one.
        let count = unsafe { fi_cq_read(queue.cq, reader.entries.as_mut_ptr().cast(), BATCH) };
        if count > 0 {
            let first = reader.entries.as_ptr().cast::<u8>();
            for at in 0..count as usize {
                // SAFETY: libfabric filled `count` entries of the queue's format, which starts with these fields.
                self.on_completion(unsafe { &*first.add(at * self.core.fabric.limits.entry_size()).cast() });
            }
            return count as usize;
        }
        match count as i32 {
            error if error == -FI_EAVAIL => self.take_error(queue, reader),
            error if error == -libc::EAGAIN || error == 0 => 0,
            error => {
                tracing::error!(error, "fi_cq_read failed");
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
        // SAFETY: `room` is longer than the entry of any release, and `error_data` has the length given in it.
        let count = unsafe { fi_cq_readerr(queue.cq, &mut room.entry, 0) };
        if count <= 0 {
            return 0;
        }
        let entry = &room.entry;
        if entry.err != libc::ECANCELED {
            tracing::debug!(error = %self.core.fabric.error_text(queue, entry), "an operation failed");
        }
        if entry.flags & FI_REMOTE_WRITE == 0 && !entry.op_context.is_null() {
            // SAFETY: operations have contexts of channels and frames, which live until libfabric handed them back.
            let context = unsafe { Context::from_ptr(entry.op_context) };
            self.dispatch(context, Err(self.core.fabric.errno_of(entry).abs().max(1)), 0);
        }
        1
    }

    fn on_completion(&self, entry: &fi_cq_data_entry) {
        if entry.flags & FI_REMOTE_WRITE != 0 {
            // A control message of a peer. Its context is undefined.
            if let Some((control, id, arg)) = decode_doorbell(entry.data)
                && let Some(channel) = self.channels.get(id)
            {
                channel.heard.store(true, Ordering::Relaxed);
                let payload = channel.page.read(control.slot());
                channel.on_control(&mut channel.lock(), control, arg, &payload);
            }
            return;
        }
        if entry.op_context.is_null() {
            return;
        }
        // SAFETY: operations have contexts of channels and frames, which live until libfabric handed them back.
        let context = unsafe { Context::from_ptr(entry.op_context) };
        let data = if entry.flags & FI_REMOTE_CQ_DATA != 0 { entry.data } else { 0 };
        self.dispatch(context, Ok(entry.len), data);
    }

    fn dispatch(&self, context: &Context, result: Result<usize, i32>, data: u64) {
        // SAFETY: null, or the channel that the context is part of: `ChannelInner::new` sets it. The channel lives until
        // libfabric has handed back its operations, and is dropped only under the reader's lock, which is held.
        let channel = unsafe { context.owner().cast::<ChannelInner>().as_ref() };
        match (context.role, channel) {
            (Role::FrameIn, None) => {
                if let Some(datagrams) = &self.datagrams {
                    datagrams.on_frame_in(context.index, result);
                }
            }
            (Role::FrameOut, None) => {
                if let Some(datagrams) = &self.datagrams {
                    datagrams.on_frame_out(context.index, result.err());
                }
            }
            (role, Some(channel)) => {
                channel.on_operation(role, context.index, result.map(|len| (len, data)));
            }
            (_, None) => {}
        }
    }
}
