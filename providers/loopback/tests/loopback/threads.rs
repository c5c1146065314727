//! Both sides on threads of their own.

use std::time::{Duration, Instant};

use dat_plugin::CompletionStatus as Done;
use dat_plugin::{EventKind, PostFlag, Status};

use crate::setup::*;

const ROUNDS: u64 = if cfg!(miri) { 20 } else { 2000 };

/// Polls `f` until it gives something; fails after 30 seconds.
fn eventually<T>(mut f: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(value) = f() {
            return value;
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "nothing came");
        std::thread::yield_now();
    }
}

fn one(queue: &dat_plugin::host::Queue) -> dat_plugin::Completion {
    eventually(|| {
        let mut out = [dat_plugin::Completion::default()];
        (queue.poll(&mut out) == 1).then_some(out[0])
    })
}

#[test]
fn a_ping_pong_arrives_whole() {
    let (a, b) = connected("ping-pong", &[]);
    let play = |side: &Side, begins: bool| {
        let (out, back) = (side.buffer(&[0; 8]), side.buffer(&[0; 8]));
        assert_eq!(side.recv(0, &[(&back, 0, 8)]), Status::OK);
        for round in 0..ROUNDS {
            if begins {
                out.memory.write(0, &round.to_ne_bytes());
                assert_eq!(side.send(round, PostFlag::NONE, &[(&out, 0, 8)]), Status::OK);
            }
            let done = one(&side.recvs);
            assert_eq!((done.token, done.status, done.length), (round, Done::SUCCESS, 8));
            let mut bytes = [0; 8];
            back.memory.read(0, &mut bytes);
            assert_eq!(u64::from_ne_bytes(bytes), round);
            assert_eq!(side.recv(round + 1, &[(&back, 0, 8)]), Status::OK);
            if !begins {
                out.memory.write(0, &bytes);
                assert_eq!(side.send(round, PostFlag::NONE, &[(&out, 0, 8)]), Status::OK);
            }
            assert_eq!(one(&side.sends).token, round);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| play(&b, false));
        play(&a, true);
    });
}

#[test]
fn a_polled_write_is_whole_when_its_last_byte_is_there() {
    let (a, b) = connected("polled", &[]);
    let target = b.buffer(&[0; 61]);
    let (at, rkey) = (target.memory.addr(), target.keys.rkey);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let source = a.buffer(&[7; 61]);
            assert_eq!(a.write(1, &[(&source, 0, 61)], at, rkey), Status::OK);
            assert_eq!(one(&a.sends).status, Done::SUCCESS);
        });
        eventually(|| (target.memory.read_volatile(60) != 0).then_some(()));
        assert_eq!(content(&target), [7; 61]);
    });
}

#[test]
fn disconnecting_while_the_peer_posts_leaves_both_in_order() {
    for round in 0..if cfg!(miri) { 3 } else { 50 } {
        let (a, b) = connected(&format!("race {round}"), &[]);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut accepted = 0;
                while a.send(accepted, PostFlag::NONE, &[]) != Status::NOT_CONNECTED {
                    accepted += 1;
                    a.sent();
                    std::thread::yield_now();
                }
                a.expect(EventKind::DISCONNECTED);
            });
            for token in 0..round {
                b.recv(token, &[]);
                std::thread::yield_now();
            }
            assert_eq!(b.channel.disconnect(), Status::OK);
            b.received();
            std::thread::yield_now();
            assert_eq!(b.received(), [], "nothing completes after the stop");
        });
        no_event(&b.device);
    }
}

#[test]
fn many_connections_are_made_at_once() {
    let server = device("many", &[]);
    let listener = server.listen(0, 1).unwrap();
    let port = listener.port();
    const CLIENTS: usize = 4;
    let each = if cfg!(miri) { 2 } else { 25 };
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            scope.spawn(move || {
                let device = device("many", &[]);
                for i in 0..each {
                    let side = Side::new(&device, i, 0);
                    side.connect(port, &[client as u8]);
                    let answer = eventually(|| {
                        let mut out = [dat_plugin::Event::new(EventKind(0), 0)];
                        (device.poll_events(&mut out) == 1).then_some(out[0])
                    });
                    assert_eq!((answer.kind, answer.user), (EventKind::ESTABLISHED, i));
                    assert_eq!(answer.data(), [client as u8], "the answer is to this request");
                }
            });
        }
        let mut sides = Vec::new();
        let mut gone = 0;
        while sides.len() < CLIENTS * each as usize || gone < sides.len() {
            let event = eventually(|| {
                let mut out = [dat_plugin::Event::new(EventKind(0), 0)];
                (server.poll_events(&mut out) == 1).then_some(out[0])
            });
            match event.kind {
                EventKind::REQUEST => {
                    let side = Side::new(&server, 1000, 0);
                    side.channel.accept(event.request, event.data()).unwrap();
                    sides.push(side);
                }
                EventKind::DISCONNECTED => gone += 1,
                kind => assert_eq!(kind, EventKind::ESTABLISHED),
            }
        }
    });
}
