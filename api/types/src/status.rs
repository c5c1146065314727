//! `DAT_RETURN`: class, type and subtype in 32 bits (spec: return_codes).

use std::fmt;

/// What a DAT call returns: class in bits 31-30, type in bits 29-16, subtype in bits 15-0.
///
/// Compare by [`ReturnCode::kind`]: the subtype is a hint and may be 0 (spec: return_codes).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReturnCode(pub u32);

const CLASS_ERROR: u32 = 0x8000_0000;
const TYPE_MASK: u32 = 0x3FFF_0000;

impl ReturnCode {
    /// `DAT_SUCCESS`.
    pub const SUCCESS: ReturnCode = ReturnCode(0);

    /// An error of this type and subtype.
    pub const fn error(kind: ReturnType, subtype: Subtype) -> ReturnCode {
        ReturnCode(CLASS_ERROR | (kind as u32) << 16 | subtype as u32)
    }

    /// The type, or `None` for a code this version does not know.
    pub fn kind(self) -> Option<ReturnType> {
        let value = ((self.0 & TYPE_MASK) >> 16) as u16;
        TYPES.iter().find(|(kind, ..)| *kind as u16 == value).map(|(kind, ..)| *kind)
    }

    /// The subtype, or `None` for one this version does not know.
    pub fn subtype(self) -> Option<Subtype> {
        let value = (self.0 & 0xFFFF) as u16;
        SUBTYPES.iter().find(|(sub, _)| *sub as u16 == value).map(|(sub, _)| *sub)
    }

    /// Whether the class is error.
    pub const fn is_error(self) -> bool {
        self.0 & CLASS_ERROR != 0
    }

    /// The two names `dat_strerror` gives: type and subtype. `None` for an undefined code.
    pub fn names(self) -> Option<(&'static str, &'static str)> {
        let kind = self.kind()?;
        let subtype = self.subtype()?;
        let major = TYPES.iter().find(|(k, ..)| *k == kind)?.1;
        let minor = SUBTYPES.iter().find(|(s, _)| *s == subtype)?.1;
        Some((major, minor))
    }
}

impl fmt::Debug for ReturnCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ReturnCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.names() {
            Some((major, "DAT_NO_SUBTYPE")) => f.write_str(major),
            Some((major, minor)) => write!(f, "{major} ({minor})"),
            None => write!(f, "DAT return code {:#010x}", self.0),
        }
    }
}

