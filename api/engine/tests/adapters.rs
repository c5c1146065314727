//! Opening and closing adapters, what depends on what, and kinds of memory.

mod support;

use std::sync::Arc;
use std::time::Duration;

use dat_engine::{AsyncEvd, Ia, IaOptions, Memory, Origin, Region};
use dat_plugin::host::Device;
use dat_plugin::{Config, Provider};
use dat_types::{
    CloseFlags, Comm, CompletionFlags, ConnectionKind, EvdFlags, HandleType, LmrCookie, LmrTriplet, MemTypes,
    Privileges, PspFlags, Result, ReturnType, SrqAttr, Subtype, Timeout, VaType,
};
use support::{LONG, Node, connected, device, domain};

fn open(name: &str, async_evd: AsyncEvd) -> Result<Ia> {
    Ia::open_with(device(&domain()), name, "test 1.2", IaOptions::default(), async_evd)
}

#[test]
fn an_adapter_may_share_the_async_dispatcher_of_another_open_of_it() {
    let name = "shared-async";
    let nobody = open(name, AsyncEvd::Exists).map(|_| ()).unwrap_err();
    assert_eq!((nobody.kind(), nobody.subtype()), (ReturnType::InvalidHandle, Subtype::HandleEvdAsync));
    let first = open(name, AsyncEvd::Own).unwrap();
    let own = first.query_async_evd().unwrap().unwrap();
    assert!(own.query().unwrap().qlen >= 16 && own.query().unwrap().cno.is_none());

    let out_of_scope = open(name, AsyncEvd::Exists).unwrap();
    assert!(out_of_scope.query_async_evd().unwrap().is_none());
    let second = open(name, AsyncEvd::Shared(own.clone())).unwrap();
    assert_eq!(second.query_async_evd().unwrap().unwrap().id(), own.id());
    assert_eq!(own.free().unwrap_err().kind(), ReturnType::InvalidState);
    for ia in [second, out_of_scope] {
        ia.close(CloseFlags::Graceful).unwrap();
        own.query().unwrap();
    }

    let other = open("another", AsyncEvd::Own).unwrap();
    let data = other.evd_create(4, EvdFlags::DTO).unwrap();
    for wrong in [other.async_evd(), data] {
        let error = open(name, AsyncEvd::Shared(wrong)).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ReturnType::InvalidHandle);
    }
    first.close(CloseFlags::Graceful).unwrap();
    assert_eq!(own.query().unwrap_err().kind(), ReturnType::InvalidHandle);
    assert_eq!(open(name, AsyncEvd::Shared(own)).map(|_| ()).unwrap_err().kind(), ReturnType::InvalidHandle);
    assert!(open(name, AsyncEvd::Exists).is_err());
}

#[test]
fn an_async_dispatcher_of_the_consumers_outlives_what_uses_it() {
    let first = open("made", AsyncEvd::Own).unwrap();
    let made = first.evd_create(4, EvdFlags::ASYNC).unwrap();
    let second = open("made", AsyncEvd::Shared(made.clone())).unwrap();
    assert_eq!(made.free().unwrap_err().subtype(), Subtype::EvdInUse);
    second.close(CloseFlags::Abrupt).unwrap();
    assert!(made.poll().unwrap().is_none());
    made.free().unwrap();
}

/// What a device has to say when it closes, and the ports it has, cannot wait for a consumer to drop the last handle of
/// an adapter it closed. Memory that is the device's does keep it.
#[test]
fn an_abrupt_close_closes_the_device_whatever_handles_are_left() {
    let mut config = Config::default();
    config.params.insert("domain".into(), domain());
    let below = <dat_loopback::Loopback as Provider>::open(&config).unwrap();
    let opened = || Arc::strong_count(&below) - 1;
    assert_eq!(opened(), 0);
    let ia = Ia::open(Device::of(below.clone()).unwrap(), "handles", "0", IaOptions::default()).unwrap();
    let mut a = Node::of(Arc::new(ia));
    a.lmr.free().unwrap();
    a.lmr = a.ia.lmr_create(&a.pz, Memory::heap(4096), Privileges::ALL).unwrap();
    let (listening, b) = (a.ia.psp_create_any(&a.conn, PspFlags::Consumer).unwrap(), Node::new());
    a.ep.post_recv(&[a.lmr.triplet(0, 8)], 1, CompletionFlags::empty()).unwrap();
    b.connect(listening.conn_qual());
    a.request().0.accept(Some(&a.ep), b"").unwrap();
    assert_eq!([a.conn(), b.conn()], [ConnectionKind::Established; 2]);
    let srq =
        a.ia.srq_create(&a.pz, &SrqAttr { max_recv_dtos: 4, max_recv_iov: 1, low_watermark: 0 }).unwrap();
    // Also an object that a thread waits on: its descriptors are kept with the handle.
    assert!(a.dto.arm().unwrap());
    let freed = a.ia.evd_create(4, EvdFlags::DTO).unwrap();
    freed.free().unwrap();
    assert!(opened() > 0);
    a.ia.close(CloseFlags::Abrupt).unwrap();
    assert_eq!(opened(), 0, "something keeps the device");
    assert_eq!(b.conn(), ConnectionKind::Disconnected);
    assert_eq!(a.dto.poll().unwrap_err().kind(), ReturnType::InvalidHandle);
    assert_eq!(a.dto.wait(LONG, 1).unwrap_err().error.kind(), ReturnType::InvalidHandle);
    drop((a, listening, srq, freed));
}

