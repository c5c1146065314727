//! The channels of a device: made, looked after while they owe or wait for something, and dropped once libfabric knows
//! nothing of them any more.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dat_plugin::{ChannelAttr, Failure};

use super::Dev;
use crate::channel::{Chan, Page, Phase};
use crate::flow::Lull;
use crate::framed::Frames;
use crate::memory::Mr;
use crate::params::Endpoint;
use crate::queue::Que;
use crate::srq::Shared;
use crate::wire::MAX_CHANS;

impl Dev {
    pub fn new_chan(
        self: &Arc<Dev>,
        attr: &ChannelAttr,
        queues: [Option<Arc<Que>>; 2],
        srq: Option<Arc<Shared>>,
    ) -> Result<Arc<Chan>, Failure> {
        let page = Page::new(|addr, len| match self.params.endpoint {
            Endpoint::Rdm => Ok(None),
            Endpoint::Msg if self.fabric.limits.framed => Ok(None),
            Endpoint::Msg => {
                let key = self.regions.secret(self.fabric.limits.mr_key_size);
                let rights = libfabric_sys::consts::FI_REMOTE_WRITE;
                Mr::new(&self.fabric, addr, len, rights, key, std::ptr::null_mut()).map(Some).map_err(
                    |errno| {
                        crate::status::failure(
                            self.fabric.library,
                            "fi_mr_reg of a control page",
                            errno.into(),
                        )
                    },
                )
            }
        })?;
        let frames = match self.fabric.limits.framed {
            true => Some(Frames::new(&self.fabric, &self.regions)?),
            false => None,
        };
        let mut chans = self.chans.lock();
        let id = loop {
            let id = self.next_chan.fetch_add(1, Ordering::Relaxed) & (MAX_CHANS - 1);
            if id != 0 && !chans.contains_key(&id) {
                break id;
            }
        };
        let chan = Chan::new(self, id, attr, queues, srq, page, frames)?;
        chans.insert(id, chan.clone());
        drop(chans);
        self.look_from_now_on();
        Ok(chan)
    }

    pub fn channel_closed(&self, chan: &Chan) {
        self.open_chans.fetch_sub(1, Ordering::Relaxed);
        // Goes when libfabric has handed back all its operations, which somebody has to see.
        self.closed.lock().push(chan.id);
        self.hurry();
    }

    /// Puts a channel on the list of those to look after.
    pub fn list(&self, chan: Arc<Chan>) {
        self.listed.lock().push_back(chan);
        self.tick();
    }

    /// Looks after the listed channels: says what they owe, tries again what libfabric did not take.
    pub fn look_after_channels(&self, lull: Lull) {
        self.more.store(false, Ordering::Relaxed);
        let count = self.listed.lock().len();
        for _ in 0..count {
            // One at a time: a channel may list itself again.
            let Some(chan) = self.listed.lock().pop_front() else { return };
            chan.listed.store(false, Ordering::Release);
            let mut st = chan.lock();
            chan.pump(&mut st, lull);
        }
    }

    /// Drops channels the engine closed and libfabric knows nothing of any more.
    pub(super) fn reap(&self) {
        let mut closed = self.closed.lock();
        if closed.is_empty() {
            return;
        }
        // Nobody is handing completions to channels meanwhile.
        let reader = self.reader.lock();
        let mut gone = Vec::new();
        closed.retain(|id| {
            let mut chans = self.chans.lock();
            let free =
                chans.get(id).is_none_or(|chan| chan.state.try_lock().is_some_and(|st| st.inflight == 0));
            if free && let Some(chan) = chans.remove(id) {
                gone.push(chan);
            }
            !free
        });
        drop(reader);
        drop(closed);
        drop(gone);
    }
}

impl Chan {
    /// Puts it on the device's list.
    pub fn list(&self) {
        if !self.listed.swap(true, Ordering::AcqRel)
            && let Some(chan) = self.arc()
        {
            self.dev.list(chan);
        }
    }

    pub(super) fn look_for_life(&self, lives: u32) {
        let mut st = self.lock();
        if !matches!(st.phase, Phase::Up | Phase::Accepting) {
            return;
        }
        if self.heard.swap(false, Ordering::Relaxed) {
            st.silence = 0;
            return;
        }
        st.silence += 1;
        if st.silence >= lives {
            tracing::warn!(channel = self.id, "the peer is silent; the connection is broken");
            return self.end(&mut st, dat_plugin::EventKind::BROKEN, &[], None);
        }
        match (&self.dev.datagrams, st.link) {
            (Some(datagrams), Some(link)) => {
                datagrams.ask_for_life(&self.dev, self.id, link.dest, (st.peer, st.peer_secret));
            }
            _ => st.owed.ping = true,
        }
        self.pump(&mut st, Lull::Long);
    }
}
