//! `dat_ep_modify`: rules that hold in every state.

use crate::clauses::prelude::*;

clauses! {
    129 "UNCONNECTED: each modifiable field changes, all others stay" => each_field;
    130 "An empty mask: success, no field changes" => empty_mask;
    131 "A freed endpoint: INVALID_HANDLE" => freed;
    133 "An undefined mask bit: INVALID_PARAMETER" => undefined_bit;
    134 "The adapter cannot be modified" => ia_handle;
    135 "The state cannot be modified" => ep_state;
    136 "The local address cannot be modified" => local_address;
    137 "The local port cannot be modified" => local_port;
    138 "The remote address cannot be modified" => remote_address;
    139 "The remote port cannot be modified" => remote_port;
    140 "CONNECTED: a field that can never change is refused before the state" => never_before_state;
    145 "Receives of the old zone fail with LOCAL_PROTECTION when a message arrives" => old_zone;
    154 "Receive completion flags change while no receive is posted" => recv_flags;
    155 "Receive completion flags do not change while a receive is posted" => recv_flags_posted;
    156 "SUPPRESS and BARRIER_FENCE as new receive attributes: INVALID_PARAMETER" => recv_flags_bad;
    158 "SOLICITED_WAIT as a request attribute: INVALID_PARAMETER" => request_flags_bad;
    159 "SUPPRESS, SOLICITED_WAIT and BARRIER_FENCE are accepted on a send with every request attribute" => per_post_flags;
    166 "Unknown transport-specific names: INVALID_PARAMETER" => transport_list;
    167 "Unknown provider-specific names: INVALID_PARAMETER" => provider_list;
    168 "CONNECTED: transport- and provider-specific lists do not change" => lists_connected;
    169 "A value above the adapter's limit: INVALID_PARAMETER, the endpoint is unchanged" => above_limit;
    170 "Two fields, the second bad: the first does not change either" => atomic;
    171 "A bad handle in the structure: INVALID_PARAMETER" => bad_handle;
    172 "A replaced dispatcher can be freed, its replacement cannot" => references_move;
    173 "Completion flags that disagree with another endpoint's: INVALID_PARAMETER" => modes_disagree;
    174 "DISCONNECTED, reset, then modify: success" => after_reset;
}

/// New values: the attributes as they are, with a change.
fn changed(ep: &Ep, change: impl FnOnce(&mut EpAttr)) -> Result<EpModify, Stop> {
    let mut attr = ep.query()?.attr;
    change(&mut attr);
    Ok(EpModify { attr, ..EpModify::default() })
}

type Field = (EpMask, fn(&mut EpAttr));

/// Every attribute, with another valid value.
const FIELDS: [Field; 14] = [
    (EpMask::SERVICE_TYPE, |attr| attr.service_type = ServiceType::RC),
    (EpMask::QOS, |attr| attr.qos = Qos::BEST_EFFORT),
    (EpMask::MAX_MESSAGE_SIZE, |attr| attr.max_message_size = 4321),
    (EpMask::MAX_RDMA_SIZE, |attr| attr.max_rdma_size = 5432),
    (EpMask::RECV_COMPLETION_FLAGS, |attr| attr.recv_completion_flags = CompletionFlags::UNSIGNALLED),
    (EpMask::REQUEST_COMPLETION_FLAGS, |attr| attr.request_completion_flags = CompletionFlags::UNSIGNALLED),
    (EpMask::MAX_RECV_DTOS, |attr| attr.max_recv_dtos = 7),
    (EpMask::MAX_REQUEST_DTOS, |attr| attr.max_request_dtos = 9),
    (EpMask::MAX_RECV_IOV, |attr| attr.max_recv_iov = 1),
    (EpMask::MAX_REQUEST_IOV, |attr| attr.max_request_iov = 2),
    (EpMask::MAX_RDMA_READ_IN, |attr| attr.max_rdma_read_in = 1),
    (EpMask::MAX_RDMA_READ_OUT, |attr| attr.max_rdma_read_out = 1),
    (EpMask::MAX_RDMA_READ_IOV, |attr| attr.max_rdma_read_iov = 1),
    (EpMask::MAX_RDMA_WRITE_IOV, |attr| attr.max_rdma_write_iov = 1),
];