#[test]
fn attributes_are_complete_and_consistent() {
    let side = Node::new();
    let (ia, provider) = (side.ia.query().unwrap(), side.ia.provider_query().unwrap());
    assert!(provider.max_private_data_size >= 64);
    assert_eq!(256 % provider.optimal_buffer_alignment, 0);
    let matrix = provider.evd_stream_merging_supported;
    for (i, row) in matrix.iter().enumerate() {
        assert!(row[i]);
        for (j, merges) in row.iter().enumerate() {
            assert_eq!(*merges, matrix[j][i]);
        }
    }
    assert_eq!(provider.lmr_mem_types_supported, MemTypes::LMR | MemTypes::SHARED_VIRTUAL);
    assert_eq!(provider.dapl_version, (2, 0));
    assert!(provider.is_thread_safe && !provider.lmr_sync_req && !ia.zb_supported);
    assert_eq!(provider.srq_supported, ia.max_srqs > 0);
    let named = |name: &str| provider.provider_specific.iter().any(|(known, _)| known == name);
    assert!(named("DAT_IB_FETCH_AND_ADD") && named("DAT_COUNTERS"));
    assert!(ia.max_rdma_read_in >= ia.max_rdma_read_per_ep_in);
}

/// Every pair of kinds may share a dispatcher, says the attribute; so may all sets of them.
#[test]
fn any_kinds_of_events_may_share_a_dispatcher() {
    let side = Node::new();
    for set in 1..1u32 << EvdFlags::STREAMS.len() {
        let kinds = EvdFlags::STREAMS.iter().enumerate().filter(|(index, _)| set & 1 << index != 0);
        let flags = kinds.fold(EvdFlags::empty(), |flags, (_, kind)| flags | *kind);
        let evd = side.ia.evd_create(4, flags).unwrap();
        let param = evd.query().unwrap();
        assert_eq!((param.flags, param.qlen >= 4), (flags, true));
        evd.free().unwrap();
    }
    for undefined in [EvdFlags::empty(), EvdFlags::from_bits_retain(0x2), EvdFlags::from_bits_retain(0x8020)]
    {
        assert_eq!(side.ia.evd_create(4, undefined).unwrap_err().kind(), ReturnType::InvalidParameter);
    }
}

/// Asynchronous errors are no completions: with them only the threshold mode goes (K-8).
#[test]
fn a_dispatcher_that_takes_asynchronous_errors_has_no_modes() {
    let first = open("mixed", AsyncEvd::Own).unwrap();
    let mixed = first.evd_create(64, EvdFlags::ASYNC | EvdFlags::DTO).unwrap();
    let pz = first.pz_create().unwrap();
    let attr = dat_types::EpAttr {
        recv_completion_flags: CompletionFlags::UNSIGNALLED,
        max_request_dtos: 0,
        max_request_iov: 0,
        ..dat_types::EpAttr::default()
    };
    let create = || first.ep_create(Some(&pz), Some(&mixed), None, None, Some(&attr));
    create().unwrap().free().unwrap();
    let second = open("mixed", AsyncEvd::Shared(mixed.clone())).unwrap();
    assert_eq!(create().unwrap_err().kind(), ReturnType::InvalidParameter);
    second.close(CloseFlags::Graceful).unwrap();
    create().unwrap();
}

