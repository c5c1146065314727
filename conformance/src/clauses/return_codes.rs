//! Return codes of misuse that no other chapter covers.

use dat_engine::Ia;
use dat_plugin::Caps;
use dat_types::{Comm, SrqAttr};

use crate::clause::PLUGIN;
use crate::clauses::prelude::*;
use crate::clauses::service_points::common::listen;
use crate::os;

clauses! {
    PLUGIN + 18 "Calls on freed notification objects, dispatchers and memory: INVALID_HANDLE" => gone_objects;
    PLUGIN + 19 "Calls on freed endpoints and service points: INVALID_HANDLE" => gone_endpoints;
    PLUGIN + 20 "Calls that name a freed adapter, zone or dispatcher: INVALID_HANDLE" => gone_parents;
    PLUGIN + 21 "Shared receive queues: freed handles, bad arguments, missing rights" => [Srqs] shared_queues;
    PLUGIN + 22 "Arguments out of range, and objects the provider lacks" => arguments;
    PLUGIN + 23 "Posts: flags, zones, rights, states, lengths" => posts;
    PLUGIN + 24 "A full request queue refuses posts and binds: INSUFFICIENT_RESOURCES" => [Windows] full;
    PLUGIN + 25 "A send with invalidate is checked like a send, or is not supported" => invalidating;
    PLUGIN + 26 "A provider without resources: INSUFFICIENT_RESOURCES" => [Faults] no_resources;
    PLUGIN + 27 "Common connect: arguments, address, communicator, state" => common_connect;
    PLUGIN + 28 "A signal during a wait for notifications: INTERRUPTED_CALL" => interrupted;
    PLUGIN + 29 "More endpoints or windows than the adapter has: INSUFFICIENT_RESOURCES" => [Faults, Alone] too_many;
}

use ReturnType::{
    InsufficientResources as IR, InvalidHandle as IH, InvalidParameter as IP, InvalidState as IS,
    LengthError as LE, ModelNotSupported as MNS, PrivilegesViolation as PRIV, ProtectionViolation as PROT,
};

fn gone_objects(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let cno = a.ia.cno_create(None)?;
    cno.free()?;
    t.refused("modifying an agent", cno.modify_agent(None), IH)?;
    t.refused("querying a notification object", cno.query(), IH)?;
    t.refused("waiting for it", cno.wait(Timeout::from(t.short())), IH)?;
    let evd = a.ia.evd_create(8, EvdFlags::SOFTWARE)?;
    t.refused("attaching it", evd.modify_cno(Some(&cno)), IH)?;
    t.refused("a dispatcher for it", a.ia.evd_create_with_cno(8, Some(&cno), EvdFlags::SOFTWARE), IH)?;
    let fd = a.ia.cno_fd_create()?;
    fd.free()?;
    t.refused("its trigger", fd.trigger(), IH)?;
    evd.free()?;
    t.refused("disabling a dispatcher", evd.set_enabled(false), IH)?;
    t.refused("enabling it", evd.set_enabled(true), IH)?;
    t.refused("making it unwaitable", evd.set_waitable(false), IH)?;
    t.refused("making it waitable", evd.set_waitable(true), IH)?;
    t.refused("resizing it", evd.resize(16), IH)?;
    t.refused("an event of the consumer's", evd.post_se(1), IH)?;
    t.refused("its context", evd.set_consumer_context(1), IH)?;
    if let Ok(rmr) = a.ia.rmr_create(&a.pz) {
        rmr.free()?;
        t.refused("querying a window", rmr.query(), IH)?;
        let range = (a.lmr.memory().addr(), 64, Privileges::REMOTE_READ);
        let bound = rmr.bind(Some(&a.lmr), range.0, range.1, range.2, &a.ep, 1, PLAIN);
        t.refused("binding it", bound, IH)?;
    }
    Ok(())
}

