//! Remote memory regions: memory windows, which give peers a part of a memory region and take it back (spec:
//! memory).

use std::sync::Arc;

use dat_plugin::host::Window;
use dat_plugin::{Access, Caps, Segment};
use dat_types::{
    CompletionFlags, Error, LmrTriplet, ObjectId, Privileges, Result, ReturnType, RmrTriplet, Subtype,
};
use parking_lot::Mutex;

use crate::adapter::inner::{Ia, IaInner};
use crate::adapter::object::{Kind, Life, object};
use crate::base::segments::segment_error;
use crate::base::{error, status_map};
use crate::ep::inner::Ep;
use crate::memory::lmr::{BoundRef, Lmr};
use crate::memory::pz::{Pz, PzRef};

/// A memory window.
#[derive(Clone)]
pub struct Rmr(pub(crate) Arc<RmrInner>);

pub(crate) struct RmrInner {
    life: Life,
    domain: u32,
    pz: Mutex<Option<PzRef>>,
    window: Mutex<Option<Window>>,
    bound: Mutex<Option<Bound>>,
}

const KIND: Kind = Kind { handle: Subtype::HandleRmr, name: "memory window" };

/// What a window is bound to.
struct Bound {
    lmr: BoundRef,
    range: LmrTriplet,
    privileges: Privileges,
    context: u32,
}

/// What `dat_rmr_query` tells.
#[derive(Clone, Debug)]
pub struct RmrParam {
    /// The IA.
    pub ia: ObjectId,
    /// The protection zone.
    pub pz: Pz,
    /// The range it is bound to, if it is.
    pub range: Option<LmrTriplet>,
    /// The remote rights it gives.
    pub privileges: Privileges,
    /// Key for peers; 0 while it is not bound.
    pub rmr_context: u32,
}

impl Ia {
    /// `dat_rmr_create`: a window of protection zone `pz`, not bound.
    pub fn rmr_create(&self, pz: &Pz) -> Result<Rmr> {
        const CALL: &str = "dat_rmr_create";
        let device = self.device(CALL)?;
        pz.check(CALL, self.inner.id)?;
        if !device.attr().caps.contains(Caps::WINDOWS) {
            return Err(error::unsupported(CALL, "this provider has no memory windows"));
        }
        let mut objects = self.inner.objects.lock();
        let max = device.attr().max_windows;
        if objects.of::<Rmr>().len() >= max as usize {
            let message = format!("the IA has at most {max} memory windows; free one first");
            return Err(error::resources(CALL, Subtype::ResourceMemoryRegion, message));
        }
        let window = device.open_window(pz.0.domain).map_err(|failure| error::provider(CALL, failure))?;
        let rmr = Rmr(Arc::new(RmrInner {
            life: Life::new(KIND, &self.inner),
            domain: pz.0.domain,
            pz: Mutex::new(Some(PzRef::new(pz))),
            window: Mutex::new(Some(window)),
            bound: Mutex::new(None),
        }));
        objects.of::<Rmr>().insert(rmr.0.life.id, rmr.clone());
        self.inner.count(dat_types::IaCounter::RmrCreate);
        Ok(rmr)
    }

    /// `dat_rmr_create_for_ep`: no provider of this interface limits a window to one endpoint, so it is
    /// `DAT_MODEL_NOT_SUPPORTED`, as the attribute `rmr_scope_supported` says.
    pub fn rmr_create_for_ep(&self, pz: &Pz) -> Result<Rmr> {
        const CALL: &str = "dat_rmr_create_for_ep";
        self.device(CALL)?;
        pz.check(CALL, self.inner.id)?;
        Err(error::unsupported(
            CALL,
            "windows are of a protection zone, not of an endpoint; use dat_rmr_create",
        ))
    }
}

