//! `dat_ep_create`: handles, attributes, limits.

use dat_types::Error;

use crate::clauses::prelude::*;

clauses! {
    1 "A new endpoint is UNCONNECTED and idle in both directions" => new_endpoint;
    2 "A closed adapter: INVALID_HANDLE" => closed_ia;
    3 "A freed protection zone: INVALID_HANDLE" => freed_pz;
    4 "A receive dispatcher without the DTO flag: INVALID_HANDLE" => recv_evd;
    5 "A request dispatcher without the DTO flag: INVALID_HANDLE" => request_evd;
    6 "A connect dispatcher without the CONNECTION flag: INVALID_HANDLE" => connect_evd;
    7 "No receive dispatcher and max_recv_dtos 0: success" => no_recv_evd;
    8 "No request dispatcher and no requests: success" => no_request_evd;
    9 "No connect dispatcher: success, UNCONNECTED" => no_connect_evd;
    10 "Receives without a receive dispatcher: INVALID_PARAMETER" => recvs_to_nowhere;
    11 "Requests without a request dispatcher: INVALID_PARAMETER" => requests_to_nowhere;
    12 "Without attributes: the provider's defaults, all within the adapter's limits" => defaults;
    13 "Made without attributes: query, status, modify and free succeed" => defaults_usable;
    14 "Made without attributes and zone: connect is refused, still UNCONNECTED" => defaults_not_ready;
    15 "Made without attributes, then modified: connects" => defaults_modified;
    16 "A query shows the explicit attributes of create" => explicit;
    17 "One attribute above the adapter's limit: INVALID_PARAMETER, no endpoint is left" => above_limits;
    18 "An unsupported service type: MODEL_NOT_SUPPORTED" => service_type;
    19 "A quality of service that is not offered: MODEL_NOT_SUPPORTED" => qos;
    20 "One endpoint more than the adapter has: INSUFFICIENT_RESOURCES" => ep_limit;
    22 "Sending from a region of another zone: PROTECTION_VIOLATION" => foreign_zone_send;
    23 "Writing to a region of another zone: REMOTE_ACCESS, the connection breaks" => foreign_zone_write;
    24 "Two dispatchers: receives complete on one, requests on the other" => directions;
    26 "Connection events arrive on the connect dispatcher only" => connection_events;
    36 "Eight threads create at once: all succeed, all handles are distinct" => threads;
    37 "A zone or dispatcher in use cannot be freed; afterwards it can" => in_use;
    38 "max_recv_dtos receives fit, one more does not" => recv_limit;
}

fn create(a: &LocalEnd, attr: &EpAttr) -> Result<Ep, Error> {
    a.ia.ep_create(Some(&a.pz), Some(&a.recv), Some(&a.request), Some(&a.conn), Some(attr))
}

fn attr(a: &LocalEnd) -> Result<EpAttr, Stop> {
    AttrSpec::default().over(&a.ia)
}

fn new_endpoint(t: &TestContext) -> Outcome {
    let a = t.local()?;
    ensure(a.ep.id().0 != 0, "the id of an endpoint is 0")?;
    let status = a.ep.status()?;
    ensure_eq("state", status.state, EpState::Unconnected)?;
    ensure_eq("idle (receives, requests)", (status.recv_idle, status.request_idle), (true, true))
}

fn closed_ia(t: &TestContext) -> Outcome {
    let (a, other) = (t.local()?, t.local()?);
    let attr = attr(&a)?;
    other.ia.close(CloseFlags::Abrupt)?;
    let result = other.ia.ep_create(Some(&a.pz), Some(&a.recv), Some(&a.request), Some(&a.conn), Some(&attr));
    t.refused("on a closed adapter", result, ReturnType::InvalidHandle)
}

fn freed_pz(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let pz = a.ia.pz_create()?;
    pz.free()?;
    let result = a.ia.ep_create(Some(&pz), Some(&a.recv), Some(&a.request), Some(&a.conn), Some(&attr(&a)?));
    t.refused("a freed zone", result, ReturnType::InvalidHandle)
}

