//! A dispatcher and its notification object.

use std::sync::Arc;

use dat_types::{EvdFlags, Result, Subtype};
use rustix::event::epoll;

use super::{Core, Evd, EvdInner, Gate};
use crate::cno::Cno;
use crate::ia::Ia;
use crate::sequel::{self, Sequels};

impl Ia {
    /// `dat_evd_create` with a notification object.
    pub fn evd_create_with_cno(&self, min_qlen: i32, cno: Option<&Cno>, flags: EvdFlags) -> Result<Evd> {
        const CALL: &str = "dat_evd_create";
        if let Some(cno) = cno {
            self.device(CALL)?;
            cno.check(CALL, self.inner.id)?;
        }
        let evd = self.evd_create(min_qlen, flags)?;
        if cno.is_some() {
            evd.modify_cno(cno).inspect_err(|_| {
                // It was freed meanwhile.
                let _ = evd.free();
            })?;
        }
        Ok(evd)
    }
}

impl Evd {
    /// `dat_evd_modify_cno`: what later notifications trigger; `None` for nothing.
    pub fn modify_cno(&self, cno: Option<&Cno>) -> Result<()> {
        const CALL: &str = "dat_evd_modify_cno";
        self.check(CALL, self.0.ia, Subtype::Handle1)?;
        if let Some(cno) = cno {
            cno.check(CALL, self.0.ia)?;
        }
        let mut sequels = Sequels::new();
        let mut core = self.0.core.lock();
        // What is there already is of before.
        self.0.harvest(&mut core, &mut sequels);
        let old = std::mem::replace(&mut core.cno, cno.cloned());
        core.unattended = false;
        if let Some(old) = &old {
            old.0.detach(self.0.id, false);
        }
        if let Some(new) = cno {
            new.0.attach(&self.0);
        }
        drop(core);
        sequel::perform(sequels);
        if cno.is_some() {
            self.0.attend();
        }
        Ok(())
    }
}

impl EvdInner {
    /// Notifications arrived: triggers the object, unless the dispatcher is disabled or somebody waits on it directly.
    #[inline]
    pub(crate) fn notified(&self, core: &Core) {
        if let Some(cno) = &core.cno {
            self.trigger(core, cno);
        }
    }

    #[cold]
    fn trigger(&self, core: &Core, cno: &Cno) {
        if core.enabled && core.gate == Gate::Open {
            cno.0.raise(self.id);
        }
    }

    /// Takes what the provider has, so that notifications trigger.
    pub(crate) fn look(&self) {
        let mut sequels = Sequels::new();
        let mut core = self.core.lock();
        if core.gate == Gate::Open {
            self.harvest(&mut core, &mut sequels);
        }
        drop(core);
        sequel::perform(sequels);
    }

    /// Has the IA's thread notice the next completion, and takes those there are already.
    pub(crate) fn attend(self: &Arc<EvdInner>) {
        let mut sequels = Sequels::new();
        let mut core = self.core.lock();
        let Some(queue) = core.queue() else { return };
        if core.gate != Gate::Open || core.cno.is_none() {
            // A direct waiter has it; it attends to it again when it leaves.
            return;
        }
        queue.disarm();
        self.harvest(&mut core, &mut sequels);
        core.unattended = core.has_raw() || !queue.arm();
        let unattended = core.unattended;
        drop(core);
        sequel::perform(sequels);
        let Some(ia) = self.owner.upgrade() else { return };
        if let Some(fd) = queue.fd() {
            ia.progress.attend(fd, self.id);
        }
        if unattended {
            // It is full, so there may always be more: looked at by time until it is not.
            ia.progress.watch(&Evd(self.clone()));
        }
    }
}

/// Once readable it stays quiet until it is attended to again.
pub(crate) const ONE_SHOT: epoll::EventFlags = epoll::EventFlags::IN.union(epoll::EventFlags::ONESHOT);