fn gone_endpoints(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let csp = listen(&a)?;
    csp.free()?;
    t.refused("querying a common service point", csp.query(), IH)?;
    let pending = t.pending_request(PspFlags::Consumer, b"")?;
    pending.cr.reject(b"")?;
    t.refused("handing off a request", pending.cr.handoff(pending.psp.conn_qual()), IH)?;
    let qual = a.free_qual()?;
    a.ep.free()?;
    t.refused("how many receives it has", a.ep.recv_query(), IH)?;
    t.refused("its watermarks", a.ep.set_watermark(Some(1), None), IH)?;
    t.refused("its counters", a.ep.counters(false), IH)?;
    t.refused("reserving it", a.ia.rsp_create(qual, Some(&a.ep), &a.crs), IH)?;
    let address = (a.ia.query()?.address, 1024).into();
    t.refused("connecting it", a.ep.common_connect(address, Timeout::from(t.short()), b""), IH)?;
    let (sink, from) = (RmrTriplet::default(), RmrTriplet::default());
    t.refused_as("reading into a window", a.ep.post_rdma_read_to_rmr(sink, 1, from, PLAIN), &[IH, MNS])?;
    t.refused_as("an invalidating send", a.ep.post_send_with_invalidate(&[], 1, PLAIN, 1), &[IH, MNS])
}

fn gone_parents(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let spare = a.ia.evd_create(8, EvdFlags::CR)?;
    spare.free()?;
    let address: std::net::IpAddr = a.ia.query()?.address;
    t.refused("a public service point", a.ia.psp_create(a.free_qual()?, &spare, PspFlags::Consumer), IH)?;
    t.refused("a reserved one", a.ia.rsp_create(a.free_qual()?, Some(&a.ep), &spare), IH)?;
    let common = a.ia.csp_create(Comm::of(address), (address, 0).into(), &spare);
    t.refused("a common one", common, IH)?;
    a.is_in(EpState::Unconnected)?;
    let zone = a.ia.pz_create()?;
    zone.free()?;
    t.refused("a window", a.ia.rmr_create(&zone), IH)?;
    t.refused("a window of an endpoint", a.ia.rmr_create_for_ep(&zone), IH)?;
    t.refused_as("a shared queue", a.ia.srq_create(&zone, &depth(8)), &[IH, MNS])?;
    let ia = t.ia()?;
    ia.close(CloseFlags::Graceful)?;
    t.refused("its counters", ia.counters(false), IH)?;
    t.refused("a zone", ia.pz_create(), IH)?;
    t.refused("a dispatcher", ia.evd_create(8, EvdFlags::DTO), IH)?;
    t.refused("a notification object", ia.cno_create(None), IH)?;
    t.refused("one with a descriptor", ia.cno_fd_create(), IH)?;
    t.refused("before a peer reads", ia.lmr_sync_rdma_read(&[]), IH)?;
    t.refused("after a peer wrote", ia.lmr_sync_rdma_write(&[]), IH)
}

fn depth(max_recv_dtos: u32) -> SrqAttr {
    SrqAttr { max_recv_dtos, max_recv_iov: 2, low_watermark: 0 }
}

fn shared_queues(t: &TestContext) -> Outcome {
    let a = t.local()?;
    let srq = a.ia.srq_create(&a.pz, &depth(8))?;
    let unreadable = a.ia.lmr_create(&a.pz, a.ia.alloc(64)?, Privileges::LOCAL_READ)?;
    t.refused("a region without local write", srq.post_recv(&[unreadable.triplet(0, 8)], 1), PRIV)?;
    let good = AttrSpec::default().over(&a.ia)?;
    let make = |attr: &EpAttr| {
        let (recv, request) = (Some(&a.recv), Some(&a.request));
        a.ia.ep_create_with_srq(Some(&a.pz), recv, request, Some(&a.conn), &srq, attr)
    };
    let inconsistent = EpAttr { max_message_size: u64::MAX, ..good.clone() };
    t.refused("a message of any size", make(&inconsistent), IP)?;
    let datagrams = EpAttr { service_type: ServiceType(1), ..good.clone() };
    t.refused("another service", make(&datagrams), MNS)?;
    srq.free()?;
    t.refused("an endpoint for a queue that is gone", make(&good), IH)?;
    t.refused("posting", srq.post_recv(&[a.lmr.triplet(0, 8)], 2), IH)?;
    t.refused("querying", srq.query(), IH)?;
    t.refused("resizing", srq.resize(16), IH)?;
    t.refused("its low watermark", srq.set_low_watermark(1), IH)
}

