//! The return codes that each call can give, as specified, and those that clauses have met.
//!
//! A clause that sees a refused call notes the call's name and the code. A code that no clause meets over any provider
//! needs a reason here.

use std::collections::BTreeSet;

use dat_types::ReturnType::{
    self, Abort, CommNotSupported, ConnQualInUse, ConnQualUnavailable, InsufficientResources as IR,
    InterruptedCall, InvalidAddress, InvalidHandle as IH, InvalidParameter as IP, InvalidState as IS,
    LengthError as LE, ModelNotSupported as MNS, NotImplemented, PortInUse, PrivilegesViolation as PRIV,
    ProtectionViolation as PROT, ProviderNotFound, QueueEmpty, QueueFull, TimeoutExpired,
};
use dat_types::{ReturnCode, Subtype};

/// A call that was refused, and its code, without a subtype.
pub type Met = (String, u32);

/// A code a call can give and no clause has met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmet {
    /// The call.
    pub call: &'static str,
    /// Its code.
    pub code: ReturnType,
    /// Why not; none: over this provider.
    pub reason: Option<&'static str>,
}

/// The calls of section 2 with what each can return besides success. Wherever memory or the operating system can fail a
/// call, INSUFFICIENT_RESOURCES and INTERNAL_ERROR come in addition (rule R-7).
pub const TABLE: &[(&str, &[ReturnType])] = &[
    ("dat_ia_open", &[IP, IH, ProviderNotFound, IR]),
    ("dat_ia_query", &[IH, IP]),
    ("dat_ia_close", &[IH, IP, IS]),
    ("dat_set_consumer_context", &[IH]),
    ("dat_get_consumer_context", &[IH, IP]),
    ("dat_get_handle_type", &[IH, IP]),
    ("dat_extension_op", &[IH, NotImplemented]),
    ("dat_pz_create", &[IH, IP, IR]),
    ("dat_pz_query", &[IH, IP]),
    ("dat_pz_free", &[IH, IS]),
    ("dat_lmr_create", &[IH, IP, IS, MNS, IR]),
    ("dat_lmr_query", &[IH, IP]),
    ("dat_lmr_free", &[IH, IS]),
    ("dat_lmr_sync_rdma_read", &[IH, IP]),
    ("dat_lmr_sync_rdma_write", &[IH, IP]),
    ("dat_rmr_create", &[IH, IP, IR]),
    ("dat_rmr_create_for_ep", &[IH, MNS, IR]),
    ("dat_rmr_query", &[IH, IP]),
    ("dat_rmr_bind", &[IH, IP, PRIV, PROT, IS, IR, MNS]),
    ("dat_rmr_free", &[IH]),
    ("dat_evd_create", &[IH, IP, IR]),
    ("dat_evd_query", &[IH, IP]),
    ("dat_evd_modify_cno", &[IH]),
    ("dat_evd_enable", &[IH]),
    ("dat_evd_disable", &[IH]),
    ("dat_evd_set_unwaitable", &[IH]),
    ("dat_evd_clear_unwaitable", &[IH]),
    ("dat_evd_wait", &[IH, IP, IS, TimeoutExpired, Abort, InterruptedCall]),
    ("dat_evd_dequeue", &[IH, QueueEmpty, IS, IP]),
    ("dat_evd_resize", &[IH, IP, IS, IR]),
    ("dat_evd_post_se", &[IH, IP, QueueFull]),
    ("dat_evd_free", &[IH, IS]),
    ("dat_cno_create", &[IH, IP, IR]),
    ("dat_cno_fd_create", &[IH, MNS, IR]),
    ("dat_cno_modify_agent", &[IH, IP, IS]),
    ("dat_cno_query", &[IH, IP]),
    ("dat_cno_wait", &[IH, QueueEmpty, InterruptedCall, IP, IS]),
    ("dat_cno_trigger", &[IH, QueueEmpty, IS, MNS]),
    ("dat_cno_free", &[IH, IS]),
    ("dat_ep_create", &[IH, IP, MNS, IR]),
    ("dat_ep_create_with_srq", &[IH, IP, IS, MNS, IR]),
    ("dat_ep_query", &[IH, IP]),
    ("dat_ep_modify", &[IH, IP, IS]),
    ("dat_ep_get_status", &[IH]),
    ("dat_ep_connect", &[IH, IP, InvalidAddress, IS, MNS, IR]),
    ("dat_ep_dup_connect", &[IH, IP, IS, MNS, IR]),
    ("dat_ep_common_connect", &[IH, IP, InvalidAddress, IS, MNS, IR, CommNotSupported]),
    ("dat_ep_disconnect", &[IH, IP, IS, IR]),
    ("dat_ep_reset", &[IH, IS]),
    ("dat_ep_free", &[IH, IS]),
    ("dat_ep_post_recv", &[IH, IP, IS, PROT, PRIV, IR]),
    ("dat_ep_post_send", &[IH, IP, IS, PROT, PRIV, IR]),
    ("dat_ep_post_send_with_invalidate", &[IH, IP, IS, PROT, PRIV, IR, MNS]),
    ("dat_ep_post_rdma_write", &[IH, IP, IS, PROT, PRIV, IR, LE]),
    ("dat_ep_post_rdma_read", &[IH, IP, IS, PROT, PRIV, IR, LE]),
    ("dat_ep_post_rdma_read_to_rmr", &[IH, IP, IS, PROT, PRIV, IR, LE, MNS]),
    ("dat_ep_recv_query", &[IH, MNS]),
    ("dat_ep_set_watermark", &[IH, IP, MNS]),
    ("dat_psp_create", &[IH, IP, ConnQualInUse, MNS, IR]),
    ("dat_psp_create_any", &[IH, IP, ConnQualUnavailable, MNS, IR]),
    ("dat_psp_query", &[IH, IP]),
    ("dat_psp_free", &[IH]),
    ("dat_rsp_create", &[IH, IP, IS, ConnQualInUse, MNS, IR]),
    ("dat_rsp_query", &[IH, IP]),
    ("dat_rsp_free", &[IH]),
    ("dat_csp_create", &[IH, PortInUse, CommNotSupported, InvalidAddress, MNS, IR]),
    ("dat_csp_query", &[IH, IP]),
    ("dat_csp_free", &[IH]),
    ("dat_cr_query", &[IH, IP]),
    ("dat_cr_accept", &[IH, IP, IS]),
    ("dat_cr_reject", &[IH, IP]),
    ("dat_cr_handoff", &[IH, IP, NotImplemented]),
    ("dat_srq_create", &[IH, IP, MNS, IR]),
    ("dat_srq_post_recv", &[IH, IP, PROT, PRIV, IR]),
    ("dat_srq_query", &[IH, IP]),
    ("dat_srq_resize", &[IH, IP, IS, IR]),
    ("dat_srq_set_lw", &[IH, IP, MNS]),
    ("dat_srq_free", &[IH, IS]),
];

