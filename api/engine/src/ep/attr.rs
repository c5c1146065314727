//! Attributes and dispatchers of an endpoint: defaults, limits and consistency (spec: endpoint).

use std::sync::Arc;

use dat_types::{
    CompletionFlags, EpAttr, Error, EvdFlags, ObjectId, Result, ReturnType, ServiceType, Subtype,
};

use crate::adapter::inner::{IaInner, Rules};
use crate::base::error;
use crate::evd::inner::Evd;
use crate::evd::streams::StreamKind;

/// The three dispatchers of an endpoint.
#[derive(Clone, Default)]
pub(super) struct Wiring {
    pub(super) recv: Option<Evd>,
    pub(super) request: Option<Evd>,
    pub(super) connect: Option<Evd>,
}

impl Wiring {
    fn all(&self) -> [Option<&Evd>; 3] {
        [self.recv.as_ref(), self.request.as_ref(), self.connect.as_ref()]
    }

    /// Each is alive, of this IA, and was created for its stream. By the reference library's rules, the connect
    /// dispatcher may be of another open IA of the same name: no completion comes there, so it needs no device.
    pub(super) fn check_handles(&self, call: &'static str, ia: &IaInner) -> Result<()> {
        for (evd, (kind, flag, subtype)) in self.all().into_iter().zip(DIRECTIONS) {
            let Some(evd) = evd else { continue };
            let lenient = ia.rules == Rules::Reference && kind == StreamKind::Connection;
            if lenient && evd.is_of_same_name(ia) {
                evd.alive(call, subtype)?;
            } else {
                evd.check(call, ia.id, subtype)?;
            }
            if !evd.0.flags.contains(flag) {
                let message = format!("event dispatcher {} was not created with {flag:?}", evd.id());
                return Err(Error::new(call, ReturnType::InvalidHandle, subtype, message));
            }
        }
        Ok(())
    }

    /// The streams each dispatcher would carry under `attr`.
    fn streams(&self, attr: &EpAttr) -> Vec<(Evd, Vec<(StreamKind, CompletionFlags)>)> {
        let mut out: Vec<(Evd, Vec<(StreamKind, CompletionFlags)>)> = Vec::new();
        for (evd, (kind, ..)) in self.all().into_iter().zip(DIRECTIONS) {
            let Some(evd) = evd else { continue };
            let stream = (kind, stream_mode(kind, attr));
            match out.iter_mut().find(|(known, _)| known.id() == evd.id()) {
                Some((_, streams)) => streams.push(stream),
                None => out.push((evd.clone(), vec![stream])),
            }
        }
        out
    }
}

/// Replaces the streams of endpoint `id`: all change or none does. The error names the rule.
pub(super) fn rewire(
    id: ObjectId,
    current: &mut Wiring,
    current_attr: &EpAttr,
    wanted_attr: &EpAttr,
    wanted: Wiring,
) -> std::result::Result<(), String> {
    let old = current.streams(current_attr);
    let new = wanted.streams(wanted_attr);
    for (evd, streams) in &new {
        evd.0.would_accept(id, streams)?;
    }
    for (evd, _) in &old {
        if !new.iter().any(|(kept, _)| kept.id() == evd.id()) {
            let _ = evd.0.set_streams(id, &[]);
        }
    }
    for (index, (evd, streams)) in new.iter().enumerate() {
        if let Err(rule) = evd.0.set_streams(id, streams) {
            // Another endpoint came in between: back to what was.
            for (evd, _) in &new[..index] {
                let _ = evd.0.set_streams(id, &[]);
            }
            for (evd, streams) in &old {
                let _ = evd.0.set_streams(id, streams);
            }
            return Err(rule);
        }
    }
    *current = wanted;
    Ok(())
}

/// The defaults, clipped to the device and to the dispatchers there are.
pub(super) fn defaults(ia: &Arc<IaInner>, wiring: &Wiring) -> EpAttr {
    let device = ia.attr();
    let mut attr = EpAttr::default();
    attr.max_message_size = attr.max_message_size.min(device.max_message);
    attr.max_rdma_size = attr.max_rdma_size.min(device.max_rdma);
    attr.max_recv_dtos = attr.max_recv_dtos.min(device.max_recvs_per_channel);
    attr.max_request_dtos = attr.max_request_dtos.min(device.max_requests_per_channel);
    attr.max_recv_iov = attr.max_recv_iov.min(ia.max_iov());
    attr.max_request_iov = attr.max_request_iov.min(ia.max_iov());
    attr.max_rdma_read_in = attr.max_rdma_read_in.min(device.max_reads_per_channel);
    attr.max_rdma_read_out = attr.max_rdma_read_out.min(device.max_reads_per_channel);
    if wiring.recv.is_none() {
        attr.max_recv_dtos = 0;
    }
    if wiring.request.is_none() {
        attr.max_request_dtos = 0;
        attr.max_request_iov = 0;
    }
    attr
}

/// Rules K-1 to K-6. What the provider does not have is `missing`: MODEL_NOT_SUPPORTED at create, INVALID_PARAMETER
/// at modify. Receives of a `shared` queue have its number of segments: the endpoint's means nothing then (K-11).
pub(super) fn check(
    call: &'static str,
    ia: &Arc<IaInner>,
    attr: &EpAttr,
    wiring: &Wiring,
    shared: bool,
    missing: ReturnType,
) -> Result<()> {
    let device = ia.attr();
    if attr.service_type != ServiceType::RC {
        let message = format!("service type {} is not offered, only RC is", attr.service_type.0);
        return Err(Error::new(call, missing, Subtype::None, message));
    }
    if !attr.qos.is_defined() {
        let message = format!("quality of service {:#x} is no single defined value", attr.qos.0);
        return Err(error::parameter(call, Subtype::None, message));
    }
    if device.qos & attr.qos.0 != attr.qos.0 {
        let message = format!("quality of service {:#x} is not offered by this provider", attr.qos.0);
        return Err(Error::new(call, missing, Subtype::None, message));
    }
    let recv_iov = if shared { None } else { Some(attr.max_recv_iov) };
    check_limits(call, ia, attr, recv_iov)?;
    check_directions(call, attr, wiring, recv_iov)?;
    check_flags(call, attr)?;
    check_lists(call, attr)
}