fn arguments(t: &TestContext) -> Outcome {
    let pending = t.pending_request(PspFlags::Consumer, b"")?;
    let a = &pending.a;
    let too_much = vec![0; a.ia.provider_query()?.max_private_data_size as usize + 1];
    t.refused("too much private data with a rejection", pending.cr.reject(&too_much), IP)?;
    pending.cr.reject(b"")?;
    t.refused("a dispatcher without room", a.recv.resize(0), IP)?;
    t.refused("qualifier 0", a.ia.psp_create(0, &a.crs, PspFlags::Consumer), IP)?;
    t.refused("reserving qualifier 0", a.ia.rsp_create(0, Some(&a.ep), &a.crs), IP)?;
    a.is_in(EpState::Unconnected)?;
    match t.subject.caps().contains(Caps::SRQ) {
        true => Ok(()),
        false => t.refused("a shared queue where there are none", a.ia.srq_create(&a.pz, &depth(8)), MNS),
    }
}

fn posts(t: &TestContext) -> Outcome {
    let (a, b) = t.pair()?;
    let zone = a.ia.pz_create()?;
    let foreign = a.ia.lmr_create(&zone, a.ia.alloc(64)?, Privileges::ALL)?.triplet(0, 8);
    let readable = a.ia.lmr_create(&a.pz, a.ia.alloc(64)?, Privileges::LOCAL_READ)?.triplet(0, 8);
    let writable = a.ia.lmr_create(&a.pz, a.ia.alloc(64)?, Privileges::LOCAL_WRITE)?.triplet(0, 8);
    let far = b.target(0, 8);
    let most = AttrSpec::default().over(&a.ia)?;
    let long = |iov: u32| vec![a.lmr.triplet(0, 1); iov as usize + 1];
    t.refused("a receive of many segments", a.ep.post_recv(&long(most.max_recv_iov), 1, PLAIN), IP)?;
    t.refused("a receive elsewhere", a.ep.post_recv(&[foreign], 1, PLAIN), PROT)?;
    let many = a.ep.post_rdma_write(&long(most.max_request_iov), 1, far, PLAIN);
    t.refused("a write of many segments", many, IP)?;
    t.refused("a write from elsewhere", a.ep.post_rdma_write(&[foreign], 1, far, PLAIN), PROT)?;
    t.refused("a write of what cannot be read", a.ep.post_rdma_write(&[writable], 1, far, PLAIN), PRIV)?;
    t.refused("a read to elsewhere", a.ep.post_rdma_read(&[foreign], 1, far, PLAIN), PROT)?;
    t.refused("a read to what cannot be written", a.ep.post_rdma_read(&[readable], 1, far, PLAIN), PRIV)?;
    into_a_window(t, &a, &b, far)
}

/// Reads whose sink is a window, where there are any.
fn into_a_window(t: &TestContext, a: &LocalEnd, b: &RemoteEnd, far: RmrTriplet) -> Outcome {
    let Ok(rmr) = a.ia.rmr_create(&a.pz) else { return Ok(()) };
    let (start, rights) = (a.lmr.memory().addr(), Privileges::REMOTE_WRITE);
    let context = rmr.bind(Some(&a.lmr), start, 64, rights, &a.ep, 1, PLAIN)?;
    a.bound(1, DtoStatus::Success)?;
    let sink = RmrTriplet { address: start, length: 8, context };
    match a.ep.post_rdma_read_to_rmr(RmrTriplet { length: 4, ..sink }, 2, far, PLAIN) {
        Err(error) if error.kind() == MNS => return t.refused("a sink", Err::<(), _>(error), MNS),
        result => t.refused("a sink that is too short", result, LE)?,
    }
    let outside = RmrTriplet { address: start + 60, ..sink };
    t.refused("a sink outside of its window", a.ep.post_rdma_read_to_rmr(outside, 2, far, PLAIN), IP)?;
    let idle = a.another_ep()?;
    t.refused("on an idle endpoint", idle.post_rdma_read_to_rmr(sink, 2, far, PLAIN), IS)?;
    let zone = a.ia.pz_create()?;
    let attr = AttrSpec::default().over(&a.ia)?;
    let (recv, request, conn) = (Some(&a.recv), Some(&a.request), Some(&a.conn));
    let other = a.ia.ep_create(Some(&zone), recv, request, conn, Some(&attr))?;
    // State and zone are both wrong: the state is looked at first, as by every post.
    t.refused("on an idle endpoint of another zone", other.post_rdma_read_to_rmr(sink, 2, far, PLAIN), IS)?;
    other.connect(&ConnectOptions { conn_qual: 7, ..a.towards(b) })?;
    a.expect_event(ConnectionKind::NonPeerRejected)?;
    t.refused("disconnected, another zone", other.post_rdma_read_to_rmr(sink, 2, far, PLAIN), PROT)
}

