//! Constants of the headers, under their own names.
#![allow(missing_docs, reason = "libfabric's own names; its manual pages say what they mean")]

/// `FI_VERSION(major, minor)`.
pub const fn fi_version(major: u32, minor: u32) -> u32 {
    (major << 16) | minor
}

macro_rules! bits {
    ($($name:ident = $bit:expr),* $(,)?) => { $(pub const $name: u64 = 1 << $bit;)* };
}

bits! {
    FI_MSG = 1, FI_RMA = 2, FI_TAGGED = 3, FI_ATOMIC = 4, FI_READ = 8, FI_WRITE = 9, FI_RECV = 10, FI_SEND = 11,
    FI_REMOTE_READ = 12, FI_REMOTE_WRITE = 13, FI_REMOTE_CQ_DATA = 17, FI_MORE = 18, FI_FENCE = 21,
    FI_COMPLETION = 24, FI_INJECT = 25, FI_INJECT_COMPLETE = 26, FI_TRANSMIT_COMPLETE = 27,
    FI_DELIVERY_COMPLETE = 28, FI_LOCAL_COMM = 51, FI_REMOTE_COMM = 52, FI_NUMERICHOST = 55, FI_SOURCE = 57,
    FI_CONTEXT = 59, FI_RX_CQ_DATA = 56, FI_CONTEXT2 = 52, FI_SELECTIVE_COMPLETION = 59,
    FI_ORDER_RAW = 1, FI_ORDER_WAW = 4, FI_ORDER_SAW = 7, FI_ORDER_SAS = 8,
    FI_FETCH_ATOMIC = 58, FI_COMPARE_ATOMIC = 59,
}

pub const FI_ADDR_UNSPEC: u64 = u64::MAX;
pub const FI_KEY_NOTAVAIL: u64 = u64::MAX;

pub const FI_MR_LOCAL: i32 = 1 << 2;
pub const FI_MR_RAW: i32 = 1 << 3;
pub const FI_MR_VIRT_ADDR: i32 = 1 << 4;
pub const FI_MR_ALLOCATED: i32 = 1 << 5;
pub const FI_MR_PROV_KEY: i32 = 1 << 6;
pub const FI_MR_ENDPOINT: i32 = 1 << 9;

/// `enum fi_ep_type`.
pub const FI_EP_MSG: u32 = 1;
pub const FI_EP_RDM: u32 = 3;

/// Address formats.
pub const FI_SOCKADDR: u32 = 1;
pub const FI_SOCKADDR_IN: u32 = 2;
pub const FI_SOCKADDR_IN6: u32 = 3;
pub const FI_ADDR_STR: u32 = 9;

/// Protocols of endpoints.
pub const FI_PROTO_SHM: u32 = 16;

/// `enum fi_av_type`.
pub const FI_AV_MAP: u32 = 1;
pub const FI_AV_TABLE: u32 = 2;

/// `enum fi_progress`.
pub const FI_PROGRESS_AUTO: u32 = 1;
pub const FI_PROGRESS_MANUAL: u32 = 2;

/// `enum fi_threading`.
pub const FI_THREAD_SAFE: u32 = 1;

/// `enum fi_resource_mgmt`.
pub const FI_RM_ENABLED: u32 = 2;

/// Commands of `fi_control`.
pub const FI_GETWAIT: i32 = 5;
pub const FI_ENABLE: i32 = 6;
pub const FI_GET_RAW_MR: i32 = 8;

/// `enum fi_wait_obj`.
pub const FI_WAIT_NONE: u32 = 0;
pub const FI_WAIT_FD: u32 = 3;
pub const FI_WAIT_POLLFD: u32 = 6;

/// `enum fi_cq_format`.
pub const FI_CQ_FORMAT_DATA: u32 = 3;
pub const FI_CQ_FORMAT_TAGGED: u32 = 4;

/// Events of an event queue.
pub const FI_CONNREQ: u32 = 1;
pub const FI_CONNECTED: u32 = 2;
pub const FI_SHUTDOWN: u32 = 3;

/// Endpoint options.
pub const FI_OPT_ENDPOINT: i32 = 0;
pub const FI_OPT_CM_DATA_SIZE: i32 = 1;

/// `enum fi_datatype`, `enum fi_op`.
pub const FI_UINT64: u32 = 7;
pub const FI_SUM: u32 = 2;
pub const FI_CSWAP: u32 = 12;

/// Errors beyond those of the system.
pub const FI_EOTHER: i32 = 256;
pub const FI_ETOOSMALL: i32 = 257;
pub const FI_EOPBADSTATE: i32 = 258;
pub const FI_EAVAIL: i32 = 259;
pub const FI_EBADFLAGS: i32 = 260;
pub const FI_ENOEQ: i32 = 261;
pub const FI_EDOMAIN: i32 = 262;
pub const FI_ENOCQ: i32 = 263;
pub const FI_ECRC: i32 = 264;
pub const FI_ETRUNC: i32 = 265;
pub const FI_ENOKEY: i32 = 266;
pub const FI_ENOAV: i32 = 267;
pub const FI_EOVERRUN: i32 = 268;
pub const FI_ENORX: i32 = 269;
