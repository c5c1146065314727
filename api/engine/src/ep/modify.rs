//! `dat_ep_modify`: which parameter may change in which state (spec: endpoint).

use dat_types::{Comm, EpAttr, Error, Result, ReturnType, Subtype};

use super::attr;
use super::attr::Wiring;
use super::inner::{Control, Ep, EpInner};
use super::mask::EpMask;
use crate::base::error;
use crate::base::states::{Operation, Verdict, verdict};
use crate::evd::inner::Evd;
use crate::memory::pz::{Pz, PzRef};

const NEVER: EpMask = EpMask::IA_HANDLE
    .union(EpMask::EP_STATE)
    .union(EpMask::LOCAL_IA_ADDRESS)
    .union(EpMask::LOCAL_PORT_QUAL)
    .union(EpMask::REMOTE_IA_ADDRESS)
    .union(EpMask::REMOTE_PORT_QUAL)
    .union(EpMask::SRQ_HANDLE);

/// New values; only those the mask names are looked at.
#[derive(Clone, Debug, Default)]
pub struct EpModify {
    /// Protection zone.
    pub pz: Option<Pz>,
    /// Where receives complete.
    pub recv_evd: Option<Evd>,
    /// Where requests complete.
    pub request_evd: Option<Evd>,
    /// Where connection events arrive.
    pub connect_evd: Option<Evd>,
    /// How it connects by socket address.
    pub comm: Comm,
    /// Attributes.
    pub attr: EpAttr,
}

impl Ep {
    /// `dat_ep_modify`: all that `mask` names, or nothing.
    pub fn modify(&self, mask: EpMask, new: &EpModify) -> Result<()> {
        const CALL: &str = "dat_ep_modify";
        let mut control = self.0.control(CALL)?;
        let undefined = mask.difference(EpMask::all());
        if !undefined.is_empty() {
            let message = format!("mask {:#x} has undefined bits {:#x}", mask.bits(), undefined.bits());
            return Err(error::parameter(CALL, Subtype::Arg2, message));
        }
        if mask.intersects(NEVER) {
            let message = format!("{:?} can never be modified", mask & NEVER);
            return Err(error::parameter(CALL, Subtype::Arg2, message));
        }
        self.0.check_modifiable(CALL, &control, mask)?;
        if mask.is_empty() {
            return Ok(());
        }
        self.0.change(CALL, &mut control, mask, new)?;
        drop(control);
        if mask.contains(EpMask::SRQ_SOFT_HW) {
            self.0.check_marks();
        }
        Ok(())
    }
}

impl EpInner {
    fn check_modifiable(&self, call: &'static str, control: &Control, mask: EpMask) -> Result<()> {
        let lists = EpMask::TRANSPORT_SPECIFIC | EpMask::PROVIDER_SPECIFIC | EpMask::COMM;
        let anywhere = EpMask::SRQ_SOFT_HW;
        let groups = [
            (mask & EpMask::PZ_HANDLE, Operation::ModifyPz),
            (mask & lists, Operation::ModifyLists),
            (mask - EpMask::PZ_HANDLE - lists - anywhere, Operation::ModifyAttr),
        ];
        for (asked, operation) in groups {
            if !asked.is_empty() && verdict(operation, control.state) != Verdict::Ok {
                let message =
                    format!("{asked:?} cannot be modified while endpoint {} is {}", self.id, control.state);
                return Err(error::state(call, control.state.subtype(), message));
            }
        }
        Ok(())
    }