/// Each of a dispatcher without the flag, a freed one and another adapter's is refused in place `index`.
fn bad_evd(t: &TestContext, index: usize, flag: EvdFlags) -> Outcome {
    let (a, other) = (t.local()?, t.ia()?);
    let attr = attr(&a)?;
    let unfit = a.ia.evd_create(8, EvdFlags::all() - flag - EvdFlags::ASYNC)?;
    let freed = a.ia.evd_create(8, flag)?;
    freed.free()?;
    let foreign = other.evd_create(8, flag)?;
    for (what, evd) in [("without its flag", &unfit), ("freed", &freed), ("another adapter's", &foreign)] {
        let mut evds = [&a.recv, &a.request, &a.conn];
        evds[index] = evd;
        let result = a.ia.ep_create(Some(&a.pz), Some(evds[0]), Some(evds[1]), Some(evds[2]), Some(&attr));
        t.refused(what, result, ReturnType::InvalidHandle)?;
    }
    Ok(())
}

fn recv_evd(t: &TestContext) -> Outcome {
    bad_evd(t, 0, EvdFlags::DTO)
}

fn request_evd(t: &TestContext) -> Outcome {
    bad_evd(t, 1, EvdFlags::DTO)
}

fn connect_evd(t: &TestContext) -> Outcome {
    bad_evd(t, 2, EvdFlags::CONNECTION)
}

fn no_recv_evd(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let attr = EpAttr { max_recv_dtos: 0, ..attr(&a)? };
    let ep = a.ia.ep_create(Some(&a.pz), None, Some(&a.request), Some(&a.conn), Some(&attr))?;
    ensure(ep.query()?.recv_evd.is_none(), "a query shows a receive dispatcher")
}

fn no_request_evd(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let attr = EpAttr { max_request_dtos: 0, max_request_iov: 0, ..attr(&a)? };
    let ep = a.ia.ep_create(Some(&a.pz), Some(&a.recv), None, Some(&a.conn), Some(&attr))?;
    ensure(ep.query()?.request_evd.is_none(), "a query shows a request dispatcher")
}

fn no_connect_evd(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let ep = a.ia.ep_create(Some(&a.pz), Some(&a.recv), Some(&a.request), None, Some(&attr(&a)?))?;
    ensure_eq("state", ep.state(), EpState::Unconnected)
}

fn recvs_to_nowhere(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let result = a.ia.ep_create(Some(&a.pz), None, Some(&a.request), Some(&a.conn), Some(&attr(&a)?));
    t.refused("receives without a dispatcher", result, ReturnType::InvalidParameter)
}

fn requests_to_nowhere(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let result = a.ia.ep_create(Some(&a.pz), Some(&a.recv), None, Some(&a.conn), Some(&attr(&a)?));
    t.refused("requests without a dispatcher", result, ReturnType::InvalidParameter)
}

fn default_ep(a: &LocalEnd) -> Result<Ep, Error> {
    a.ia.ep_create(Some(&a.pz), Some(&a.recv), Some(&a.request), Some(&a.conn), None)
}

fn defaults(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let (attr, most) = (default_ep(&a)?.query()?.attr, a.ia.query()?);
    let pairs = [
        ("max_message_size", attr.max_message_size, most.max_message_size),
        ("max_rdma_size", attr.max_rdma_size, most.max_rdma_size),
        ("max_recv_dtos", attr.max_recv_dtos.into(), most.max_dto_per_ep.into()),
        ("max_request_dtos", attr.max_request_dtos.into(), most.max_dto_per_ep.into()),
        ("max_recv_iov", attr.max_recv_iov.into(), most.max_iov_segments_per_dto.into()),
        ("max_request_iov", attr.max_request_iov.into(), most.max_iov_segments_per_dto.into()),
        ("max_rdma_read_in", attr.max_rdma_read_in.into(), most.max_rdma_read_per_ep_in.into()),
        ("max_rdma_read_out", attr.max_rdma_read_out.into(), most.max_rdma_read_per_ep_out.into()),
    ];
    for (name, value, most) in pairs {
        ensure(value <= most, format!("{name} is {value}, the adapter has at most {most}"))?;
    }
    ensure(attr.max_recv_dtos > 0 && attr.max_request_dtos > 0, "the default is no operations at all")
}