/// The named attributes: the engine knows one, and no provider has any of its own.
fn check_lists(call: &'static str, attr: &EpAttr) -> Result<()> {
    const KNOWN: &str = EpAttr::SINGLE_THREADED;
    let refused = |message: String| Err(error::parameter(call, Subtype::None, message));
    for (index, (name, value)) in attr.transport_specific.iter().enumerate() {
        if name != KNOWN {
            return refused(format!(
                "transport attribute {name:?} = {value:?} is not known; the one there is is {KNOWN:?}"
            ));
        }
        if value != "true" && value != "false" {
            return refused(format!("transport attribute {name:?} = {value:?}; it is \"true\" or \"false\""));
        }
        if index > 0 {
            return refused(format!("transport attribute {name:?} is there twice; name it once"));
        }
    }
    match attr.provider_specific.first() {
        None => Ok(()),
        Some((name, value)) => {
            refused(format!("provider attribute {name:?} = {value:?} is not known to this provider"))
        }
    }
}

fn check_limits(call: &'static str, ia: &Arc<IaInner>, attr: &EpAttr, recv_iov: Option<u32>) -> Result<()> {
    let device = ia.attr();
    let iov = ia.max_iov();
    let limits = [
        ("max_message_size", attr.max_message_size, device.max_message),
        ("max_rdma_size", attr.max_rdma_size, device.max_rdma),
        ("max_recv_dtos", attr.max_recv_dtos.into(), device.max_recvs_per_channel.into()),
        ("max_request_dtos", attr.max_request_dtos.into(), device.max_requests_per_channel.into()),
        ("max_recv_iov", recv_iov.unwrap_or(0).into(), iov.into()),
        ("max_request_iov", attr.max_request_iov.into(), iov.into()),
        ("max_rdma_read_in", attr.max_rdma_read_in.into(), device.max_reads_per_channel.into()),
        ("max_rdma_read_out", attr.max_rdma_read_out.into(), device.max_reads_per_channel.into()),
        ("max_rdma_read_iov", attr.max_rdma_read_iov.into(), device.max_read_segments.min(iov).into()),
        ("max_rdma_write_iov", attr.max_rdma_write_iov.into(), device.max_write_segments.min(iov).into()),
    ];
    for (name, asked, most) in limits {
        if asked > most {
            let message = format!("{name} = {asked}; the IA has at most {most}");
            return Err(error::parameter(call, Subtype::None, message));
        }
    }
    Ok(())
}

fn check_directions(call: &'static str, attr: &EpAttr, wiring: &Wiring, recv_iov: Option<u32>) -> Result<()> {
    let recv = match &wiring.recv {
        None if attr.max_recv_dtos > 0 => Some("max_recv_dtos must be 0 without a receive dispatcher"),
        Some(_) if attr.max_recv_dtos == 0 || recv_iov == Some(0) => {
            Some("max_recv_dtos and max_recv_iov must be above 0 with a receive dispatcher")
        }
        _ => None,
    };
    let request = match &wiring.request {
        None if attr.max_request_dtos > 0 || attr.max_request_iov > 0 => {
            Some("max_request_dtos and max_request_iov must be 0 without a request dispatcher")
        }
        Some(_) if attr.max_request_dtos == 0 => {
            Some("max_request_dtos must be above 0 with a request dispatcher")
        }
        _ => None,
    };
    match recv.or(request) {
        Some(rule) => Err(error::parameter(call, Subtype::None, rule)),
        None => Ok(()),
    }
}

fn check_flags(call: &'static str, attr: &EpAttr) -> Result<()> {
    let common = [CompletionFlags::empty(), CompletionFlags::UNSIGNALLED, CompletionFlags::EVD_THRESHOLD];
    let recv = attr.recv_completion_flags;
    if !common.contains(&recv) && recv != CompletionFlags::SOLICITED_WAIT {
        let message = format!(
            "receive completion flags {recv:?}; one of default, UNSIGNALLED, SOLICITED_WAIT, EVD_THRESHOLD"
        );
        return Err(error::parameter(call, Subtype::None, message));
    }
    if !common.contains(&attr.request_completion_flags) {
        let message = format!(
            "request completion flags {:?}; one of default, UNSIGNALLED, EVD_THRESHOLD",
            attr.request_completion_flags
        );
        return Err(error::parameter(call, Subtype::None, message));
    }
    Ok(())
}

/// The stream each dispatcher of an endpoint carries, and the flag it must have been created with.
const DIRECTIONS: [(StreamKind, EvdFlags, Subtype); 3] = [
    (StreamKind::Recv, EvdFlags::DTO, Subtype::HandleEvdRecv),
    (StreamKind::Request, EvdFlags::DTO, Subtype::HandleEvdRequest),
    (StreamKind::Connection, EvdFlags::CONNECTION, Subtype::HandleEvdConn),
];

/// The completion attribute a stream has under `attr`.
fn stream_mode(kind: StreamKind, attr: &EpAttr) -> CompletionFlags {
    match kind {
        StreamKind::Recv => attr.recv_completion_flags,
        StreamKind::Request => attr.request_completion_flags,
        _ => CompletionFlags::empty(),
    }
}