macro_rules! return_types {
    ($($(#[doc = $doc:literal])* $name:ident = $value:literal, $text:literal;)*) => {
        /// The type field of a return code. The values are those of the public headers, shifted down by 16.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        #[non_exhaustive]
        pub enum ReturnType { $($(#[doc = $doc])* $name = $value,)* }
        const TYPES: &[(ReturnType, &str)] = &[$((ReturnType::$name, $text),)*];

        impl ReturnType {
            /// All of them, in the order of their values.
            pub const ALL: &[ReturnType] = &[$(ReturnType::$name,)*];

            /// What it means, in a sentence.
            pub fn text(self) -> &'static str {
                match self { $(ReturnType::$name => concat!($($doc),*).trim_start(),)* }
            }
        }
    };
}

return_types! {
    /// The call did what it was asked for.
    Success = 0x00, "DAT_SUCCESS";
    /// A blocked wait was cut short because the IA closed or the EVD was destroyed.
    Abort = 0x01, "DAT_ABORT";
    /// The connection qualifier already has a listener.
    ConnQualInUse = 0x02, "DAT_CONN_QUAL_IN_USE";
    /// A quota, queue or allocation is exhausted.
    InsufficientResources = 0x03, "DAT_INSUFFICIENT_RESOURCES";
    /// A provider's fault; never masks the Consumer's.
    InternalError = 0x04, "DAT_INTERNAL_ERROR";
    /// A handle is null where forbidden, freed, of the wrong kind, or of another IA.
    InvalidHandle = 0x05, "DAT_INVALID_HANDLE";
    /// Any other argument is bad.
    InvalidParameter = 0x06, "DAT_INVALID_PARAMETER";
    /// The object is in a state that forbids the call.
    InvalidState = 0x07, "DAT_INVALID_STATE";
    /// RDMA: the destination is smaller than the source.
    LengthError = 0x08, "DAT_LENGTH_ERROR";
    /// The provider lacks an optional feature.
    ModelNotSupported = 0x09, "DAT_MODEL_NOT_SUPPORTED";
    /// No registry entry matches.
    ProviderNotFound = 0x0A, "DAT_PROVIDER_NOT_FOUND";
    /// An access right is missing on an LMR or RMR, or its context is invalid.
    PrivilegesViolation = 0x0B, "DAT_PRIVILEGES_VIOLATION";
    /// Protection zones differ.
    ProtectionViolation = 0x0C, "DAT_PROTECTION_VIOLATION";
    /// Dequeue found nothing; also the time-out of a CNO wait.
    QueueEmpty = 0x0D, "DAT_QUEUE_EMPTY";
    /// A software event did not fit.
    QueueFull = 0x0E, "DAT_QUEUE_FULL";
    /// An EVD wait timed out.
    TimeoutExpired = 0x0F, "DAT_TIMEOUT_EXPIRED";
    /// Duplicate dynamic registration.
    ProviderAlreadyRegistered = 0x10, "DAT_PROVIDER_ALREADY_REGISTERED";
    /// Unregistering a provider that has open IAs.
    ProviderInUse = 0x11, "DAT_PROVIDER_IN_USE";
    /// The remote address is unusable.
    InvalidAddress = 0x12, "DAT_INVALID_ADDRESS";
    /// A blocked wait was interrupted by a signal.
    InterruptedCall = 0x13, "DAT_INTERRUPTED_CALL";
    /// No free connection qualifier.
    ConnQualUnavailable = 0x14, "DAT_CONN_QUAL_UNAVAILABLE";
    /// The memory region was reserved: of the kernel's API, never returned here.
    ReservedLmr = 0x15, "DAT_RESERVED_LMR";
    /// The address or port of a common service point is taken.
    PortInUse = 0x16, "DAT_PORT_IN_USE";
    /// The communicator type is unknown.
    CommNotSupported = 0x17, "DAT_COMM_NOT_SUPPORTED";
    /// The operation is absent in this provider.
    NotImplemented = 0x3FFF, "DAT_NOT_IMPLEMENTED";
}

macro_rules! subtypes {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// The subtype field of a return code: a hint at the culprit, in header order.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "each variant is the name of the header's constant of the same words")]
        pub enum Subtype { $($name,)* }
        const SUBTYPES: &[(Subtype, &str)] = &[$((Subtype::$name, $text),)*];
    };
}

// The order is the header's enumeration order: the position is the value.
subtypes! {
    None = "DAT_NO_SUBTYPE",
    Interrupted = "DAT_SUB_INTERRUPTED",
    ResourceMemory = "DAT_RESOURCE_MEMORY",
    ResourceDevice = "DAT_RESOURCE_DEVICE",
    ResourceTep = "DAT_RESOURCE_TEP",
    ResourceTevd = "DAT_RESOURCE_TEVD",
    ResourceProtectionDomain = "DAT_RESOURCE_PROTECTION_DOMAIN",
    ResourceMemoryRegion = "DAT_RESOURCE_MEMORY_REGION",
    ResourceErrorHandler = "DAT_RESOURCE_ERROR_HANDLER",
    ResourceCredits = "DAT_RESOURCE_CREDITS",
    ResourceSrq = "DAT_RESOURCE_SRQ",
    HandleIa = "DAT_INVALID_HANDLE_IA",
    HandleEp = "DAT_INVALID_HANDLE_EP",
    HandleLmr = "DAT_INVALID_HANDLE_LMR",
    HandleRmr = "DAT_INVALID_HANDLE_RMR",
    HandlePz = "DAT_INVALID_HANDLE_PZ",
    HandlePsp = "DAT_INVALID_HANDLE_PSP",
    HandleRsp = "DAT_INVALID_HANDLE_RSP",
    HandleCr = "DAT_INVALID_HANDLE_CR",
    HandleCno = "DAT_INVALID_HANDLE_CNO",
    HandleEvdCr = "DAT_INVALID_HANDLE_EVD_CR",
    HandleEvdRequest = "DAT_INVALID_HANDLE_EVD_REQUEST",
    HandleEvdRecv = "DAT_INVALID_HANDLE_EVD_RECV",
    HandleEvdConn = "DAT_INVALID_HANDLE_EVD_CONN",
    HandleEvdAsync = "DAT_INVALID_HANDLE_EVD_ASYNC",
    HandleSrq = "DAT_INVALID_HANDLE_SRQ",
    HandleCsp = "DAT_INVALID_HANDLE_CSP",
    Handle1 = "DAT_INVALID_HANDLE1",
    Handle2 = "DAT_INVALID_HANDLE2",
    Handle3 = "DAT_INVALID_HANDLE3",
    Handle4 = "DAT_INVALID_HANDLE4",
    Handle5 = "DAT_INVALID_HANDLE5",
    Handle6 = "DAT_INVALID_HANDLE6",
    Handle7 = "DAT_INVALID_HANDLE7",
    Handle8 = "DAT_INVALID_HANDLE8",
    Handle9 = "DAT_INVALID_HANDLE9",
    Handle10 = "DAT_INVALID_HANDLE10",
    Arg1 = "DAT_INVALID_ARG1",
    Arg2 = "DAT_INVALID_ARG2",
    Arg3 = "DAT_INVALID_ARG3",
    Arg4 = "DAT_INVALID_ARG4",
    Arg5 = "DAT_INVALID_ARG5",
    Arg6 = "DAT_INVALID_ARG6",
    Arg7 = "DAT_INVALID_ARG7",
    Arg8 = "DAT_INVALID_ARG8",
    Arg9 = "DAT_INVALID_ARG9",
    Arg10 = "DAT_INVALID_ARG10",
    EpUnconnected = "DAT_INVALID_STATE_EP_UNCONNECTED",
    EpActConnPending = "DAT_INVALID_STATE_EP_ACTCONNPENDING",
    EpPassConnPending = "DAT_INVALID_STATE_EP_PASSCONNPENDING",
    EpTentConnPending = "DAT_INVALID_STATE_EP_TENTCONNPENDING",
    EpConnected = "DAT_INVALID_STATE_EP_CONNECTED",
    EpDisconnected = "DAT_INVALID_STATE_EP_DISCONNECTED",
    EpReserved = "DAT_INVALID_STATE_EP_RESERVED",
    EpComplPending = "DAT_INVALID_STATE_EP_COMPLPENDING",
    EpDiscPending = "DAT_INVALID_STATE_EP_DISCPENDING",
    EpProviderControl = "DAT_INVALID_STATE_EP_PROVIDERCONTROL",
    EpNotReady = "DAT_INVALID_STATE_EP_NOTREADY",
    EpRecvWatermark = "DAT_INVALID_STATE_EP_RECV_WATERMARK",
    EpPz = "DAT_INVALID_STATE_EP_PZ",
    EpEvdRequest = "DAT_INVALID_STATE_EP_EVD_REQUEST",
    EpEvdRecv = "DAT_INVALID_STATE_EP_EVD_RECV",
    EpEvdConnect = "DAT_INVALID_STATE_EP_EVD_CONNECT",
    EpUnconfigured = "DAT_INVALID_STATE_EP_UNCONFIGURED",
    EpUnconfReserved = "DAT_INVALID_STATE_EP_UNCONFRESERVED",
    EpUnconfPassive = "DAT_INVALID_STATE_EP_UNCONFPASSIVE",
    EpUnconfTentative = "DAT_INVALID_STATE_EP_UNCONFTENTATIVE",
    CnoInUse = "DAT_INVALID_STATE_CNO_IN_USE",
    CnoDead = "DAT_INVALID_STATE_CNO_DEAD",
    EvdOpen = "DAT_INVALID_STATE_EVD_OPEN",
    EvdEnabled = "DAT_INVALID_STATE_EVD_ENABLED",
    EvdDisabled = "DAT_INVALID_STATE_EVD_DISABLED",
    EvdWaitable = "DAT_INVALID_STATE_EVD_WAITABLE",
    EvdUnwaitable = "DAT_INVALID_STATE_EVD_UNWAITABLE",
    EvdInUse = "DAT_INVALID_STATE_EVD_IN_USE",
    EvdConfigNotify = "DAT_INVALID_STATE_EVD_CONFIG_NOTIFY",
    EvdConfigSolicited = "DAT_INVALID_STATE_EVD_CONFIG_SOLICITED",
    EvdConfigThreshold = "DAT_INVALID_STATE_EVD_CONFIG_THRESHOLD",
    EvdWaiter = "DAT_INVALID_STATE_EVD_WAITER",
    EvdAsync = "DAT_INVALID_STATE_EVD_ASYNC",
    IaInUse = "DAT_INVALID_STATE_IA_IN_USE",
    LmrInUse = "DAT_INVALID_STATE_LMR_IN_USE",
    LmrFree = "DAT_INVALID_STATE_LMR_FREE",
    PzInUse = "DAT_INVALID_STATE_PZ_IN_USE",
    PzFree = "DAT_INVALID_STATE_PZ_FREE",
    SrqOperational = "DAT_INVALID_STATE_SRQ_OPERATIONAL",
    SrqError = "DAT_INVALID_STATE_SRQ_ERROR",
    SrqInUse = "DAT_INVALID_STATE_SRQ_IN_USE",
    SrqShutdown = "DAT_INVALID_STATE_SRQ_SHUTDOWN",
    PrivilegesRead = "DAT_PRIVILEGES_READ",
    PrivilegesWrite = "DAT_PRIVILEGES_WRITE",
    PrivilegesRdmaRead = "DAT_PRIVILEGES_RDMA_READ",
    PrivilegesRdmaWrite = "DAT_PRIVILEGES_RDMA_WRITE",
    ProtectionRead = "DAT_PROTECTION_READ",
    ProtectionWrite = "DAT_PROTECTION_WRITE",
    ProtectionRdmaRead = "DAT_PROTECTION_RDMA_READ",
    ProtectionRdmaWrite = "DAT_PROTECTION_RDMA_WRITE",
    AddressUnsupported = "DAT_INVALID_ADDRESS_UNSUPPORTED",
    AddressUnreachable = "DAT_INVALID_ADDRESS_UNREACHABLE",
    AddressMalformed = "DAT_INVALID_ADDRESS_MALFORMED",
    NameNotRegistered = "DAT_NAME_NOT_REGISTERED",
    MajorNotFound = "DAT_MAJOR_NOT_FOUND",
    MinorNotFound = "DAT_MINOR_NOT_FOUND",
    ThreadSafetyNotFound = "DAT_THREAD_SAFETY_NOT_FOUND",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_and_subtype_round_trips_and_has_a_name() {
        for (kind, text) in TYPES {
            // Miri is slow and the code has no unsafe: a few of them do there.
            for (sub, minor) in SUBTYPES.iter().step_by(if cfg!(miri) { 20 } else { 1 }) {
                let code = ReturnCode::error(*kind, *sub);
                assert_eq!((code.kind(), code.subtype()), (Some(*kind), Some(*sub)));
                assert_eq!(code.names(), Some((*text, *minor)));
            }
        }
    }

    #[test]
    fn every_type_says_what_it_means() {
        for kind in ReturnType::ALL {
            let text = kind.text();
            assert!(text.ends_with('.') && !text.starts_with(' '), "{kind:?}: {text:?}");
        }
        assert_eq!(ReturnCode(0x8015_0000).names(), Some(("DAT_RESERVED_LMR", "DAT_NO_SUBTYPE")));
    }

    #[test]
    fn an_undefined_code_has_no_name() {
        assert_eq!(ReturnCode(0x8FFF_0000).names(), None);
        assert_eq!(ReturnCode(0x8001_FFFF).names(), None);
    }
}