/// Each row of the table of dependencies (spec: common): refused, with this subtype, until what depends on it
/// is gone.
#[test]
fn what_is_depended_on_cannot_be_freed() {
    let side = Node::new();
    let ia = &side.ia;
    fn refused(call: Result<()>, subtype: Subtype) {
        let error = call.unwrap_err();
        assert_eq!((error.kind(), error.subtype()), (ReturnType::InvalidState, subtype), "{error}");
    }
    let pz = ia.pz_create().unwrap();
    let rights = Privileges::ALL;
    let lmr = ia.lmr_create(&pz, ia.alloc(4096).unwrap(), rights).unwrap();
    refused(pz.free(), Subtype::PzInUse);
    lmr.free().unwrap();
    let rmr = ia.rmr_create(&pz).unwrap();
    refused(pz.free(), Subtype::PzInUse);
    rmr.free().unwrap();
    let attr = SrqAttr { max_recv_dtos: 4, max_recv_iov: 1, low_watermark: 0 };
    let srq = ia.srq_create(&pz, &attr).unwrap();
    refused(pz.free(), Subtype::PzInUse);
    let ep_attr = dat_types::EpAttr::default();
    let ep = ia
        .ep_create_with_srq(Some(&pz), Some(&side.dto), Some(&side.dto), Some(&side.conn), &srq, &ep_attr)
        .unwrap();
    refused(srq.free(), Subtype::SrqInUse);
    ep.free().unwrap();
    srq.free().unwrap();
    let cno = ia.cno_create(None).unwrap();
    let evd = ia.evd_create_with_cno(4, Some(&cno), EvdFlags::CR).unwrap();
    refused(cno.free(), Subtype::CnoInUse);
    let ep = ia.ep_create(Some(&pz), None, None, None, Some(&no_work())).unwrap();
    refused(pz.free(), Subtype::PzInUse);
    let psp = ia.psp_create(7201, &evd, PspFlags::Consumer).unwrap();
    refused(evd.free(), Subtype::EvdInUse);
    psp.free().unwrap();
    let csp = ia.csp_create(Comm::default(), "0.0.0.0:7202".parse().unwrap(), &evd).unwrap();
    refused(evd.free(), Subtype::EvdInUse);
    csp.free().unwrap();
    let rsp = ia.rsp_create(7203, Some(&ep), &evd).unwrap();
    refused(evd.free(), Subtype::EvdInUse);
    refused(ep.free(), Subtype::EpReserved);
    refused(ia.close(CloseFlags::Graceful), Subtype::IaInUse);
    rsp.free().unwrap();
    for evd in [&side.dto, &side.conn] {
        refused(evd.free(), Subtype::EvdInUse);
    }
    refused(ia.async_evd().free(), Subtype::EvdInUse);
    ep.free().unwrap();
    pz.free().unwrap();
    let waited = evd.clone();
    let waiter = std::thread::spawn(move || waited.wait(LONG, 1).map(|_| ()).unwrap_err().error.kind());
    while evd.dequeue().unwrap_err().kind() == ReturnType::QueueEmpty {
        std::thread::yield_now();
    }
    refused(evd.free(), Subtype::EvdWaiter);
    evd.set_waitable(false).unwrap();
    assert_eq!(waiter.join().unwrap(), ReturnType::InvalidState);
    evd.free().unwrap();
    cno.free().unwrap();
    side.conn_only_free();
}

/// An endpoint through which nothing is ever posted.
fn no_work() -> dat_types::EpAttr {
    dat_types::EpAttr {
        max_recv_dtos: 0,
        max_request_dtos: 0,
        max_request_iov: 0,
        ..dat_types::EpAttr::default()
    }
}

