//! Names of an endpoint's parameters.
#![allow(missing_docs, reason = "each bit is the header's DAT_EP_FIELD constant of the same name")]

use bitflags::bitflags;

bitflags! {
    /// Which parameters a modify or query means; the bits of the public headers.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct EpMask: u64 {
        const IA_HANDLE = 0x0000_0001;
        const EP_STATE = 0x0000_0002;
        const COMM = 0x0000_0004;
        const LOCAL_IA_ADDRESS = 0x0000_0008;
        const LOCAL_PORT_QUAL = 0x0000_0010;
        const REMOTE_IA_ADDRESS = 0x0000_0020;
        const REMOTE_PORT_QUAL = 0x0000_0040;
        const PZ_HANDLE = 0x0000_0080;
        const RECV_EVD_HANDLE = 0x0000_0100;
        const REQUEST_EVD_HANDLE = 0x0000_0200;
        const CONNECT_EVD_HANDLE = 0x0000_0400;
        const SRQ_HANDLE = 0x0000_0800;
        const SERVICE_TYPE = 0x0000_1000;
        const MAX_MESSAGE_SIZE = 0x0000_2000;
        const MAX_RDMA_SIZE = 0x0000_4000;
        const QOS = 0x0000_8000;
        const RECV_COMPLETION_FLAGS = 0x0001_0000;
        const REQUEST_COMPLETION_FLAGS = 0x0002_0000;
        const MAX_RECV_DTOS = 0x0004_0000;
        const MAX_REQUEST_DTOS = 0x0008_0000;
        const MAX_RECV_IOV = 0x0010_0000;
        const MAX_REQUEST_IOV = 0x0020_0000;
        const MAX_RDMA_READ_IN = 0x0040_0000;
        const MAX_RDMA_READ_OUT = 0x0080_0000;
        const SRQ_SOFT_HW = 0x0100_0000;
        const MAX_RDMA_READ_IOV = 0x0200_0000;
        const MAX_RDMA_WRITE_IOV = 0x0400_0000;
        const TRANSPORT_SPECIFIC = 0x1800_0000;
        const PROVIDER_SPECIFIC = 0x6000_0000;
    }
}
