//! An endpoint tied to a service point or held by a request: RESERVED, PASSIVE and TENTATIVE.

use std::net::SocketAddr;
use std::sync::Arc;

use dat_types::{EpState, Result};

use super::inner::{Control, EpInner};
use crate::base::states::{Operation, Verdict, verdict};

impl EpInner {
    /// `dat_rsp_create` names it.
    pub(crate) fn reserve(&self, call: &'static str) -> Result<()> {
        let mut control = self.control(call)?;
        match verdict(Operation::Reserve, control.state) {
            Verdict::To(state) => {
                self.go(&mut control, state);
                Ok(())
            }
            _ => Err(self.wrong_state(call, control.state)),
        }
    }

    /// Its service point is gone; means nothing once the request has come.
    pub(crate) fn unreserve(&self) {
        let mut control = self.control.lock();
        if let Verdict::To(state) = verdict(Operation::Unreserve, control.state) {
            self.go(&mut control, state);
        }
    }

    /// A request arrives that holds it. `false`: it is free no more.
    pub(crate) fn hold(&self, peer: Option<SocketAddr>, peer_port: u64, conn_qual: u64) -> bool {
        let mut control = self.control.lock();
        match verdict(Operation::Hold, control.state) {
            _ if control.freed => return false,
            Verdict::To(state) => self.go(&mut control, state),
            Verdict::Ok => {}
            _ => return false,
        }
        control.remote = peer;
        control.remote_port = peer_port;
        control.local_port = conn_qual;
        true
    }

    /// The request could not be delivered: back to waiting for one.
    pub(crate) fn unhold(&self) {
        let mut control = self.control.lock();
        if control.state == EpState::PassiveConnectionPending {
            forget_peer(&mut control);
            self.go(&mut control, EpState::Reserved);
        }
    }

    /// The request that holds it was rejected or handed off: the consumer's endpoint is free again, one made for the
    /// request is gone.
    pub(crate) fn release(self: &Arc<EpInner>) {
        let mut control = self.control.lock();
        match verdict(Operation::Release, control.state) {
            Verdict::To(state) => {
                forget_peer(&mut control);
                self.go(&mut control, state);
            }
            Verdict::Destroy => {
                drop(control);
                self.end();
            }
            _ => {}
        }
    }

    fn go(&self, control: &mut Control, state: EpState) {
        let mut side = self.post.lock();
        self.enter(control, &mut side, state);
    }
}

fn forget_peer(control: &mut Control) {
    control.remote = None;
    control.remote_port = 0;
    control.local_port = 0;
}
