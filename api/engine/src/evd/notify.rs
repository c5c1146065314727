//! A dispatcher and its notification object.

use std::sync::Arc;

use dat_types::{EvdFlags, ObjectId, Result, Subtype};

use super::core::{Core, QueueState};
use super::inner::{Evd, EvdInner};
use crate::adapter::inner::Ia;
use crate::adapter::progress::mailbox::Watched;
use crate::base::deferred;
use crate::base::deferred::DeferredList;
use crate::cno::{Cno, Dispatcher};

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
        let mut deferred = DeferredList::new();
        let mut core = self.0.core.lock();
        // What is there already is of before.
        self.0.drain(&mut core, &mut deferred);
        let old = std::mem::replace(&mut core.cno, cno.cloned());
        core.unarmed = false;
        if let Some(old) = &old {
            old.0.detach(self.0.id, false);
        }
        if let Some(new) = cno {
            let dispatcher = Arc::downgrade(&self.0);
            new.0.attach(self.0.id, dispatcher);
        }
        drop(core);
        deferred::run(deferred);
        if cno.is_some() {
            self.0.attend();
        }
        Ok(())
    }
}

impl EvdInner {
    /// Notifications arrived: triggers the object, unless the dispatcher is disabled or a thread waits on it directly.
    #[inline]
    pub(crate) fn notified(&self, core: &Core) {
        if let Some(cno) = &core.cno {
            self.trigger(core, cno);
        }
    }

    #[cold]
    fn trigger(&self, core: &Core, cno: &Cno) {
        if core.enabled && core.state == QueueState::Open {
            cno.0.raise(self.id);
        }
    }

    /// Has the IA's thread notice the next completion, and takes those there are already.
    pub(crate) fn attend(self: &Arc<EvdInner>) {
        let mut deferred = DeferredList::new();
        let mut core = self.core.lock();
        let Some(queue) = core.queue() else { return };
        if core.state != QueueState::Open || core.cno.is_none() {
            // A direct waiter has it; it attends to it again when it leaves.
            return;
        }
        queue.disarm();
        self.drain(&mut core, &mut deferred);
        core.unarmed = core.has_raw() || !queue.arm();
        let unarmed = core.unarmed;
        drop(core);
        deferred::run(deferred);
        let Some(ia) = self.owner.upgrade() else { return };
        if let Some(fd) = queue.fd() {
            ia.progress.attend(fd, self.id);
        }
        if unarmed {
            // It is full, so there may always be more: looked at by time until it is not.
            ia.progress.watch(self.clone());
        }
    }
}

impl Dispatcher for EvdInner {
    fn look(&self) {
        let mut deferred = DeferredList::new();
        let mut core = self.core.lock();
        if core.state == QueueState::Open {
            self.drain(&mut core, &mut deferred);
        }
        drop(core);
        deferred::run(deferred);
    }
}

impl Watched for EvdInner {
    fn id(&self) -> ObjectId {
        self.id
    }

    fn tick(&self) -> bool {
        let mut deferred = DeferredList::new();
        let draining: Vec<_> = self.core.lock().draining().map(|source| source.ep.clone()).collect();
        for ep in draining {
            ep.report_unsignalled();
        }
        let keep = {
            let mut core = self.core.lock();
            self.drain(&mut core, &mut deferred);
            if core.unarmed {
                core.unarmed = core.has_raw() || !core.arm_queue();
            }
            let keep = core.is_watched() || core.unarmed;
            if keep && !core.armed {
                // For the provider's sake: an armed queue means that a thread waits, so that a peer whose application
                // does not poll is made to take what was sent to it.
                core.arm_queue();
            }
            keep
        };
        deferred::run(deferred);
        keep
    }
}
