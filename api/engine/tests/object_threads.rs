//! Service points and notification objects under several threads: nothing hangs, nothing is delivered twice or lost.

mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dat_engine::Agent;
use dat_types::{CloseFlags, ConnectionKind, EpState, EvdFlags, EventData, PspFlags, ReturnType, Timeout};
use support::{LONG, Node};

const ROUNDS: usize = 100;

#[test]
fn a_request_that_races_with_the_end_of_its_reserved_service_point_is_delivered_or_refused() {
    let (a, b) = (Node::new(), Node::new());
    for round in 0..ROUNDS {
        let rsp = b.ia.rsp_create(7501, Some(&b.ep), &b.conn).unwrap();
        let go = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !go.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
                if round % 2 == 0 {
                    std::thread::yield_now();
                }
                rsp.free().unwrap();
            });
            go.store(true, Ordering::Release);
            a.connect(7501);
        });
        assert_eq!(rsp.free().unwrap_err().kind(), ReturnType::InvalidHandle);
        // In both cases the peer gets its answer, and the endpoint's state shows which call won.
        let deadline = Instant::now() + Duration::from_secs(20);
        let delivered = loop {
            match b.conn.wait(Timeout::from_millis(1), 1) {
                Ok((event, _)) => match event.data {
                    EventData::ConnectionRequest { cr, .. } => break Some(b.ia.cr(cr).unwrap()),
                    other => panic!("{other:?}"),
                },
                Err(_) if a.ep.state() == EpState::Disconnected => break None,
                Err(_) => assert!(Instant::now() < deadline, "the request is neither here nor refused"),
            }
        };
        match delivered {
            Some(cr) => {
                assert_eq!(b.ep.state(), EpState::PassiveConnectionPending);
                cr.reject(b"").unwrap();
                assert_eq!(a.conn(), ConnectionKind::PeerRejected);
            }
            None => assert_eq!(a.conn(), ConnectionKind::NonPeerRejected),
        }
        assert_eq!(b.ep.state(), EpState::Unconnected);
        a.ep.reset().unwrap();
    }
}

#[test]
fn of_several_who_decide_a_request_one_does() {
    let (a, b) = (Node::new(), Node::new());
    let elsewhere = b.ia.evd_create(8, EvdFlags::CR).unwrap();
    b.ia.psp_create(7502, &b.conn, PspFlags::Provider).unwrap();
    b.ia.psp_create(7503, &elsewhere, PspFlags::Consumer).unwrap();
    for _ in 0..ROUNDS {
        a.connect(7502);
        let (cr, _) = b.request();
        let decided = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for decision in 0..3 {
                let (cr, decided) = (cr.clone(), &decided);
                scope.spawn(move || {
                    let outcome = match decision {
                        0 => cr.handoff(7503),
                        _ => cr.reject(b""),
                    };
                    match outcome {
                        Ok(()) => decided.fetch_add(1 << (8 * decision), Ordering::Relaxed),
                        Err(error) => {
                            assert_eq!(error.kind(), ReturnType::InvalidHandle);
                            0
                        }
                    };
                });
            }
        });
        let decided = decided.into_inner();
        assert_eq!(decided.count_ones(), 1);
        if decided == 1 {
            let EventData::ConnectionRequest { cr, .. } = elsewhere.wait(LONG, 1).unwrap().0.data else {
                panic!("no request")
            };
            b.ia.cr(cr).unwrap().reject(b"").unwrap();
        }
        assert_eq!(a.conn(), ConnectionKind::PeerRejected);
        a.ep.reset().unwrap();
    }
    assert!(elsewhere.poll().unwrap().is_none());
}

#[test]
fn every_event_is_found_by_those_who_wait_for_triggers() {
    let side = Node::new();
    let cno = side.ia.cno_create(None).unwrap();
    let evds: Vec<_> =
        (0..3).map(|_| side.ia.evd_create_with_cno(4096, Some(&cno), EvdFlags::SOFTWARE).unwrap()).collect();
    let total = 3 * 500;
    let found = AtomicU64::new(0);
    let called = std::sync::Arc::new(AtomicU64::new(0));
    std::thread::scope(|scope| {
        for evd in &evds {
            scope.spawn(move || {
                for value in 0..500 {
                    evd.post_se(value).unwrap();
                    if value % 50 == 0 {
                        std::thread::sleep(Duration::from_micros(200));
                    }
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                let deadline = Instant::now() + Duration::from_secs(20);
                while found.load(Ordering::Acquire) < total {
                    assert!(Instant::now() < deadline, "events without a trigger");
                    match cno.wait(Timeout::from_millis(5)) {
                        Ok(Some(_)) => {}
                        Ok(None) => panic!("sent away"),
                        Err(error) => {
                            assert_eq!(error.kind(), ReturnType::QueueEmpty);
                            continue;
                        }
                    }
                    for evd in &evds {
                        while evd.poll().unwrap().is_some() {
                            found.fetch_add(1, Ordering::AcqRel);
                        }
                    }
                }
            });
        }
        scope.spawn(|| {
            let deadline = Instant::now() + Duration::from_secs(20);
            while found.load(Ordering::Acquire) < total && Instant::now() < deadline {
                let called = called.clone();
                cno.modify_agent(Some(Agent::new(1, move |_| {
                    called.fetch_add(1, Ordering::Relaxed);
                })))
                .unwrap();
                std::thread::yield_now();
            }
        });
    });
    assert_eq!(found.into_inner(), total);
    assert!(called.load(Ordering::Relaxed) > 0);
}

#[test]
fn closing_under_everybodys_hands_ends_all_calls() {
    for _ in 0..10 {
        let (a, b) = (Node::new(), Node::new());
        let cno = b.ia.cno_create(None).unwrap();
        b.conn.modify_cno(Some(&cno)).unwrap();
        b.ia.psp_create(7504, &b.conn, PspFlags::Provider).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                loop {
                    match cno.wait(LONG) {
                        Ok(Some(_)) => while b.conn.poll().is_ok_and(|event| event.is_some()) {},
                        Ok(None) => break,
                        Err(error) => {
                            assert_eq!(error.kind(), ReturnType::InvalidHandle);
                            break;
                        }
                    }
                }
            });
            scope.spawn(|| {
                while let Ok(psp) = b.ia.psp_create_any(&b.conn, PspFlags::Consumer) {
                    assert!(Instant::now() < deadline);
                    let _ = psp.free();
                }
            });
            scope.spawn(|| {
                while let Ok(rsp) = b.ia.rsp_create(7505, Some(&b.ep), &b.conn) {
                    assert!(Instant::now() < deadline);
                    let _ = rsp.free();
                }
            });
            for _ in 0..5 {
                let asks = a.another();
                asks.connect(7504);
            }
            std::thread::sleep(Duration::from_millis(3));
            b.ia.close(CloseFlags::Abrupt).unwrap();
        });
        assert!(b.ia.psp_create_any(&b.conn, PspFlags::Consumer).is_err());
    }
}