const NULL: &str = "results are return values, not pointers that could be null; of the C library";
const MASK: &str = "a query takes no mask and returns a value; of the C library";
const MEMORY: &str = "only when the process has no memory or the system no descriptors left";
const BY_TYPE: &str = "the argument is of a type without bad values; of the C library";
const BOTH_KINDS: &str =
    "every provider has service points of both kinds, because the engine makes the endpoints";
const OF_ENGINE: &str = "the engine has it over every provider";

/// Codes of the table no clause can meet, and why.
const REASONS: &[(&str, ReturnType, &str)] = &[
    ("dat_ia_query", IP, MASK),
    ("dat_ia_close", IP, BY_TYPE),
    ("dat_get_consumer_context", IP, NULL),
    ("dat_get_handle_type", IP, NULL),
    ("dat_pz_create", IP, NULL),
    ("dat_pz_create", IR, "zones are numbers of the engine's; memory alone limits their number"),
    ("dat_pz_query", IP, MASK),
    ("dat_lmr_query", IP, MASK),
    ("dat_rmr_create", IP, NULL),
    (
        "dat_rmr_create_for_ep",
        IR,
        "no provider limits windows to an endpoint: MODEL_NOT_SUPPORTED comes first",
    ),
    ("dat_rmr_query", IP, MASK),
    ("dat_rmr_bind", MNS, "a bind names addresses, never offsets; of the C library"),
    ("dat_evd_query", IP, MASK),
    ("dat_evd_dequeue", IP, NULL),
    ("dat_evd_resize", IR, MEMORY),
    ("dat_cno_create", IP, NULL),
    ("dat_cno_create", IR, MEMORY),
    ("dat_cno_fd_create", IR, MEMORY),
    ("dat_cno_fd_create", MNS, OF_ENGINE),
    ("dat_cno_modify_agent", IP, BY_TYPE),
    ("dat_cno_query", IP, MASK),
    ("dat_cno_wait", IP, NULL),
    ("dat_cno_trigger", MNS, OF_ENGINE),
    ("dat_ep_create_with_srq", IS, "a queue is operational for as long as it is there"),
    ("dat_ep_query", IP, MASK),
    ("dat_ep_disconnect", IP, BY_TYPE),
    ("dat_ep_disconnect", IR, "a disconnect needs nothing that could be used up"),
    ("dat_ep_common_connect", MNS, OF_ENGINE),
    ("dat_ep_post_rdma_read_to_rmr", MNS, "every provider with windows reads into them"),
    ("dat_ep_recv_query", MNS, OF_ENGINE),
    ("dat_ep_set_watermark", IP, BY_TYPE),
    ("dat_ep_set_watermark", MNS, OF_ENGINE),
    ("dat_psp_create", MNS, BOTH_KINDS),
    ("dat_psp_create_any", MNS, BOTH_KINDS),
    ("dat_psp_create_any", IP, BY_TYPE),
    ("dat_psp_query", IP, MASK),
    ("dat_rsp_create", MNS, BOTH_KINDS),
    ("dat_rsp_query", IP, MASK),
    ("dat_csp_create", MNS, OF_ENGINE),
    ("dat_csp_query", IP, MASK),
    ("dat_cr_query", IP, MASK),
    ("dat_cr_handoff", NotImplemented, OF_ENGINE),
    ("dat_srq_create", IR, "no provider limits the number of queues within what a test can open"),
    ("dat_srq_query", IP, MASK),
    ("dat_srq_resize", IR, MEMORY),
    ("dat_srq_set_lw", MNS, "every provider with shared queues has their low watermark"),
];

