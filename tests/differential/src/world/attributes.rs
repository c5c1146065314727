//! Attributes of programs as those of the interface, and back.

use std::time::Duration;

use dat_types::{CompletionFlags, EpAttr, Qos, ServiceType, Timeout};

use crate::program::{Attrs, Time};

/// The short time-out of a connect.
pub(crate) const SHORT: Duration = Duration::from_millis(30);

pub(super) fn timeout(time: Time) -> Timeout {
    match time {
        Time::Zero => Timeout::from(Duration::ZERO),
        Time::Short => Timeout::from(SHORT),
        Time::Infinite => Timeout::INFINITE,
    }
}

pub(super) fn attributes(attrs: &Attrs) -> EpAttr {
    EpAttr {
        service_type: ServiceType(attrs.service),
        qos: Qos(attrs.qos),
        max_message_size: attrs.message,
        max_rdma_size: attrs.rdma,
        recv_completion_flags: CompletionFlags::from_bits_retain(attrs.recv_flags),
        request_completion_flags: CompletionFlags::from_bits_retain(attrs.request_flags),
        max_recv_dtos: attrs.recvs,
        max_request_dtos: attrs.requests,
        max_recv_iov: attrs.recv_iov,
        max_request_iov: attrs.request_iov,
        max_rdma_read_in: attrs.reads_in,
        max_rdma_read_out: attrs.reads_out,
        ..EpAttr::default()
    }
}

/// The same of a query's answer, to compare.
pub(crate) fn attrs_of(attr: &EpAttr) -> Attrs {
    Attrs {
        service: attr.service_type.0,
        qos: attr.qos.0,
        message: attr.max_message_size,
        rdma: attr.max_rdma_size,
        recv_flags: attr.recv_completion_flags.bits(),
        request_flags: attr.request_completion_flags.bits(),
        recvs: attr.max_recv_dtos,
        requests: attr.max_request_dtos,
        recv_iov: attr.max_recv_iov,
        request_iov: attr.max_request_iov,
        reads_in: attr.max_rdma_read_in,
        reads_out: attr.max_rdma_read_out,
    }
}