#[test]
fn an_abrupt_close_ends_every_object_in_every_state() {
    let (a, b) = connected(7210);
    let ia = &b.ia;
    let pz = ia.pz_create().unwrap();
    let lmr = ia.lmr_create(&pz, ia.alloc(4096).unwrap(), Privileges::ALL).unwrap();
    let rmr = ia.rmr_create(&b.pz).unwrap();
    rmr.bind(
        Some(&b.lmr),
        b.lmr.memory().addr(),
        64,
        Privileges::REMOTE_READ,
        &b.ep,
        1,
        CompletionFlags::SUPPRESS,
    )
    .map(|_| ())
    .or_else(|error| match error.kind() {
        // The request dispatcher of these endpoints takes no binds.
        ReturnType::InvalidState => Ok(()),
        _ => Err(error),
    })
    .unwrap();
    let srq = ia.srq_create(&pz, &SrqAttr { max_recv_dtos: 4, max_recv_iov: 1, low_watermark: 0 }).unwrap();
    let cno = ia.cno_create(None).unwrap();
    let evd = ia.evd_create_with_cno(4, Some(&cno), EvdFlags::SOFTWARE | EvdFlags::CR).unwrap();
    evd.post_se(1).unwrap();
    let psp = ia.psp_create(7211, &b.conn, PspFlags::Provider).unwrap();
    let csp = ia.csp_create(Comm::default(), "0.0.0.0:7212".parse().unwrap(), &evd).unwrap();
    let reserved = b.another();
    let rsp = ia.rsp_create(7213, Some(&reserved.ep), &evd).unwrap();
    // A request undecided, with an endpoint made for it; another for a reserved one.
    let (asks, asks_too, passive) = (a.another(), a.another(), b.another());
    asks.connect(7211);
    let (cr, _) = b.request();
    let tentative = cr.query().unwrap().local_ep.unwrap();
    let _spent = ia.rsp_create(7214, Some(&passive.ep), &passive.conn).unwrap();
    asks_too.connect(7214);
    passive.request();
    // An unanswered connect, with receives and sends outstanding.
    let active = b.another();
    active.connect(7211);
    b.ep.post_recv(&[b.lmr.triplet(0, 8)], 1, CompletionFlags::empty()).unwrap();
    b.ep.post_send(&[b.lmr.triplet(0, 8)], 2, CompletionFlags::empty()).unwrap();
    let waited = b.dto.clone();
    let waiter = std::thread::spawn(move || {
        loop {
            match waited.wait(Timeout::INFINITE, 1) {
                Ok(_) => {}
                Err(end) => return end.error.kind(),
            }
        }
    });
    std::thread::sleep(Duration::from_millis(30));

    b.ia.close(CloseFlags::Abrupt).unwrap();
    assert_eq!(waiter.join().unwrap(), ReturnType::Abort);
    assert_eq!(a.conn(), dat_types::ConnectionKind::Disconnected);
    for asking in [&asks, &asks_too] {
        assert_eq!(asking.conn(), dat_types::ConnectionKind::NonPeerRejected);
    }
    macro_rules! all_gone {
        ($($object:expr),* $(,)?) => {$(
            assert_eq!(
                $object.handle_type().map(|kind: HandleType| kind).unwrap_err().kind(),
                ReturnType::InvalidHandle,
                stringify!($object)
            );
        )*};
    }
    all_gone!(
        pz,
        lmr,
        rmr,
        srq,
        cno,
        evd,
        psp,
        csp,
        rsp,
        cr,
        tentative,
        reserved.ep,
        passive.ep,
        active.ep,
        b.ep,
        b.dto,
        b.conn,
        b.lmr,
        b.pz,
        ia,
        ia.async_evd(),
    );
    assert_eq!(b.ia.close(CloseFlags::Abrupt).unwrap_err().kind(), ReturnType::InvalidHandle);
}

#[test]
fn a_region_over_a_region_has_zone_and_rights_of_its_own_and_outlives_it() {
    let (a, b) = connected(7220);
    let other = b.ia.pz_create().unwrap();
    let first = b.ia.lmr_create(&other, b.ia.alloc(4096).unwrap(), Privileges::LOCAL_READ).unwrap();
    let second =
        b.ia.lmr_create_from(Region::Lmr(&first), &b.pz, Privileges::LOCAL_WRITE, VaType::Virtual).unwrap();
    assert_eq!((first.rmr_context(), second.rmr_context()), (0, 0));
    assert_ne!(first.context(), second.context());
    let param = second.query().unwrap();
    assert_eq!((param.origin, param.pz.id()), (Origin::Lmr(first.id()), b.pz.id()));
    first.free().unwrap();
    other.free().unwrap();
    let gone = b.ia.lmr_create_from(Region::Lmr(&first), &b.pz, Privileges::ALL, VaType::Virtual);
    assert_eq!(gone.unwrap_err().kind(), ReturnType::InvalidHandle);
    a.lmr.memory().write(0, b"over");
    b.ep.post_recv(&[second.triplet(8, 8)], 1, CompletionFlags::empty()).unwrap();
    a.ep.post_send(&[a.lmr.triplet(0, 4)], 2, CompletionFlags::empty()).unwrap();
    assert!(b.dto().status.is_success());
    let mut got = [0; 4];
    second.memory().read(8, &mut got);
    assert_eq!(&got, b"over");
}

