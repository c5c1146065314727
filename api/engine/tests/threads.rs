//! Several threads on the same objects at once: every accepted post completes exactly once, nothing hangs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use dat_engine::{ConnectOptions, Ep, Evd, Ia, IaOptions, Lmr, Plugin};
use dat_plugin::Config;
use dat_types::{
    CloseFlags, CompletionFlags, ConnectionKind, EpAttr, EpState, EvdFlags, EventData, Privileges, PspFlags,
    ReturnType, Timeout,
};

const ROUNDS: usize = if cfg!(miri) { 2 } else { 60 };
const POSTS: u64 = if cfg!(miri) { 10 } else { 400 };
const LIMIT: Duration = Duration::from_secs(60);

struct Node {
    ia: Ia,
    dto: Evd,
    conn: Evd,
    lmr: Lmr,
    ep: Ep,
}

impl Node {
    fn new() -> Node {
        Node::with(|attr| attr)
    }

    fn with(change: impl FnOnce(EpAttr) -> EpAttr) -> Node {
        let device = Plugin::of::<dat_loopback::Loopback>().open(&Config::default()).unwrap();
        let ia = Ia::open(device, "loopback0", "0", IaOptions::default()).unwrap();
        let pz = ia.pz_create().unwrap();
        let dto = ia.evd_create(256, EvdFlags::DTO).unwrap();
        let conn = ia.evd_create(8, EvdFlags::CONNECTION | EvdFlags::CR).unwrap();
        let lmr = ia.lmr_create(&pz, ia.alloc(64).unwrap(), Privileges::ALL).unwrap();
        let attr = change(EpAttr { max_message_size: 64, max_rdma_size: 64, ..EpAttr::default() });
        let ep = ia.ep_create(Some(&pz), Some(&dto), Some(&dto), Some(&conn), Some(&attr)).unwrap();
        Node { ia, dto, conn, lmr, ep }
    }

    fn conn(&self) -> EventData {
        self.conn.wait(Timeout::from_millis(20_000), 1).unwrap().0.data
    }
}

fn connect(a: &Node, b: &Node) {
    let psp = b.ia.psp_create_any(&b.conn, PspFlags::Consumer).unwrap();
    let address = b.ia.query().unwrap().address;
    a.ep.connect(&ConnectOptions::new((address, 0).into(), psp.conn_qual())).unwrap();
    let EventData::ConnectionRequest { cr, .. } = b.conn() else { panic!("no request") };
    b.ia.cr(cr).unwrap().accept(Some(&b.ep), &[]).unwrap();
    for side in [a, b] {
        assert!(matches!(side.conn(), EventData::Connection { kind: ConnectionKind::Established, .. }));
    }
    psp.free().unwrap();
}

