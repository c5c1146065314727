//! Notification objects: what triggers them, which waiter wakes, and how they end.

mod support;

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use dat_engine::{Agent, Cno, CnoProxy, Evd, Ia};
use dat_types::{CloseFlags, CompletionFlags, DtoStatus, EpAttr, EvdFlags, ObjectId, ReturnType, Timeout};
use support::{LONG, Node, SHORT, connected};

fn quiet(cno: &Cno) {
    assert_eq!(cno.wait(SHORT).unwrap_err().kind(), ReturnType::QueueEmpty);
}

fn software(ia: &Ia, cno: &Cno) -> Evd {
    ia.evd_create_with_cno(8, Some(cno), EvdFlags::SOFTWARE).unwrap()
}

/// An agent that reports each call.
fn reporter(tag: u64) -> (Agent, Receiver<Option<ObjectId>>) {
    let (to, from) = channel();
    (Agent::new(tag, move |evd| to.send(evd).unwrap()), from)
}

const SOON: Duration = Duration::from_secs(20);

#[test]
fn a_notification_triggers_once_for_one_waiter() {
    let side = Node::new();
    let cno = side.ia.cno_create(None).unwrap();
    let [x, y] = [software(&side.ia, &cno), software(&side.ia, &cno)];
    quiet(&cno);
    x.post_se(1).unwrap();
    y.post_se(2).unwrap();
    assert_eq!(cno.wait(Timeout::ZERO).unwrap(), Some(x.id()), "the first is the hint");
    quiet(&cno);
    x.post_se(3).unwrap();
    assert_eq!(cno.wait(LONG).unwrap(), Some(x.id()));

    let waiters: Vec<_> = (0..2)
        .map(|_| {
            let cno = cno.clone();
            std::thread::spawn(move || cno.wait(LONG).unwrap())
        })
        .collect();
    std::thread::sleep(Duration::from_millis(20));
    y.post_se(4).unwrap();
    let deadline = Instant::now() + SOON;
    while !waiters.iter().any(|waiter| waiter.is_finished()) {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(waiters.iter().filter(|waiter| waiter.is_finished()).count(), 1);
    y.post_se(5).unwrap();
    for waiter in waiters {
        assert_eq!(waiter.join().unwrap(), Some(y.id()));
    }
}

#[test]
fn a_completion_triggers_whoever_takes_it() {
    let (a, b) = connected(7101);
    let cno = b.ia.cno_create(None).unwrap();
    b.dto.modify_cno(Some(&cno)).unwrap();
    assert_eq!(b.dto.query().unwrap().cno.unwrap().id(), cno.id());
    for round in 0..20u64 {
        b.ep.post_recv(&[b.lmr.triplet(0, 8)], round, CompletionFlags::empty()).unwrap();
        if round % 2 == 0 {
            let waiter = cno.clone();
            let waiter = std::thread::spawn(move || waiter.wait(LONG).unwrap());
            std::thread::sleep(Duration::from_millis(if round % 4 == 0 { 2 } else { 0 }));
            a.ep.post_send(&[a.lmr.triplet(0, 8)], round, CompletionFlags::SUPPRESS).unwrap();
            assert_eq!(waiter.join().unwrap(), Some(b.dto.id()));
        } else {
            a.ep.post_send(&[a.lmr.triplet(0, 8)], round, CompletionFlags::SUPPRESS).unwrap();
            assert_eq!(cno.wait(LONG).unwrap(), Some(b.dto.id()));
        }
        assert_eq!((b.dto().cookie, b.dto.poll().unwrap().is_none()), (round, true));
    }
    quiet(&cno);
}

#[test]
fn flushes_and_connection_events_trigger_too() {
    let (a, b) = connected(7102);
    let cno = b.ia.cno_create(None).unwrap();
    b.ep.post_recv(&[b.lmr.triplet(0, 8)], 1, CompletionFlags::empty()).unwrap();
    b.dto.modify_cno(Some(&cno)).unwrap();
    b.conn.modify_cno(Some(&cno)).unwrap();
    a.ep.disconnect(CloseFlags::Abrupt).unwrap();
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let hint = cno.wait(LONG).unwrap().unwrap();
        assert!([b.dto.id(), b.conn.id()].contains(&hint));
        for evd in [&b.dto, &b.conn] {
            while let Some(event) = evd.poll().unwrap() {
                seen.push(event.evd);
            }
        }
    }
    assert!(seen.contains(&b.dto.id()) && seen.contains(&b.conn.id()));
}

