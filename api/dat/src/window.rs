//! Memory windows: access for peers to a part of a region, given and taken back by requests.

use std::sync::Arc;

use dat_engine::{Rmr, RmrParam};
use dat_types::{ObjectId, Result};

use crate::Pz;

/// A memory window (RMR), bound with [`crate::Ep::bind`]. Cheap to clone; freed with the last clone, which ends what it
/// is bound to.
#[derive(Clone, Debug)]
pub struct Window(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    engine: Rmr,
    _pz: Pz,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Fails only when the adapter was closed, or it was freed by hand.
        let _ = self.engine.free();
    }
}

impl Pz {
    /// A memory window, bound to nothing yet.
    pub fn window(&self) -> Result<Window> {
        Window::new(self)
    }
}

impl Window {
    fn new(pz: &Pz) -> Result<Window> {
        let engine = pz.0.ia.engine.rmr_create(pz.inner())?;
        Ok(Window(Arc::new(Inner { engine, _pz: pz.clone() })))
    }

    /// Its id; the completion of a binding carries it.
    pub fn id(&self) -> ObjectId {
        self.0.engine.id()
    }

    /// What it is bound to (`dat_rmr_query`).
    pub fn query(&self) -> Result<RmrParam> {
        self.0.engine.query()
    }

    pub(crate) fn inner(&self) -> &Rmr {
        &self.0.engine
    }

    /// The layer below.
    ///
    /// # Safety
    /// As [`crate::Ia::engine`].
    pub unsafe fn engine(&self) -> &Rmr {
        &self.0.engine
    }
}