fn defaults_usable(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let ep = default_ep(&a)?;
    let attr = ep.query()?.attr;
    ep.status()?;
    ep.modify(
        EpMask::MAX_RECV_DTOS,
        &EpModify { attr: EpAttr { max_recv_dtos: 3, ..attr }, ..EpModify::default() },
    )?;
    ensure_eq("max_recv_dtos", ep.query()?.attr.max_recv_dtos, 3)?;
    Ok(ep.free()?)
}

fn defaults_not_ready(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    let ep = a.ia.ep_create(None, Some(&a.recv), Some(&a.request), Some(&a.conn), None)?;
    t.refused("connect", ep.connect(&a.towards(&b)), ReturnType::InvalidState)?;
    ensure_eq("state", ep.state(), EpState::Unconnected)
}

fn defaults_modified(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    let ep = a.ia.ep_create(None, None, None, None, None)?;
    let new = EpModify {
        pz: Some(a.pz.clone()),
        recv_evd: Some(a.recv.clone()),
        request_evd: Some(a.request.clone()),
        connect_evd: Some(a.conn.clone()),
        attr: attr(&a)?,
        ..EpModify::default()
    };
    let mask = EpMask::PZ_HANDLE
        | EpMask::RECV_EVD_HANDLE
        | EpMask::REQUEST_EVD_HANDLE
        | EpMask::CONNECT_EVD_HANDLE
        | EpMask::MAX_RECV_DTOS
        | EpMask::MAX_REQUEST_DTOS
        | EpMask::MAX_RECV_IOV
        | EpMask::MAX_REQUEST_IOV;
    ep.modify(mask, &new)?;
    ep.connect(&a.towards(&b))?;
    b.accept(&b.request()?, b"")?;
    a.expect_event(ConnectionKind::Established)?;
    ensure_eq("state", ep.state(), EpState::Connected)
}

fn explicit(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let wanted = EpAttr {
        max_message_size: 5000,
        max_rdma_size: 6000,
        max_recv_dtos: 5,
        max_request_dtos: 6,
        max_recv_iov: 2,
        max_request_iov: 3,
        max_rdma_read_in: 1,
        max_rdma_read_out: 2,
        ..attr(&a)?
    };
    ensure_eq("attributes", create(&a, &wanted)?.query()?.attr, wanted)
}

fn above_limits(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let most = a.ia.query()?;
    type Change = fn(&mut EpAttr, &dat_types::IaAttr);
    let changes: [(&str, Change); 8] = [
        ("max_message_size", |attr, most| attr.max_message_size = most.max_message_size + 1),
        ("max_rdma_size", |attr, most| attr.max_rdma_size = most.max_rdma_size + 1),
        ("max_recv_dtos", |attr, _| attr.max_recv_dtos = u32::MAX),
        ("max_request_dtos", |attr, _| attr.max_request_dtos = u32::MAX),
        ("max_recv_iov", |attr, most| attr.max_recv_iov = most.max_iov_segments_per_dto + 1),
        ("max_request_iov", |attr, most| attr.max_request_iov = most.max_iov_segments_per_dto + 1),
        ("max_rdma_read_in", |attr, most| attr.max_rdma_read_in = most.max_rdma_read_per_ep_in + 1),
        ("max_rdma_read_out", |attr, most| attr.max_rdma_read_out = most.max_rdma_read_per_ep_out + 1),
    ];
    for (name, change) in changes {
        let mut attr = attr(&a)?;
        change(&mut attr, &most);
        t.refused(name, create(&a, &attr), ReturnType::InvalidParameter)?;
    }
    // Nothing is left behind: everything else freed, the adapter closes gracefully.
    a.ep.free()?;
    a.lmr.free()?;
    for evd in [&a.recv, &a.request, &a.conn, &a.crs] {
        evd.free()?;
    }
    a.pz.free()?;
    Ok(a.ia.close(CloseFlags::Graceful)?)
}

fn service_type(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let result = create(&a, &EpAttr { service_type: ServiceType(77), ..attr(&a)? });
    t.refused("service type 77", result, ReturnType::ModelNotSupported)
}

fn qos(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let offered = a.ia.provider_query()?.qos_supported.0;
    let all = [Qos::HIGH_THROUGHPUT, Qos::LOW_LATENCY, Qos::ECONOMY, Qos::PREMIUM];
    let Some(qos) = all.into_iter().find(|qos| offered & qos.0 == 0) else {
        return not_applicable("the provider offers every quality of service");
    };
    t.refused("create", create(&a, &EpAttr { qos, ..attr(&a)? }), ReturnType::ModelNotSupported)
}