impl Rmr {
    /// `dat_rmr_bind`: posts on `ep` the binding of the window to `length` bytes at `address` of `lmr`, or with a length
    /// of 0 its end. Gives the new context, which may be sent to the peer with the next message on `ep`; 0 when it is not
    /// bound to anything. The context before it is dead once the bind completed.
    #[allow(clippy::too_many_arguments, reason = "those of dat_rmr_bind")]
    pub fn bind(
        &self,
        lmr: Option<&Lmr>,
        address: u64,
        length: u32,
        privileges: Privileges,
        ep: &Ep,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<u32> {
        const CALL: &str = "dat_rmr_bind";
        self.checked(CALL)?;
        let ia = self.0.life.ia(CALL)?;
        ep.check(CALL, self.0.life.ia)?;
        let known = Privileges::ALL | Privileges::REMOTE_ATOMIC;
        let remote = privileges & REMOTE;
        if !known.contains(privileges) || (remote.is_empty() && !privileges.is_empty()) {
            let message = format!("privileges {privileges:?}; a window gives remote ones");
            return Err(error::parameter(CALL, Subtype::Arg4, message));
        }
        let range = match length {
            0 => None,
            _ => Some(self.range(&ia, lmr, address, length, remote)?),
        };
        let mut window = self.0.window.lock();
        let Some(handle) = window.as_mut() else { return Err(self.0.life.gone(CALL)) };
        let wire = range.as_ref().map(|(segment, _)| (*segment, status_map::access(remote)));
        let posted = ep.0.post_bind(CALL, (self.0.life.id, self.0.domain), handle, wire, cookie, flags)?;
        let Some(context) = posted else {
            // Flushed at once: the window is what it was.
            return Ok(0);
        };
        let bound = range.map(|(_, lmr)| Bound {
            range: LmrTriplet { address, length, context: lmr.context() },
            lmr: BoundRef::new(&lmr),
            privileges: remote,
            context,
        });
        ia.rebound(self, self.0.bound.lock().as_ref().map(|bound| bound.context), context);
        *self.0.bound.lock() = bound;
        Ok(context)
    }

    /// The range as registered memory, with the rights the window asks for.
    fn range(
        &self,
        ia: &IaInner,
        lmr: Option<&Lmr>,
        address: u64,
        length: u32,
        remote: Privileges,
    ) -> Result<(Segment, Lmr)> {
        const CALL: &str = "dat_rmr_bind";
        let Some(lmr) = lmr else {
            return Err(error::parameter(CALL, Subtype::Arg2, "no memory region to bind the window to"));
        };
        lmr.check(CALL, self.0.life.ia)?;
        let mut needed = Access::NONE;
        for (right, local) in [
            (Privileges::REMOTE_READ, Access::LOCAL_READ),
            (Privileges::REMOTE_WRITE, Access::LOCAL_WRITE),
            (Privileges::REMOTE_ATOMIC, Access::LOCAL_WRITE),
        ] {
            if remote.contains(right) {
                needed = needed | local;
            }
        }
        let segment = ia.spans.segment(lmr.context(), address, length, self.0.domain, needed);
        Ok((segment.map_err(|error| segment_error(CALL, error))?, lmr.clone()))
    }

    /// `dat_rmr_query`.
    pub fn query(&self) -> Result<RmrParam> {
        const CALL: &str = "dat_rmr_query";
        self.checked(CALL)?;
        let pz = self.0.pz.lock().as_ref().map(|pz| pz.0.clone()).ok_or_else(|| self.0.life.gone(CALL))?;
        let bound = self.0.bound.lock();
        let bound = bound.as_ref();
        Ok(RmrParam {
            ia: self.0.life.ia,
            pz,
            range: bound.map(|bound| bound.range),
            privileges: bound.map_or(Privileges::empty(), |bound| bound.privileges),
            rmr_context: bound.map_or(0, |bound| bound.context),
        })
    }

    /// `dat_rmr_free`, bound or not: its context is dead afterwards.
    pub fn free(&self) -> Result<()> {
        const CALL: &str = "dat_rmr_free";
        self.checked(CALL)?;
        // Of two threads that free it, one does.
        match self.kill() {
            true => Ok(()),
            false => Err(self.0.life.gone(CALL)),
        }
    }

    /// `false`: it was ended before.
    pub(crate) fn kill(&self) -> bool {
        if !self.0.life.end() {
            return false;
        }
        drop(self.0.window.lock().take());
        self.0.pz.lock().take();
        let bound = self.0.bound.lock().take();
        if let Some(ia) = self.0.life.owner.upgrade() {
            ia.rebound(self, bound.map(|bound| bound.context), 0);
            ia.objects.lock().of::<Rmr>().remove(&self.0.life.id);
            ia.count(dat_types::IaCounter::RmrFree);
        }
        true
    }

    /// A peer's message ended what it was bound to.
    fn invalidated(&self, context: u32) {
        let mut bound = self.0.bound.lock();
        if bound.as_ref().is_some_and(|bound| bound.context == context) {
            *bound = None;
        }
    }
}

object!(Rmr);

const REMOTE: Privileges =
    Privileges::REMOTE_READ.union(Privileges::REMOTE_WRITE).union(Privileges::REMOTE_ATOMIC);

/// A bound window as it is found by its context.
struct ByContext(Rmr);

impl ByContext {
    fn key(context: u32) -> ObjectId {
        ObjectId(context.into())
    }
}

impl IaInner {
    /// Windows are found by their context, for the operations that name one.
    fn rebound(&self, rmr: &Rmr, old: Option<u32>, new: u32) {
        let mut objects = self.objects.lock();
        let windows = objects.of::<ByContext>();
        if let Some(old) = old {
            windows.remove(&ByContext::key(old));
        }
        if new != 0 {
            windows.insert(ByContext::key(new), ByContext(rmr.clone()));
        }
    }