/// What a refused call is noted as. Those polled in a loop say nothing of themselves; their codes are theirs alone.
pub(crate) fn noted(call: Option<&str>, code: ReturnCode) -> Option<Met> {
    let kind = code.kind()?;
    let call = call.unwrap_or(match kind {
        QueueEmpty => "dat_evd_dequeue",
        QueueFull => "dat_evd_post_se",
        _ => "dat_evd_wait",
    });
    // The operations of the extension are calls of their own here.
    let call = if call.starts_with("dat_ib_") { "dat_extension_op" } else { call };
    Some(pair(call, kind))
}

fn pair(call: &str, code: ReturnType) -> Met {
    (call.to_owned(), ReturnCode::error(code, Subtype::None).0)
}

/// The codes of the table that are not among `met`.
pub(crate) fn unmet(met: &BTreeSet<Met>) -> Vec<Unmet> {
    let pairs = TABLE.iter().flat_map(|(call, codes)| codes.iter().map(|code| (*call, *code)));
    pairs
        .filter(|(call, code)| !met.contains(&pair(call, *code)))
        .map(|(call, code)| {
            let reason = REASONS.iter().find(|(which, kind, _)| *which == call && *kind == code);
            Unmet { call, code, reason: reason.map(|(_, _, reason)| *reason) }
        })
        .collect()
}

/// Reasons for codes that were met after all.
pub fn stale_reasons(met: &BTreeSet<Met>) -> Vec<(&'static str, ReturnType)> {
    let stale = REASONS.iter().filter(|(call, code, _)| met.contains(&pair(call, *code)));
    stale.map(|(call, code, _)| (*call, *code)).collect()
}

/// How many codes the table has, over all calls.
pub(crate) fn in_table() -> usize {
    TABLE.iter().map(|(_, codes)| codes.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_for_codes_of_the_table() {
        for (call, code, _) in REASONS {
            let known = TABLE.iter().any(|(name, codes)| name == call && codes.contains(code));
            assert!(known, "{call} {code:?}");
        }
    }
}