fn ep_limit(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let most = a.ia.query()?.max_eps;
    if most > 70_000 {
        return not_applicable(format!("the adapter has {most} endpoints, too many to use up in a test"));
    }
    // Small and without dispatchers, so that using them all up is quick.
    let attr = EpAttr { max_recv_dtos: 0, max_request_dtos: 0, max_request_iov: 0, ..attr(&a)? };
    let one = || a.ia.ep_create(Some(&a.pz), None, None, None, Some(&attr));
    let mut last = one()?;
    for _ in 2..most {
        last = one()?;
    }
    t.refused("one more", one(), ReturnType::InsufficientResources)?;
    last.free()?;
    one()?;
    Ok(())
}

fn foreign_zone_send(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    b.post_recv(0, 64, 1)?;
    let lmr = a.ia.lmr_create(&a.ia.pz_create()?, a.ia.alloc(4096)?, Privileges::ALL)?;
    let result = a.ep.post_send(&[lmr.triplet(0, 8)], 1, PLAIN);
    t.refused("a send", result, ReturnType::ProtectionViolation)
}

fn foreign_zone_write(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    let region = b.region(Privileges::ALL, true)?;
    a.write(0, 16, 1, region.triplet(0, 16))?;
    a.completes(&a.request, 1, DtoStatus::RemoteAccess)?;
    a.expect_event(ConnectionKind::Broken)?;
    a.is_in(EpState::Disconnected)
}

fn directions(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    a.post_recvs(1)?;
    b.post_recv(0, 64, 1)?;
    a.send(0, 8, 11)?;
    a.write(0, 8, 12, b.target(0, 8))?;
    b.send(0, 8, 1)?;
    let received = a.completes(&a.recv, 0, DtoStatus::Success)?;
    ensure_eq("operation on the receive dispatcher", received.operation, DtoOperation::Receive)?;
    for (cookie, operation) in [(11, DtoOperation::Send), (12, DtoOperation::RdmaWrite)] {
        let dto = a.completes(&a.request, cookie, DtoStatus::Success)?;
        ensure_eq("operation on the request dispatcher", dto.operation, operation)?;
    }
    a.expect_no_event(&a.recv, "A's receive dispatcher")?;
    a.expect_no_event(&a.request, "A's request dispatcher")
}

fn connection_events(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    a.ep.disconnect(CloseFlags::Abrupt)?;
    a.expect_event(ConnectionKind::Disconnected)?;
    b.expect_event(ConnectionKind::Disconnected)?;
    for (what, evd) in [("receive", &a.recv), ("request", &a.request), ("connection request", &a.crs)] {
        a.expect_no_event(evd, &format!("A's {what} dispatcher"))?;
    }
    Ok(())
}

fn threads(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let attr = attr(&a)?;
    let made: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..8).map(|_| scope.spawn(|| (0..16).map(|_| create(&a, &attr)).collect::<Vec<_>>())).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).flatten().collect()
    });
    ensure_eq("creations that came back", made.len(), 128)?;
    let mut ids = std::collections::HashSet::new();
    for ep in made {
        ids.insert(ep?.id());
    }
    ensure_eq("distinct endpoints", ids.len(), 128)
}

fn in_use(t: &TestContext) -> Outcome {
    let a = t.local()?;
    a.lmr.free()?;
    t.refused("freeing the zone", a.pz.free(), ReturnType::InvalidState)?;
    for evd in [&a.recv, &a.request, &a.conn] {
        t.refused("freeing a dispatcher", evd.free(), ReturnType::InvalidState)?;
    }
    a.ep.free()?;
    a.pz.free()?;
    for evd in [&a.recv, &a.request, &a.conn] {
        evd.free()?;
    }
    Ok(())
}

fn recv_limit(t: &TestContext) -> Outcome {
    let a = t.local_with(&AttrSpec { recvs: Some(5), ..AttrSpec::default() })?;
    a.post_recvs(5)?;
    let result = a.ep.post_recv(&[a.lmr.triplet(0, 8)], 5, PLAIN);
    t.refused("one more", result, ReturnType::InsufficientResources)
}