fn each_field(t: &TestContext) -> Outcome {
    for (mask, change) in FIELDS {
        let a = t.local()?;
        let before = a.ep.query()?;
        let mut wanted = before.attr.clone();
        change(&mut wanted);
        // Fields outside the mask must be ignored, so they hold invalid values.
        let mut new =
            EpModify { attr: EpAttr { max_recv_dtos: u32::MAX, ..EpAttr::default() }, ..EpModify::default() };
        change(&mut new.attr);
        a.ep.modify(mask, &new)?;
        let after = a.ep.query()?;
        ensure_eq(&format!("attributes after {mask:?}"), after.attr, wanted)?;
        ensure_eq("zone", after.pz.map(|pz| pz.id()), before.pz.map(|pz| pz.id()))?;
        ensure_eq(
            "receive dispatcher",
            after.recv_evd.map(|evd| evd.id()),
            before.recv_evd.map(|evd| evd.id()),
        )?;
    }
    let a = t.local()?;
    let pz = a.ia.pz_create()?;
    let evd = a.ia.evd_create(32, EvdFlags::DTO | EvdFlags::CONNECTION)?;
    let new = EpModify {
        pz: Some(pz.clone()),
        recv_evd: Some(evd.clone()),
        request_evd: Some(evd.clone()),
        connect_evd: Some(evd.clone()),
        attr: EpAttr::default(),
        ..EpModify::default()
    };
    let shown = || {
        let param = a.ep.query()?;
        let ids = [param.recv_evd, param.request_evd, param.connect_evd].map(|evd| evd.map(|evd| evd.id()));
        Ok::<_, Stop>((param.pz.map(|pz| pz.id()), ids))
    };
    let old = [Some(a.recv.id()), Some(a.request.id()), Some(a.conn.id())];
    a.ep.modify(EpMask::PZ_HANDLE, &new)?;
    ensure_eq("zone and dispatchers", shown()?, (Some(pz.id()), old))?;
    a.ep.modify(EpMask::RECV_EVD_HANDLE, &new)?;
    ensure_eq("zone and dispatchers", shown()?, (Some(pz.id()), [Some(evd.id()), old[1], old[2]]))?;
    a.ep.modify(EpMask::REQUEST_EVD_HANDLE, &new)?;
    ensure_eq("zone and dispatchers", shown()?, (Some(pz.id()), [Some(evd.id()), Some(evd.id()), old[2]]))?;
    a.ep.modify(EpMask::CONNECT_EVD_HANDLE, &new)?;
    ensure_eq("zone and dispatchers", shown()?, (Some(pz.id()), [Some(evd.id()); 3]))
}

fn empty_mask(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let before = a.ep.query()?.attr;
    a.ep.modify(EpMask::empty(), &EpModify::default())?;
    let after = a.ep.query()?;
    ensure_eq("attributes", after.attr, before)?;
    ensure_eq("zone", after.pz.map(|pz| pz.id()), Some(a.pz.id()))
}

fn freed(t: &TestContext) -> Outcome {
    let a = t.local()?;
    a.ep.free()?;
    let result = a.ep.modify(EpMask::MAX_RECV_DTOS, &EpModify::default());
    t.refused("modify", result, ReturnType::InvalidHandle)
}

fn refused_mask(t: &TestContext, mask: EpMask) -> Outcome {
    let a = t.local()?;
    let new = changed(&a.ep, |_| ())?;
    t.refused(&format!("{mask:?}"), a.ep.modify(mask, &new), ReturnType::InvalidParameter)
}

fn undefined_bit(t: &TestContext) -> Outcome {
    for bit in [31, 32, 63] {
        refused_mask(t, EpMask::from_bits_retain(1 << bit))?;
    }
    Ok(())
}

fn ia_handle(t: &TestContext) -> Outcome {
    refused_mask(t, EpMask::IA_HANDLE)
}

fn ep_state(t: &TestContext) -> Outcome {
    refused_mask(t, EpMask::EP_STATE)
}

fn local_address(t: &TestContext) -> Outcome {
    refused_mask(t, EpMask::LOCAL_IA_ADDRESS)
}

fn local_port(t: &TestContext) -> Outcome {
    refused_mask(t, EpMask::LOCAL_PORT_QUAL)
}

fn remote_address(t: &TestContext) -> Outcome {
    refused_mask(t, EpMask::REMOTE_IA_ADDRESS)
}

fn remote_port(t: &TestContext) -> Outcome {
    refused_mask(t, EpMask::REMOTE_PORT_QUAL)
}

