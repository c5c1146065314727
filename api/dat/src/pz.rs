//! Protection zones.

use std::sync::Arc;

use dat_types::{ObjectId, Result};

use crate::Ia;

/// A protection zone: memory in it is usable through endpoints in it only. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Pz(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) engine: dat_engine::Pz,
    pub(crate) ia: Ia,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Fails only when the adapter was closed under it; then there is nothing left to free.
        let _ = self.engine.free();
    }
}

impl Ia {
    /// A new protection zone.
    pub fn pz(&self) -> Result<Pz> {
        Pz::new(self)
    }
}

impl Pz {
    fn new(ia: &Ia) -> Result<Pz> {
        Ok(Pz(Arc::new(Inner { engine: ia.engine.pz_create()?, ia: ia.clone() })))
    }

    /// Its id.
    pub fn id(&self) -> ObjectId {
        self.0.engine.id()
    }

    pub(crate) fn inner(&self) -> &dat_engine::Pz {
        &self.0.engine
    }

    /// The layer below.
    ///
    /// # Safety
    /// As [`Ia::engine`].
    pub unsafe fn engine(&self) -> &dat_engine::Pz {
        &self.0.engine
    }
}