/// Posts until stopped or complete; counts accepted posts.
fn post_all(ep: &Ep, lmr: &Lmr, receives: bool, accepted: &AtomicU64, deadline: Instant) {
    let iov = [lmr.triplet(0, 8)];
    let mut n = 0;
    while n < POSTS && Instant::now() < deadline {
        let result = match receives {
            true => ep.post_recv(&iov, n, CompletionFlags::empty()),
            false => ep.post_send(&iov, n, CompletionFlags::empty()),
        };
        match result.map_err(|error| error.kind()) {
            Ok(()) => {
                n += 1;
                accepted.fetch_add(1, Ordering::Relaxed);
            }
            // Full; or draining, which ends.
            Err(ReturnType::InsufficientResources | ReturnType::InvalidState) => std::thread::yield_now(),
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn every_accepted_post_completes_once_while_others_poll_and_disconnect() {
    post_poll_and_disconnect(Node::new(), Node::new());
}

/// The declaration is advice: with several threads the results are the same.
#[test]
fn endpoints_declared_single_threaded_serve_several_threads() {
    post_poll_and_disconnect(Node::with(EpAttr::single_threaded), Node::with(EpAttr::single_threaded));
}

fn post_poll_and_disconnect(a: Node, b: Node) {
    let deadline = Instant::now() + LIMIT;
    for round in 0..ROUNDS {
        connect(&a, &b);
        let accepted = [AtomicU64::new(0), AtomicU64::new(0)];
        let completed = [AtomicU64::new(0), AtomicU64::new(0)];
        let done = AtomicBool::new(false);
        let start = Barrier::new(6);
        std::thread::scope(|scope| {
            let mut posters = Vec::new();
            for (ep, lmr, receives, accepted) in
                [(&a.ep, &a.lmr, false, &accepted[0]), (&b.ep, &b.lmr, true, &accepted[1])]
            {
                let start = &start;
                posters.push(scope.spawn(move || {
                    start.wait();
                    post_all(ep, lmr, receives, accepted, deadline);
                }));
            }
            for (dto, completed) in
                [(&a.dto, &completed[0]), (&b.dto, &completed[1]), (&a.dto, &completed[0])]
            {
                let (start, done) = (&start, &done);
                scope.spawn(move || {
                    start.wait();
                    while !done.load(Ordering::Acquire) && Instant::now() < deadline {
                        match dto.dequeue() {
                            Ok(_) => drop(completed.fetch_add(1, Ordering::Relaxed)),
                            Err(_) => std::thread::yield_now(),
                        }
                    }
                });
            }
            start.wait();
            std::thread::sleep(Duration::from_micros(50 * round as u64));
            let flags = if round % 2 == 0 { CloseFlags::Abrupt } else { CloseFlags::Graceful };
            match a.ep.disconnect(flags) {
                Ok(()) => {}
                Err(error) => assert_eq!(error.kind(), ReturnType::InvalidState),
            }
            // After the disconnect posts are flushed at once, so that the posters come to their end.
            for poster in posters {
                while !poster.is_finished() && Instant::now() < deadline {
                    std::thread::yield_now();
                }
                if a.ep.state() == EpState::DisconnectPending {
                    a.ep.disconnect(CloseFlags::Abrupt).unwrap();
                }
                poster.join().unwrap();
            }
            let balanced = || {
                (0..2).all(|i| accepted[i].load(Ordering::Relaxed) == completed[i].load(Ordering::Relaxed))
            };
            while !balanced() && Instant::now() < deadline {
                std::thread::yield_now();
            }
            done.store(true, Ordering::Release);
        });
        for i in 0..2 {
            let (accepted, completed) = (&accepted[i], &completed[i]);
            assert_eq!(
                accepted.load(Ordering::Relaxed),
                completed.load(Ordering::Relaxed),
                "round {round}, side {i}"
            );
        }
        for side in [&a, &b] {
            assert!(matches!(side.conn(), EventData::Connection { kind: ConnectionKind::Disconnected, .. }));
            side.ep.reset().unwrap();
            assert_eq!(side.conn.dequeue().unwrap_err().kind(), ReturnType::QueueEmpty, "one terminal event");
        }
    }
}

#[test]
fn objects_freed_under_other_threads_hands_answer_with_invalid_handle() {
    for _ in 0..ROUNDS {
        let (a, b) = (Arc::new(Node::new()), Node::new());
        connect(&a, &b);
        let start = Arc::new(Barrier::new(3));
        let poster = {
            let (a, start) = (a.clone(), start.clone());
            std::thread::spawn(move || {
                start.wait();
                let iov = [a.lmr.triplet(0, 8)];
                loop {
                    match a.ep.post_send(&iov, 0, CompletionFlags::SUPPRESS).map_err(|error| error.kind()) {
                        Ok(()) | Err(ReturnType::InsufficientResources) => {}
                        Err(kind) => return kind,
                    }
                }
            })
        };
        let waiter = {
            let (a, start) = (a.clone(), start.clone());
            std::thread::spawn(move || {
                start.wait();
                loop {
                    match a.dto.wait(Timeout::from_millis(20_000), 1) {
                        Ok(_) => {}
                        Err(wait) => return wait.error.kind(),
                    }
                }
            })
        };
        start.wait();
        a.ep.free().unwrap();
        assert_eq!(poster.join().unwrap(), ReturnType::InvalidHandle);
        a.ia.close(CloseFlags::Abrupt).unwrap();
        let ended = waiter.join().unwrap();
        assert!(matches!(ended, ReturnType::Abort | ReturnType::InvalidHandle), "{ended:?}");
    }
}
