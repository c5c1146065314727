//! Protection zones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use dat_plugin::host::ForkGuard;
use dat_types::{IaCounter, ObjectId, Result, ReturnType, Subtype};

use crate::context::{Context, object_calls};
use crate::error;
use crate::ia::IaInner;

/// A protection zone: registered memory is usable through endpoints of the same zone only.
#[derive(Clone)]
pub struct Pz(pub(crate) Arc<PzInner>);

pub(crate) struct PzInner {
    pub(crate) id: ObjectId,
    pub(crate) ia: ObjectId,
    owner: std::sync::Weak<IaInner>,
    /// The number the provider knows it by.
    pub(crate) domain: u32,
    pub(crate) users: AtomicUsize,
    alive: AtomicBool,
    fork: ForkGuard,
    context: Context,
}

impl Pz {
    pub(crate) fn new(ia: &Arc<IaInner>) -> Pz {
        static NEXT_DOMAIN: AtomicU32 = AtomicU32::new(1);
        Pz(Arc::new(PzInner {
            id: crate::next_id(),
            ia: ia.id,
            owner: Arc::downgrade(ia),
            domain: NEXT_DOMAIN.fetch_add(1, Ordering::Relaxed),
            users: AtomicUsize::new(0),
            alive: AtomicBool::new(true),
            fork: ForkGuard::new(),
            context: Context::default(),
        }))
    }

    /// Its id.
    pub fn id(&self) -> ObjectId {
        self.0.id
    }

    /// The id of its IA (`dat_pz_query`).
    pub fn ia(&self) -> Result<ObjectId> {
        self.check("dat_pz_query", self.0.ia)?;
        Ok(self.0.ia)
    }

    /// `dat_pz_free`. `DAT_INVALID_STATE` while an endpoint or registration uses it.
    pub fn free(&self) -> Result<()> {
        const CALL: &str = "dat_pz_free";
        self.check(CALL, self.0.ia)?;
        let users = self.0.users.load(Ordering::Acquire);
        if users > 0 {
            let message = format!(
                "{users} endpoints or registrations use protection zone {}; free them first",
                self.0.id
            );
            return Err(error::state(CALL, Subtype::PzInUse, message));
        }
        self.0.alive.store(false, Ordering::Release);
        if let Some(ia) = self.0.owner.upgrade() {
            ia.objects.lock().pzs.remove(&self.0.id);
            ia.count(IaCounter::PzFree);
        }
        Ok(())
    }

    /// Fails unless alive and of `ia`.
    pub(crate) fn check(&self, call: &'static str, ia: ObjectId) -> Result<()> {
        if self.0.fork.forked() {
            return Err(error::forked(call));
        }
        if !self.0.alive.load(Ordering::Acquire) {
            return Err(error::freed(call, Subtype::HandlePz, "protection zone", self.0.id));
        }
        if self.0.ia != ia {
            return Err(error::foreign(call, Subtype::HandlePz, "protection zone", self.0.id));
        }
        Ok(())
    }

    pub(crate) fn kill(&self) {
        self.0.alive.store(false, Ordering::Release);
    }

    fn checked(&self, call: &'static str) -> Result<&Context> {
        self.check(call, self.0.ia)?;
        Ok(&self.0.context)
    }
}

object_calls!(Pz, Pz);

impl std::fmt::Debug for Pz {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pz({})", self.0.id)
    }
}

/// A reference an object holds on its zone.
pub(crate) struct PzRef(pub(crate) Pz);

impl PzRef {
    pub(crate) fn new(pz: &Pz) -> PzRef {
        pz.0.users.fetch_add(1, Ordering::AcqRel);
        PzRef(pz.clone())
    }
}

impl Drop for PzRef {
    fn drop(&mut self) {
        self.0.0.users.fetch_sub(1, Ordering::AcqRel);
    }
}

/// `DAT_PROTECTION_VIOLATION`, without a sentence: posts return it.
pub(crate) const ZONE_MISMATCH: (ReturnType, Subtype) = (ReturnType::ProtectionViolation, Subtype::None);