/// A request queue of one, and a send that cannot end.
fn full(t: &TestContext) -> Outcome {
    let few = AttrSpec { requests: Some(2), ..AttrSpec::default() };
    let (a, b) = t.pair_with(&few, &AttrSpec::default())?;
    let rmr = a.ia.rmr_create(&a.pz)?;
    let start = a.lmr.memory().addr();
    let context = rmr.bind(Some(&a.lmr), start, 64, Privileges::REMOTE_WRITE, &a.ep, 1, PLAIN)?;
    a.bound(1, DtoStatus::Success)?;
    for cookie in 2..4 {
        a.send(0, 8, cookie)?;
    }
    let (one, far) = ([a.lmr.triplet(0, 8)], b.target(0, 8));
    t.refused("a write", a.ep.post_rdma_write(&one, 4, far, PLAIN), IR)?;
    t.refused("a read", a.ep.post_rdma_read(&one, 4, far, PLAIN), IR)?;
    let again = rmr.bind(Some(&a.lmr), start, 32, Privileges::REMOTE_WRITE, &a.ep, 4, PLAIN);
    t.refused("a bind", again, IR)?;
    let sink = RmrTriplet { address: start, length: 8, context };
    t.refused_as("a read into a window", a.ep.post_rdma_read_to_rmr(sink, 4, far, PLAIN), &[IR, MNS])?;
    let result = a.ep.post_send_with_invalidate(&one, 4, PLAIN, 1);
    t.refused_as("an invalidating send", result, &[IR, MNS])
}

fn invalidating(t: &TestContext) -> Outcome {
    let (a, _b) = t.pair()?;
    let post = |ep: &Ep, iov: &[LmrTriplet], flags| ep.post_send_with_invalidate(iov, 1, flags, 1);
    let one = a.lmr.triplet(0, 8);
    if !t.subject.caps().contains(Caps::SEND_INVALIDATE) {
        return t.refused("an invalidating send", post(&a.ep, &[one], PLAIN), MNS);
    }
    let idle = a.another_ep()?;
    t.refused("on an idle endpoint", post(&idle, &[one], PLAIN), IS)?;
    t.refused("as one that is unsignalled", post(&a.ep, &[one], CompletionFlags::UNSIGNALLED), IP)?;
    let zone = a.ia.pz_create()?;
    let foreign = a.ia.lmr_create(&zone, a.ia.alloc(64)?, Privileges::ALL)?.triplet(0, 8);
    t.refused("from elsewhere", post(&a.ep, &[foreign], PLAIN), PROT)?;
    let writable = a.ia.lmr_create(&a.pz, a.ia.alloc(64)?, Privileges::LOCAL_WRITE)?.triplet(0, 8);
    t.refused("of what cannot be read", post(&a.ep, &[writable], PLAIN), PRIV)
}