#[test]
fn regions_are_refused_for_what_is_wrong_with_them() {
    let side = Node::new();
    let create = |region, rights, va_type| {
        side.ia.lmr_create_from(region, &side.pz, rights, va_type).map(|_| ()).unwrap_err().kind()
    };
    let memory = side.ia.alloc(4096).unwrap();
    let plain = || Region::Virtual(memory.clone());
    assert_eq!(create(plain(), Privileges::ALL, VaType::ZeroBased), ReturnType::ModelNotSupported);
    let undefined = Privileges::from_bits_retain(0x100);
    assert_eq!(create(plain(), undefined, VaType::Virtual), ReturnType::InvalidParameter);
    let cookie = LmrCookie([7; 40]);
    let private = Region::Shared(Memory::heap(4096), cookie);
    assert_eq!(create(private, Privileges::ALL, VaType::Virtual), ReturnType::InvalidState);
}

/// A page shared by all who map the file.
fn shared_page(file: &rustix::fd::OwnedFd) -> Memory {
    use rustix::mm::{MapFlags, ProtFlags, mmap};
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping of a file that is never shortened; it stays for the life of the process.
    let at = unsafe { mmap(std::ptr::null_mut(), 4096, rights, MapFlags::SHARED, file, 0) }.unwrap();
    // SAFETY: mapped for good just now, and used through `Memory` only.
    unsafe { Memory::foreign(at as u64, 4096, None) }
}

#[test]
fn shared_memory_is_named_by_its_cookie() {
    let file = |name| {
        let fd = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&fd, 4096).unwrap();
        fd
    };
    let (one, two) = (file("one"), file("two"));
    let (a, b) = connected(7221);
    let [mut name, mut longer] = [[1; 40], [1; 40]];
    (name[39], longer[39]) = (1, 2);
    let share = |side: &Node, file, name| {
        let region = Region::Shared(shared_page(file), LmrCookie(name));
        side.ia.lmr_create_from(region, &side.pz, Privileges::ALL, VaType::Virtual)
    };
    let here = share(&a, &one, name).unwrap();
    let there = share(&b, &one, name).unwrap();
    assert_eq!(here.query().unwrap().origin, Origin::Shared(LmrCookie(name)));
    assert_ne!(here.memory().addr(), there.memory().addr());
    here.memory().write(0, b"both");
    let mut got = [0; 4];
    there.memory().read(0, &mut got);
    assert_eq!(&got, b"both");
    share(&a, &one, name).unwrap();
    assert_eq!(share(&a, &two, name).unwrap_err().kind(), ReturnType::InvalidParameter);
    share(&a, &two, longer).unwrap();
    // And it is memory as any other.
    b.ep.post_recv(&[there.triplet(64, 8)], 1, CompletionFlags::empty()).unwrap();
    a.ep.post_send(&[here.triplet(0, 4)], 2, CompletionFlags::empty()).unwrap();
    assert!(b.dto().status.is_success());
    here.memory().read(64, &mut got);
    assert_eq!(&got, b"both");
}

#[test]
fn synchronising_checks_the_ranges() {
    let side = Node::new();
    let other = side.ia.pz_create().unwrap();
    let second = side.ia.lmr_create(&other, side.ia.alloc(64).unwrap(), Privileges::empty()).unwrap();
    let fine = [side.lmr.triplet(8, 8), second.triplet(0, 64), LmrTriplet::default()];
    let end = second.memory().len();
    let bad = [second.triplet(end - 1, 2), LmrTriplet { context: 0xDEAD_0001, ..side.lmr.triplet(0, 8) }];
    for sync in [Ia::lmr_sync_rdma_read, Ia::lmr_sync_rdma_write] {
        sync(&side.ia, &fine).unwrap();
        sync(&side.ia, &[]).unwrap();
        for range in bad {
            assert_eq!(sync(&side.ia, &[range]).unwrap_err().kind(), ReturnType::InvalidParameter);
        }
    }
    second.free().unwrap();
    let freed = side.ia.lmr_sync_rdma_read(&[second.triplet(0, 8)]).unwrap_err();
    assert_eq!(freed.kind(), ReturnType::InvalidParameter);
}

#[test]
#[cfg_attr(miri, ignore = "70,000 registrations take too long there")]
fn a_context_does_not_come_back_soon() {
    let ia = open("contexts", AsyncEvd::Own).unwrap();
    let pz = ia.pz_create().unwrap();
    let memory = Memory::heap(8);
    let mut seen = std::collections::HashSet::new();
    for round in 0..70_000 {
        let lmr = ia.lmr_create(&pz, memory.clone(), Privileges::ALL).unwrap();
        assert!(seen.insert(lmr.context()), "round {round}: {:#x}", lmr.context());
        lmr.free().unwrap();
    }
}
