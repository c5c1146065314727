//! Counters of objects (spec: extensions). The position of a counter is its number in the extensions' header.

macro_rules! counters {
    ($(#[$doc:meta])* $kind:ident { $($name:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        #[allow(missing_docs, reason = "each is the header's constant of the same words")]
        pub enum $kind { $($name,)* }

        impl $kind {
            /// All of them, in the header's order.
            pub const ALL: &[$kind] = &[$($kind::$name,)*];

            /// The name of the header's constant.
            pub const fn name(self) -> &'static str {
                match self { $($kind::$name => $text,)* }
            }
        }
    };
}

counters! {
    /// What an adapter counts. What only hardware could count stays 0.
    IaCounter {
        PzCreate = "DCNT_IA_PZ_CREATE",
        PzFree = "DCNT_IA_PZ_FREE",
        LmrCreate = "DCNT_IA_LMR_CREATE",
        LmrFree = "DCNT_IA_LMR_FREE",
        RmrCreate = "DCNT_IA_RMR_CREATE",
        RmrFree = "DCNT_IA_RMR_FREE",
        PspCreate = "DCNT_IA_PSP_CREATE",
        PspCreateAny = "DCNT_IA_PSP_CREATE_ANY",
        PspFree = "DCNT_IA_PSP_FREE",
        RspCreate = "DCNT_IA_RSP_CREATE",
        RspFree = "DCNT_IA_RSP_FREE",
        EvdCreate = "DCNT_IA_EVD_CREATE",
        EvdFree = "DCNT_IA_EVD_FREE",
        EpCreate = "DCNT_IA_EP_CREATE",
        EpFree = "DCNT_IA_EP_FREE",
        SrqCreate = "DCNT_IA_SRQ_CREATE",
        SrqFree = "DCNT_IA_SRQ_FREE",
        SpCr = "DCNT_IA_SP_CR",
        SpCrAccepted = "DCNT_IA_SP_CR_ACCEPTED",
        SpCrRejected = "DCNT_IA_SP_CR_REJECTED",
        MemAlloc = "DCNT_IA_MEM_ALLOC",
        MemAllocData = "DCNT_IA_MEM_ALLOC_DATA",
        MemFree = "DCNT_IA_MEM_FREE",
        AsyncError = "DCNT_IA_ASYNC_ERROR",
        AsyncQpError = "DCNT_IA_ASYNC_QP_ERROR",
        AsyncCqError = "DCNT_IA_ASYNC_CQ_ERROR",
        CmListen = "DCNT_IA_CM_LISTEN",
        CmReqTx = "DCNT_IA_CM_REQ_TX",
        CmReqRx = "DCNT_IA_CM_REQ_RX",
        CmRepTx = "DCNT_IA_CM_REP_TX",
        CmRepRx = "DCNT_IA_CM_REP_RX",
        CmRtuTx = "DCNT_IA_CM_RTU_TX",
        CmRtuRx = "DCNT_IA_CM_RTU_RX",
        CmUserRejTx = "DCNT_IA_CM_USER_REJ_TX",
        CmUserRejRx = "DCNT_IA_CM_USER_REJ_RX",
        CmActiveEst = "DCNT_IA_CM_ACTIVE_EST",
        CmPassiveEst = "DCNT_IA_CM_PASSIVE_EST",
        CmAhReqTx = "DCNT_IA_CM_AH_REQ_TX",
        CmAhReqRx = "DCNT_IA_CM_AH_REQ_RX",
        CmAhResolved = "DCNT_IA_CM_AH_RESOLVED",
        CmDreqTx = "DCNT_IA_CM_DREQ_TX",
        CmDreqRx = "DCNT_IA_CM_DREQ_RX",
        CmDrepTx = "DCNT_IA_CM_DREP_TX",
        CmDrepRx = "DCNT_IA_CM_DREP_RX",
        CmMraTx = "DCNT_IA_CM_MRA_TX",
        CmMraRx = "DCNT_IA_CM_MRA_RX",
        CmReqFullqPoll = "DCNT_IA_CM_REQ_FULLQ_POLL",
        CmErr = "DCNT_IA_CM_ERR",
        CmErrReqFullq = "DCNT_IA_CM_ERR_REQ_FULLQ",
        CmErrReqDup = "DCNT_IA_CM_ERR_REQ_DUP",
        CmErrReqRetry = "DCNT_IA_CM_ERR_REQ_RETRY",
        CmErrRepDup = "DCNT_IA_CM_ERR_REP_DUP",
        CmErrRepRetry = "DCNT_IA_CM_ERR_REP_RETRY",
        CmErrRtuDup = "DCNT_IA_CM_ERR_RTU_DUP",
        CmErrRtuRetry = "DCNT_IA_CM_ERR_RTU_RETRY",
        CmErrRefused = "DCNT_IA_CM_ERR_REFUSED",
        CmErrReset = "DCNT_IA_CM_ERR_RESET",
        CmErrTimeout = "DCNT_IA_CM_ERR_TIMEOUT",
        CmErrRejTx = "DCNT_IA_CM_ERR_REJ_TX",
        CmErrRejRx = "DCNT_IA_CM_ERR_REJ_RX",
        CmErrDreqDup = "DCNT_IA_CM_ERR_DREQ_DUP",
        CmErrDreqRetry = "DCNT_IA_CM_ERR_DREQ_RETRY",
        CmErrDrepDup = "DCNT_IA_CM_ERR_DREP_DUP",
        CmErrDrepRetry = "DCNT_IA_CM_ERR_DREP_RETRY",
        CmErrMraDup = "DCNT_IA_CM_ERR_MRA_DUP",
        CmErrMraRetry = "DCNT_IA_CM_ERR_MRA_RETRY",
        CmErrUnexpected = "DCNT_IA_CM_ERR_UNEXPECTED",
        LnkErrRcv = "DCNT_IA_LNK_ERR_RCV",
        LnkErrRcvRemPhys = "DCNT_IA_LNK_ERR_RCV_REM_PHYS",
        LnkErrRcvConstraint = "DCNT_IA_LNK_ERR_RCV_CONSTRAINT",
        LnkErrXmtDiscards = "DCNT_IA_LNK_ERR_XMT_DISCARDS",
        LnkErrXmtContraint = "DCNT_IA_LNK_ERR_XMT_CONTRAINT",
        LnkErrIntegrity = "DCNT_IA_LNK_ERR_INTEGRITY",
        LnkErrExcBufOverrun = "DCNT_IA_LNK_ERR_EXC_BUF_OVERRUN",
        LnkWarnRcvSwRelay = "DCNT_IA_LNK_WARN_RCV_SW_RELAY",
        LnkWarnXmtWait = "DCNT_IA_LNK_WARN_XMT_WAIT",
        DiagErrRqRae = "DCNT_IA_DIAG_ERR_RQ_RAE",
        DiagErrRqOos = "DCNT_IA_DIAG_ERR_RQ_OOS",
        DiagErrRqRire = "DCNT_IA_DIAG_ERR_RQ_RIRE",
        DiagErrRqUdsdprd = "DCNT_IA_DIAG_ERR_RQ_UDSDPRD",
        DiagErrSqRae = "DCNT_IA_DIAG_ERR_SQ_RAE",
        DiagErrSqOos = "DCNT_IA_DIAG_ERR_SQ_OOS",
        DiagErrSqRire = "DCNT_IA_DIAG_ERR_SQ_RIRE",
        DiagErrSqRree = "DCNT_IA_DIAG_ERR_SQ_RREE",
        DiagErrSqTree = "DCNT_IA_DIAG_ERR_SQ_TREE",
    }
}

