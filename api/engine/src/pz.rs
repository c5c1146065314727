//! Protection zones.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use dat_types::{IaCounter, ObjectId, Result, ReturnType, Subtype};

use crate::context::{Context, object_calls};
use crate::error;
use crate::ia::IaInner;
use crate::life::{Kind, Life};

/// A protection zone: registered memory is usable through endpoints of the same zone only.
#[derive(Clone)]
pub struct Pz(pub(crate) Arc<PzInner>);

pub(crate) struct PzInner {
    pub(crate) life: Life,
    /// The number the provider knows it by.
    pub(crate) domain: u32,
    pub(crate) users: AtomicUsize,
}

const KIND: Kind = Kind { handle: Subtype::HandlePz, name: "protection zone" };

impl Pz {
    pub(crate) fn new(ia: &Arc<IaInner>) -> Pz {
        static NEXT_DOMAIN: AtomicU32 = AtomicU32::new(1);
        Pz(Arc::new(PzInner {
            life: Life::new(KIND, ia),
            domain: NEXT_DOMAIN.fetch_add(1, Ordering::Relaxed),
            users: AtomicUsize::new(0),
        }))
    }

    /// Its id.
    pub fn id(&self) -> ObjectId {
        self.0.life.id
    }

    /// The id of its IA (`dat_pz_query`).
    pub fn ia(&self) -> Result<ObjectId> {
        self.checked("dat_pz_query")?;
        Ok(self.0.life.ia)
    }

    /// `dat_pz_free`. `DAT_INVALID_STATE` while an endpoint or registration uses it.
    pub fn free(&self) -> Result<()> {
        const CALL: &str = "dat_pz_free";
        self.checked(CALL)?;
        let users = self.0.users.load(Ordering::Acquire);
        if users > 0 {
            let message = format!(
                "{users} endpoints or registrations use protection zone {}; free them first",
                self.0.life.id
            );
            return Err(error::state(CALL, Subtype::PzInUse, message));
        }
        // Of two threads that free it, one does.
        if !self.0.life.end() {
            return Err(self.0.life.gone(CALL));
        }
        if let Some(ia) = self.0.life.owner.upgrade() {
            ia.objects.lock().pzs.remove(&self.0.life.id);
            ia.count(IaCounter::PzFree);
        }
        Ok(())
    }

    /// Fails unless alive and of `ia`.
    pub(crate) fn check(&self, call: &'static str, ia: ObjectId) -> Result<()> {
        self.0.life.check_of(call, ia)
    }

    pub(crate) fn kill(&self) {
        self.0.life.end();
    }

    fn checked(&self, call: &'static str) -> Result<&Context> {
        self.0.life.check(call)
    }
}

object_calls!(Pz, Pz);

impl std::fmt::Debug for Pz {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pz({})", self.0.life.id)
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