#[test]
fn what_is_no_notification_does_not_trigger() {
    let (a, b) = (Node::new(), Node::new());
    let attr = EpAttr {
        recv_completion_flags: CompletionFlags::SOLICITED_WAIT,
        max_request_dtos: 0,
        max_request_iov: 0,
        ..EpAttr::default()
    };
    let cno = b.ia.cno_create(None).unwrap();
    let recv = b.ia.evd_create_with_cno(16, Some(&cno), EvdFlags::DTO).unwrap();
    let ep = b.ia.ep_create(Some(&b.pz), Some(&recv), None, Some(&b.conn), Some(&attr)).unwrap();
    let _psp = b.ia.psp_create(7103, &b.conn, dat_types::PspFlags::Consumer).unwrap();
    a.connect(7103);
    b.request().0.accept(Some(&ep), b"").unwrap();
    a.conn();
    for cookie in 0..2 {
        ep.post_recv(&[b.lmr.triplet(0, 8)], cookie, CompletionFlags::empty()).unwrap();
    }
    a.ep.post_send(&[a.lmr.triplet(0, 4)], 0, CompletionFlags::SUPPRESS).unwrap();
    quiet(&cno);
    assert!(recv.poll().unwrap().is_some(), "queued all the same");
    a.ep.post_send(&[a.lmr.triplet(0, 4)], 0, CompletionFlags::SOLICITED_WAIT).unwrap();
    assert_eq!(cno.wait(LONG).unwrap(), Some(recv.id()));
}

#[test]
fn a_disabled_dispatcher_and_a_waited_one_do_not_trigger() {
    let side = Node::new();
    let cno = side.ia.cno_create(None).unwrap();
    let evd = software(&side.ia, &cno);
    evd.set_enabled(false).unwrap();
    evd.post_se(1).unwrap();
    quiet(&cno);
    evd.set_enabled(true).unwrap();
    quiet(&cno);
    assert!(evd.poll().unwrap().is_some());
    let waiter = evd.clone();
    let waiter = std::thread::spawn(move || waiter.wait(LONG, 1).is_ok());
    std::thread::sleep(Duration::from_millis(20));
    evd.post_se(2).unwrap();
    assert!(waiter.join().unwrap());
    quiet(&cno);
    evd.post_se(3).unwrap();
    assert_eq!(cno.wait(LONG).unwrap(), Some(evd.id()));
}

#[test]
fn another_object_takes_over() {
    let side = Node::new();
    let [old, new] = [side.ia.cno_create(None).unwrap(), side.ia.cno_create(None).unwrap()];
    let evd = software(&side.ia, &old);
    assert_eq!(old.free().unwrap_err().kind(), ReturnType::InvalidState);
    evd.modify_cno(Some(&new)).unwrap();
    evd.post_se(1).unwrap();
    quiet(&old);
    assert_eq!(new.wait(LONG).unwrap(), Some(evd.id()));
    old.free().unwrap();
    assert_eq!(old.free().unwrap_err().kind(), ReturnType::InvalidHandle);
    assert_eq!(evd.modify_cno(Some(&old)).unwrap_err().kind(), ReturnType::InvalidHandle);
    evd.modify_cno(None).unwrap();
    new.free().unwrap();
    let other = Node::new();
    let foreign = other.ia.cno_create(None).unwrap();
    assert_eq!(evd.modify_cno(Some(&foreign)).unwrap_err().kind(), ReturnType::InvalidHandle);
}

#[test]
fn an_agent_is_called_once_for_each_time_it_is_armed() {
    let side = Node::new();
    let (agent, called) = reporter(7);
    let cno = side.ia.cno_create(Some(agent)).unwrap();
    assert_eq!(cno.query().unwrap().proxy, CnoProxy::Agent(7));
    let evd = software(&side.ia, &cno);
    evd.post_se(1).unwrap();
    assert_eq!(called.recv_timeout(SOON).unwrap(), Some(evd.id()));
    assert_eq!(cno.query().unwrap().proxy, CnoProxy::None);
    evd.post_se(2).unwrap();
    assert!(called.recv_timeout(Duration::from_millis(30)).is_err(), "it was let go");
    // Armed again, it is called again, although the trigger was not consumed.
    let (agent, called) = reporter(8);
    cno.modify_agent(Some(agent)).unwrap();
    evd.post_se(3).unwrap();
    assert_eq!(called.recv_timeout(SOON).unwrap(), Some(evd.id()));
    let (agent, called) = reporter(9);
    cno.modify_agent(Some(agent)).unwrap();
    cno.modify_agent(None).unwrap();
    evd.post_se(4).unwrap();
    assert!(called.recv_timeout(Duration::from_millis(30)).is_err());
    assert_eq!(cno.wait(LONG).unwrap(), Some(evd.id()), "in addition to the waiter");
}