counters! {
    /// What an endpoint counts: operations, and with `Data` their bytes.
    EpCounter {
        Connect = "DCNT_EP_CONNECT",
        Disconnect = "DCNT_EP_DISCONNECT",
        PostSend = "DCNT_EP_POST_SEND",
        PostSendData = "DCNT_EP_POST_SEND_DATA",
        PostSendUd = "DCNT_EP_POST_SEND_UD",
        PostSendUdData = "DCNT_EP_POST_SEND_UD_DATA",
        PostRecv = "DCNT_EP_POST_RECV",
        PostRecvData = "DCNT_EP_POST_RECV_DATA",
        PostWrite = "DCNT_EP_POST_WRITE",
        PostWriteData = "DCNT_EP_POST_WRITE_DATA",
        PostWriteImm = "DCNT_EP_POST_WRITE_IMM",
        PostWriteImmData = "DCNT_EP_POST_WRITE_IMM_DATA",
        PostRead = "DCNT_EP_POST_READ",
        PostReadData = "DCNT_EP_POST_READ_DATA",
        PostCmpSwap = "DCNT_EP_POST_CMP_SWAP",
        PostFetchAdd = "DCNT_EP_POST_FETCH_ADD",
        Recv = "DCNT_EP_RECV",
        RecvData = "DCNT_EP_RECV_DATA",
        RecvUd = "DCNT_EP_RECV_UD",
        RecvUdData = "DCNT_EP_RECV_UD_DATA",
        RecvImm = "DCNT_EP_RECV_IMM",
        RecvImmData = "DCNT_EP_RECV_IMM_DATA",
        RecvRdmaImm = "DCNT_EP_RECV_RDMA_IMM",
        RecvRdmaImmData = "DCNT_EP_RECV_RDMA_IMM_DATA",
    }
}

counters! {
    /// What an event dispatcher counts.
    EvdCounter {
        Wait = "DCNT_EVD_WAIT",
        WaitBlocked = "DCNT_EVD_WAIT_BLOCKED",
        WaitNotify = "DCNT_EVD_WAIT_NOTIFY",
        Dequeue = "DCNT_EVD_DEQUEUE",
        DequeueFound = "DCNT_EVD_DEQUEUE_FOUND",
        DequeueNotFound = "DCNT_EVD_DEQUEUE_NOT_FOUND",
        DequeuePoll = "DCNT_EVD_DEQUEUE_POLL",
        DequeuePollFound = "DCNT_EVD_DEQUEUE_POLL_FOUND",
        ConnCallback = "DCNT_EVD_CONN_CALLBACK",
        DtoCallback = "DCNT_EVD_DTO_CALLBACK",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_the_headers() {
        assert_eq!((IaCounter::PzCreate as usize, IaCounter::ALL.len()), (0, 85));
        assert_eq!((EpCounter::PostRead as usize, EpCounter::ALL.len()), (12, 24));
        assert_eq!((EvdCounter::Dequeue as usize, EvdCounter::ALL.len()), (3, 10));
        for (position, counter) in IaCounter::ALL.iter().enumerate() {
            assert_eq!(*counter as usize, position);
        }
    }
}
