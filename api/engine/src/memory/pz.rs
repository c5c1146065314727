//! Protection zones.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use dat_types::{IaCounter, ObjectId, Result, Subtype};

use crate::adapter::inner::{Ia, IaInner};
use crate::adapter::object::{Kind, Life, object};
use crate::base::error;

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

impl Ia {
    /// `dat_pz_create`.
    pub fn pz_create(&self) -> Result<Pz> {
        self.device("dat_pz_create")?;
        let pz = Pz::new(&self.inner);
        self.inner.objects.lock().of::<Pz>().insert(pz.id(), pz.clone());
        self.inner.count(IaCounter::PzCreate);
        Ok(pz)
    }
}

impl Pz {
    pub(crate) fn new(ia: &Arc<IaInner>) -> Pz {
        static NEXT_DOMAIN: AtomicU32 = AtomicU32::new(1);
        Pz(Arc::new(PzInner {
            life: Life::new(KIND, ia),
            domain: NEXT_DOMAIN.fetch_add(1, Ordering::Relaxed),
            users: AtomicUsize::new(0),
        }))
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
            ia.objects.lock().of::<Pz>().remove(&self.0.life.id);
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
}

object!(Pz);

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