    fn change(&self, call: &'static str, control: &mut Control, mask: EpMask, new: &EpModify) -> Result<()> {
        let ia = self.ia(call)?;
        // Handles inside the parameters are parameters: a bad one is no bad endpoint.
        let as_parameter = |error: Error| {
            let message = error.message().unwrap_or("bad handle").to_owned();
            Error::new(call, ReturnType::InvalidParameter, Subtype::Arg3, message)
        };
        if mask.contains(EpMask::PZ_HANDLE)
            && let Some(pz) = &new.pz
        {
            pz.check(call, self.ia).map_err(as_parameter)?;
        }
        let pick = |bit: EpMask, new: &Option<Evd>, old: &Option<Evd>| match mask.contains(bit) {
            true => new.clone(),
            false => old.clone(),
        };
        let wiring = Wiring {
            recv: pick(EpMask::RECV_EVD_HANDLE, &new.recv_evd, &control.wiring.recv),
            request: pick(EpMask::REQUEST_EVD_HANDLE, &new.request_evd, &control.wiring.request),
            connect: pick(EpMask::CONNECT_EVD_HANDLE, &new.connect_evd, &control.wiring.connect),
        };
        wiring.check_handles(call, &ia).map_err(as_parameter)?;
        let mut wanted = merged(&control.attr, &new.attr, mask);
        if control.defaulted {
            fill_in(&mut wanted, &attr::defaults(&ia, &wiring), mask);
        }
        attr::check(call, &ia, &wanted, &wiring, self.srq.is_some(), ReturnType::InvalidParameter)?;
        let mut side = self.post.lock();
        let posted = side.recvs.outstanding();
        if posted > 0 && wanted.recv_completion_flags != control.attr.recv_completion_flags {
            let message = format!("{posted} receives are posted; their completion flags cannot change now");
            return Err(error::state(call, control.state.subtype(), message));
        }
        if wanted.max_recv_dtos < posted {
            let message =
                format!("max_recv_dtos = {}, but {posted} receives are posted", wanted.max_recv_dtos);
            return Err(error::parameter(call, Subtype::Arg3, message));
        }
        let longest = side.stored_iov();
        if (wanted.max_recv_iov as usize) < longest {
            let message = format!(
                "max_recv_iov = {}, but a posted receive has {longest} segments",
                wanted.max_recv_iov
            );
            return Err(error::parameter(call, Subtype::Arg3, message));
        }
        let old = control.attr.clone();
        attr::rewire(self.id, &mut control.wiring, &old, &wanted, wiring)
            .map_err(|rule| error::parameter(call, Subtype::Arg3, rule))?;
        control.attr = wanted;
        if mask.contains(EpMask::COMM) {
            control.comm = new.comm;
        }
        if mask.contains(EpMask::SRQ_SOFT_HW) {
            side.soft_mark = match control.attr.srq_soft_hw {
                0 => u32::MAX,
                mark => mark,
            };
        }
        if mask.contains(EpMask::PZ_HANDLE) {
            control.pz = new.pz.as_ref().map(PzRef::new);
            side.domain = new.pz.as_ref().map(|pz| pz.0.domain);
        }
        // In a state that is not idle only what needs no new rings can have changed.
        if side.channel.is_none() {
            side.configure(&control.attr, &control.wiring);
        }
        Ok(())
    }
}

/// Attributes the consumer left to the provider are none of a direction without a dispatcher; when it gets one they are
/// chosen, unless the consumer does so now.
fn fill_in(wanted: &mut EpAttr, defaults: &EpAttr, mask: EpMask) {
    if wanted.max_recv_dtos == 0 && !mask.contains(EpMask::MAX_RECV_DTOS) {
        wanted.max_recv_dtos = defaults.max_recv_dtos;
    }
    if wanted.max_request_dtos == 0 && !mask.contains(EpMask::MAX_REQUEST_DTOS) {
        wanted.max_request_dtos = defaults.max_request_dtos;
    }
    if wanted.max_request_iov == 0 && !mask.contains(EpMask::MAX_REQUEST_IOV) {
        wanted.max_request_iov = defaults.max_request_iov;
    }
}

/// The old attributes with the new ones the mask names.
fn merged(old: &EpAttr, new: &EpAttr, mask: EpMask) -> EpAttr {
    let mut out = old.clone();
    macro_rules! take {
        ($($bit:ident => $field:ident),* $(,)?) => {
            $(if mask.intersects(EpMask::$bit) { out.$field = new.$field.clone(); })*
        };
    }
    take! {
        SERVICE_TYPE => service_type,
        MAX_MESSAGE_SIZE => max_message_size,
        MAX_RDMA_SIZE => max_rdma_size,
        QOS => qos,
        RECV_COMPLETION_FLAGS => recv_completion_flags,
        REQUEST_COMPLETION_FLAGS => request_completion_flags,
        MAX_RECV_DTOS => max_recv_dtos,
        MAX_REQUEST_DTOS => max_request_dtos,
        MAX_RECV_IOV => max_recv_iov,
        MAX_REQUEST_IOV => max_request_iov,
        MAX_RDMA_READ_IN => max_rdma_read_in,
        MAX_RDMA_READ_OUT => max_rdma_read_out,
        SRQ_SOFT_HW => srq_soft_hw,
        MAX_RDMA_READ_IOV => max_rdma_read_iov,
        MAX_RDMA_WRITE_IOV => max_rdma_write_iov,
        TRANSPORT_SPECIFIC => transport_specific,
        PROVIDER_SPECIFIC => provider_specific,
    }
    out
}
