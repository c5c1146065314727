//! Which completion queue a channel uses.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::fabric::Fabric;
use crate::fabric::cq::{Cq, NEAR_CHANS};

/// A channel's use of a completion queue. A queue without users is not polled.
#[derive(Debug)]
pub struct CqShare {
    fabric: Arc<Fabric>,
    near: bool,
}

impl CqShare {
    /// Uses the near queue if it has room, else the far one.
    pub fn take(fabric: &Arc<Fabric>) -> CqShare {
        let near = fabric.near.as_ref().is_some_and(|near| {
            let before = near.users.fetch_add(1, Ordering::Relaxed);
            if before >= NEAR_CHANS {
                near.users.fetch_sub(1, Ordering::Relaxed);
            }
            before < NEAR_CHANS
        });
        let this = CqShare { fabric: fabric.clone(), near };
        if !near {
            this.cq().users.fetch_add(1, Ordering::Relaxed);
        }
        this
    }

    pub fn cq(&self) -> &Cq {
        match &self.fabric.near {
            Some(near) if self.near => near,
            _ => &self.fabric.far,
        }
    }
}

impl Drop for CqShare {
    fn drop(&mut self) {
        self.cq().users.fetch_sub(1, Ordering::Relaxed);
    }
}