#[test]
fn an_agent_learns_of_completions_nobody_polls_for() {
    let (a, b) = connected(7104);
    let (agent, called) = reporter(1);
    let cno = b.ia.cno_create(Some(agent)).unwrap();
    b.ep.post_recv(&[b.lmr.triplet(0, 8)], 5, CompletionFlags::empty()).unwrap();
    b.dto.modify_cno(Some(&cno)).unwrap();
    a.ep.post_send(&[a.lmr.triplet(0, 8)], 5, CompletionFlags::SUPPRESS).unwrap();
    assert_eq!(called.recv_timeout(SOON).unwrap(), Some(b.dto.id()));
    assert_eq!(b.dto().status, DtoStatus::Success);
}

#[test]
fn a_descriptor_is_readable_while_triggered() {
    let side = Node::new();
    let cno = side.ia.cno_fd_create().unwrap();
    assert_eq!(cno.query().unwrap().proxy, CnoProxy::Fd);
    let evd = software(&side.ia, &cno);
    let readable = |ms: i64| {
        let fd = cno.fd().unwrap();
        let limit = rustix::event::Timespec { tv_sec: ms / 1000, tv_nsec: (ms % 1000) * 1_000_000 };
        let mut fds = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&limit)).unwrap() > 0
    };
    assert!(!readable(10));
    assert_eq!(cno.trigger().unwrap_err().kind(), ReturnType::QueueEmpty);
    evd.post_se(1).unwrap();
    evd.post_se(2).unwrap();
    assert!(readable(20_000) && readable(0), "until it is taken");
    assert_eq!(cno.trigger().unwrap(), evd.id());
    assert!(!readable(10));
    assert_eq!(cno.wait(LONG).unwrap_err().kind(), ReturnType::InvalidState);
    assert_eq!(cno.modify_agent(None).unwrap_err().kind(), ReturnType::InvalidState);
    let plain = side.ia.cno_create(None).unwrap();
    assert_eq!(plain.trigger().unwrap_err().kind(), ReturnType::InvalidState);
    assert_eq!(plain.fd().unwrap_err().kind(), ReturnType::InvalidState);
}

#[test]
fn who_waits_is_sent_away_when_the_last_dispatcher_or_the_adapter_goes() {
    let side = Node::new();
    let cno = side.ia.cno_create(None).unwrap();
    let [x, y] = [software(&side.ia, &cno), software(&side.ia, &cno)];
    let wait = |cno: &Cno| {
        let cno = cno.clone();
        let thread = std::thread::spawn(move || cno.wait(LONG).unwrap());
        std::thread::sleep(Duration::from_millis(30));
        thread
    };
    let waiter = wait(&cno);
    assert_eq!(cno.free().unwrap_err().kind(), ReturnType::InvalidState);
    x.free().unwrap();
    assert!(!waiter.is_finished());
    y.free().unwrap();
    assert_eq!(waiter.join().unwrap(), None);
    quiet(&cno);
    let (agent, called) = reporter(1);
    cno.modify_agent(Some(agent)).unwrap();
    let waiter = wait(&cno);
    side.ia.close(CloseFlags::Abrupt).unwrap();
    assert_eq!(waiter.join().unwrap(), None);
    assert_eq!(called.recv_timeout(SOON).unwrap(), None);
    assert_eq!(cno.wait(LONG).unwrap_err().kind(), ReturnType::InvalidHandle);
}

#[test]
fn an_object_left_over_keeps_the_adapter_open() {
    let side = Node::new();
    let cno = side.ia.cno_create(None).unwrap();
    side.ep.free().unwrap();
    side.lmr.free().unwrap();
    side.dto.free().unwrap();
    side.conn.free().unwrap();
    side.pz.free().unwrap();
    assert_eq!(side.ia.close(CloseFlags::Graceful).unwrap_err().kind(), ReturnType::InvalidState);
    cno.free().unwrap();
    side.ia.close(CloseFlags::Graceful).unwrap();
}