fn never_before_state(t: &TestContext) -> Outcome {
    let (a, _b) = t.pair()?;
    let new = changed(&a.ep, |attr| attr.max_recv_dtos = 3)?;
    let result = a.ep.modify(EpMask::EP_STATE | EpMask::MAX_RECV_DTOS, &new);
    t.refused("modify", result, ReturnType::InvalidParameter)
}

fn old_zone(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    a.post_recvs(1)?;
    let new = EpModify { pz: Some(a.ia.pz_create()?), ..EpModify::default() };
    a.ep.modify(EpMask::PZ_HANDLE, &new)?;
    join(&a, &b)?;
    b.send(0, 8, 1)?;
    a.completes(&a.recv, 0, DtoStatus::LocalProtection)?;
    a.expect_event(ConnectionKind::Broken)
}

fn recv_flags(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let all = [CompletionFlags::UNSIGNALLED, CompletionFlags::SOLICITED_WAIT, CompletionFlags::EVD_THRESHOLD];
    for flags in all {
        let new = changed(&a.ep, |attr| attr.recv_completion_flags = flags)?;
        a.ep.modify(EpMask::RECV_COMPLETION_FLAGS, &new)?;
        ensure_eq("receive attribute", a.ep.query()?.attr.recv_completion_flags, flags)?;
    }
    Ok(())
}

fn recv_flags_posted(t: &TestContext) -> Outcome {
    let a = t.local()?;
    a.post_recvs(1)?;
    let new = changed(&a.ep, |attr| attr.recv_completion_flags = CompletionFlags::UNSIGNALLED)?;
    let result = a.ep.modify(EpMask::RECV_COMPLETION_FLAGS, &new);
    t.refused("modify", result, ReturnType::InvalidState)
}

fn recv_flags_bad(t: &TestContext) -> Outcome {
    let a = t.local()?;
    for flags in [CompletionFlags::SUPPRESS, CompletionFlags::BARRIER_FENCE] {
        let new = changed(&a.ep, |attr| attr.recv_completion_flags = flags)?;
        let result = a.ep.modify(EpMask::RECV_COMPLETION_FLAGS, &new);
        t.refused(&format!("{flags:?}"), result, ReturnType::InvalidParameter)?;
    }
    Ok(())
}

fn request_flags_bad(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let new = changed(&a.ep, |attr| attr.request_completion_flags = CompletionFlags::SOLICITED_WAIT)?;
    let result = a.ep.modify(EpMask::REQUEST_COMPLETION_FLAGS, &new);
    t.refused("modify", result, ReturnType::InvalidParameter)
}

fn per_post_flags(t: &TestContext) -> Outcome {
    let posts = [CompletionFlags::SUPPRESS, CompletionFlags::SOLICITED_WAIT, CompletionFlags::BARRIER_FENCE];
    for attribute in [PLAIN, CompletionFlags::EVD_THRESHOLD, CompletionFlags::UNSIGNALLED] {
        let (a, b) = t.ends()?;
        let new = changed(&a.ep, |attr| attr.request_completion_flags = attribute)?;
        a.ep.modify(EpMask::REQUEST_COMPLETION_FLAGS, &new)?;
        join(&a, &b)?;
        for (cookie, flags) in (0..).zip(posts) {
            b.post_recv(0, 64, cookie)?;
            a.ep.post_send(&[a.lmr.triplet(0, 8)], cookie, flags)?;
            b.receives(cookie, DtoStatus::Success)?;
        }
    }
    Ok(())
}

fn unknown_name() -> Vec<(String, String)> {
    vec![("DAT_NO_SUCH_ATTRIBUTE".into(), "1".into())]
}

fn transport_list(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let new = changed(&a.ep, |attr| attr.transport_specific = unknown_name())?;
    t.refused("modify", a.ep.modify(EpMask::TRANSPORT_SPECIFIC, &new), ReturnType::InvalidParameter)?;
    let known = changed(&a.ep, |attr| *attr = attr.clone().single_threaded())?;
    a.ep.modify(EpMask::TRANSPORT_SPECIFIC, &known)?;
    ensure_eq("what a query shows", a.ep.query()?.attr.is_single_threaded(), true)?;
    Ok(a.ep.modify(EpMask::TRANSPORT_SPECIFIC, &changed(&a.ep, |attr| attr.transport_specific.clear())?)?)
}