fn no_resources(t: &TestContext) -> Outcome {
    let faulty =
        |fault: &str| LocalEnd::new(t.subject.open_faulty(fault)?, &AttrSpec::default(), t.fixture.clone());
    let a = faulty("listen")?;
    let address: std::net::IpAddr = a.ia.query()?.address;
    t.refused("a service point", a.ia.psp_create(4321, &a.crs, PspFlags::Consumer), IR)?;
    t.refused("one anywhere", a.ia.psp_create_any(&a.crs, PspFlags::Consumer), IR)?;
    t.refused("a reserved one", a.ia.rsp_create(4321, Some(&a.ep), &a.crs), IR)?;
    a.is_in(EpState::Unconnected)?;
    let common = a.ia.csp_create(Comm::of(address), (address, 0).into(), &a.crs);
    t.refused("a common one", common, IR)?;
    let b = t.remote()?;
    let a = faulty("connect")?;
    let socket = (b.address.ip(), b.port as u16).into();
    t.refused("a common connect", a.ep.common_connect(socket, Timeout::from(t.long()), b""), IR)?;
    let ia: Ia = t.subject.open_faulty("register")?;
    let zone = ia.pz_create()?;
    let memory = ia.alloc(64)?;
    t.refused("a region", ia.lmr_create(&zone, memory, Privileges::ALL), IR)
}

fn common_connect(t: &TestContext) -> Outcome {
    let (a, b) = t.ends()?;
    let address = (b.address.ip(), b.port as u16).into();
    let time = Timeout::from(t.long());
    t.refused("no time", a.ep.common_connect(address, Timeout::ZERO, b""), IP)?;
    let multicast = (std::net::Ipv4Addr::new(224, 0, 0, 1), 4000).into();
    t.refused("a multicast address", a.ep.common_connect(multicast, time, b""), ReturnType::InvalidAddress)?;
    let strange = EpModify { comm: Comm { kind: 2, ..Comm::of(b.address.ip()) }, ..EpModify::default() };
    a.ep.modify(EpMask::COMM, &strange)?;
    let unknown = ReturnType::CommNotSupported;
    t.refused("an unknown communicator", a.ep.common_connect(address, time, b""), unknown)?;
    let (ep, _conn) = a.separate_ep()?;
    a.ep.modify(EpMask::COMM, &EpModify { comm: Comm::of(b.address.ip()), ..EpModify::default() })?;
    a.ep.common_connect(address, time, b"")?;
    t.refused("twice", a.ep.common_connect(address, time, b""), IS)?;
    b.reject(&b.request()?, b"")?;
    a.expect_event(ConnectionKind::PeerRejected)?;
    let some = EpAttr { qos: Qos(2), ..ep.query()?.attr };
    match ep.modify(EpMask::QOS, &EpModify { attr: some, ..EpModify::default() }) {
        Err(error) => t.refused("a quality that is not offered", Err::<(), _>(error), IP),
        Ok(()) => Ok(()),
    }
}

/// As C-245, of a notification object.
fn interrupted(t: &TestContext) -> Outcome {
    let a = t.local()?;
    if a.ia.provider_query()?.is_signal_safe {
        return not_applicable("waits of a provider that is signal-safe go on");
    }
    let cno = a.ia.cno_create(None)?;
    let time = Timeout::from(t.long());
    let waits = cno.clone();
    let waiter = std::thread::spawn(move || waits.wait(time).map(|_| ()));
    t.pause();
    while !waiter.is_finished() {
        os::interrupt(&waiter);
        std::thread::sleep(Duration::from_millis(5));
    }
    let waited = waiter.join().map_err(|_| Stop::Failed("the waiter panicked".into()))?;
    t.refused("the wait", waited, ReturnType::InterruptedCall)
}

/// A provider that fails on demand has limits on demand, too.
fn too_many(t: &TestContext) -> Outcome {
    let ia = t.subject.open_param("max_regions", "3")?;
    let zone = ia.pz_create()?;
    let windows: Vec<_> = (0..3).map(|_| ia.rmr_create(&zone)).collect::<Result<_, _>>()?;
    t.refused("a window more", ia.rmr_create(&zone), IR)?;
    drop(windows);
    let ia = t.subject.open_param("max_channels", "1")?;
    let a = LocalEnd::new(ia, &AttrSpec::default(), t.fixture.clone())?;
    let srq = a.ia.srq_create(&a.pz, &depth(8))?;
    let attr = AttrSpec::default().over(&a.ia)?;
    let (recv, request, conn) = (Some(&a.recv), Some(&a.request), Some(&a.conn));
    let made = a.ia.ep_create_with_srq(Some(&a.pz), recv, request, conn, &srq, &attr);
    t.refused("an endpoint more", made, IR)
}