    /// A message ended the window of this context.
    pub(crate) fn window_ended(&self, context: u32) {
        let rmr = self.objects.lock().of::<ByContext>().remove(&ByContext::key(context));
        if let Some(ByContext(rmr)) = rmr {
            rmr.invalidated(context);
        }
    }

    /// The local memory under a window of this IA that may be written through it (`dat_ep_post_rdma_read_to_rmr`).
    pub(crate) fn window_sink(
        &self,
        call: &'static str,
        sink: RmrTriplet,
        domain: Option<u32>,
    ) -> Result<LmrTriplet> {
        let violation = |message| Error::fixed(call, ReturnType::PrivilegesViolation, Subtype::None, message);
        let key = ByContext::key(sink.context);
        let rmr = self.objects.lock().of::<ByContext>().get(&key).map(|known| known.0.clone());
        let rmr =
            rmr.ok_or_else(|| violation("the local context names no bound memory window of this IA"))?;
        if Some(rmr.0.domain) != domain {
            let (kind, subtype) = crate::base::segments::ZONE_MISMATCH;
            return Err(Error::fixed(call, kind, subtype, "the window is of another protection zone"));
        }
        let bound = rmr.0.bound.lock();
        let bound = bound.as_ref().filter(|bound| bound.context == sink.context);
        let bound = bound.ok_or_else(|| violation("the local window is not bound any more"))?;
        if !bound.privileges.contains(Privileges::REMOTE_WRITE) {
            return Err(violation("the local window gives no right to write"));
        }
        let offset = sink.address.checked_sub(bound.range.address);
        let end = offset.and_then(|offset| offset.checked_add(sink.length.into()));
        if end.is_none_or(|end| end > bound.range.length.into()) {
            return Err(error::parameter(
                call,
                Subtype::Arg2,
                "the sink reaches outside of its memory window",
            ));
        }
        Ok(LmrTriplet { address: sink.address, length: sink.length, context: bound.lmr.context() })
    }
}