fn provider_list(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let new = changed(&a.ep, |attr| attr.provider_specific = unknown_name())?;
    t.refused("modify", a.ep.modify(EpMask::PROVIDER_SPECIFIC, &new), ReturnType::InvalidParameter)?;
    Ok(a.ep.modify(EpMask::PROVIDER_SPECIFIC, &changed(&a.ep, |attr| attr.provider_specific.clear())?)?)
}

fn lists_connected(t: &TestContext) -> Outcome {
    let (a, _b) = t.pair()?;
    let new = changed(&a.ep, |_| ())?;
    for mask in [EpMask::TRANSPORT_SPECIFIC, EpMask::PROVIDER_SPECIFIC] {
        t.refused(&format!("{mask:?}"), a.ep.modify(mask, &new), ReturnType::InvalidState)?;
    }
    Ok(())
}

fn above_limit(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let (before, most) = (a.ep.query()?.attr, a.ia.query()?);
    let new = changed(&a.ep, |attr| attr.max_message_size = most.max_message_size + 1)?;
    t.refused("modify", a.ep.modify(EpMask::MAX_MESSAGE_SIZE, &new), ReturnType::InvalidParameter)?;
    let new = changed(&a.ep, |attr| attr.max_recv_dtos = u32::MAX)?;
    t.refused("modify", a.ep.modify(EpMask::MAX_RECV_DTOS, &new), ReturnType::InvalidParameter)?;
    ensure_eq("attributes", a.ep.query()?.attr, before)
}

fn atomic(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let before = a.ep.query()?.attr;
    let new = changed(&a.ep, |attr| {
        attr.max_recv_dtos = 3;
        attr.max_request_iov = u32::MAX;
    })?;
    let result = a.ep.modify(EpMask::MAX_RECV_DTOS | EpMask::MAX_REQUEST_IOV, &new);
    t.refused("modify", result, ReturnType::InvalidParameter)?;
    ensure_eq("attributes", a.ep.query()?.attr, before)?;
    // The first field did not take effect either: more than 3 receives fit.
    a.post_recvs(4)
}

fn bad_handle(t: &TestContext) -> Outcome {
    let (a, other) = (t.local()?, t.ia()?);
    let freed = a.ia.pz_create()?;
    freed.free()?;
    for (what, pz) in [("a freed zone", freed), ("another adapter's zone", other.pz_create()?)] {
        let new = EpModify { pz: Some(pz), ..EpModify::default() };
        t.refused(what, a.ep.modify(EpMask::PZ_HANDLE, &new), ReturnType::InvalidParameter)?;
    }
    let new = EpModify { recv_evd: Some(a.conn.clone()), ..EpModify::default() };
    let result = a.ep.modify(EpMask::RECV_EVD_HANDLE, &new);
    t.refused("a dispatcher of another kind", result, ReturnType::InvalidParameter)?;
    ensure_eq("receive dispatcher", a.ep.query()?.recv_evd.map(|evd| evd.id()), Some(a.recv.id()))
}

fn references_move(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let new = EpModify { recv_evd: Some(a.ia.evd_create(32, EvdFlags::DTO)?), ..EpModify::default() };
    a.ep.modify(EpMask::RECV_EVD_HANDLE, &new)?;
    a.recv.free()?;
    let Some(evd) = new.recv_evd else { return fail("the new dispatcher is gone") };
    t.refused("freeing the new dispatcher", evd.free(), ReturnType::InvalidState)
}

fn modes_disagree(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let _other = a.another_ep()?;
    let new = changed(&a.ep, |attr| attr.request_completion_flags = CompletionFlags::UNSIGNALLED)?;
    let result = a.ep.modify(EpMask::REQUEST_COMPLETION_FLAGS, &new);
    t.refused("modify", result, ReturnType::InvalidParameter)
}

fn after_reset(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    a.ep.disconnect(CloseFlags::Abrupt)?;
    a.expect_event(ConnectionKind::Disconnected)?;
    b.expect_event(ConnectionKind::Disconnected)?;
    a.ep.reset()?;
    b.reset()?;
    let new = changed(&a.ep, |attr| attr.max_recv_dtos = 2)?;
    a.ep.modify(EpMask::MAX_RECV_DTOS, &new)?;
    a.post_recvs(2)?;
    let result = a.ep.post_recv(&[a.lmr.triplet(0, 8)], 2, PLAIN);
    t.refused("a third receive", result, ReturnType::InsufficientResources)?;
    join(&a, &b)
}
