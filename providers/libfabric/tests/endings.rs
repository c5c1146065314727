//! Many connections that end at once. Each side gets an event for each of them, woken by the device's descriptor alone.
//! Without libfabric the tests print that they did not run.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dat_libfabric::Libfabric;
use dat_plugin::host::{Channel, Device, Plugin, Queue};
use dat_plugin::{ChannelAttr, Completion, Config, ConnectParam, Event, EventKind, Status};
use rustix::event::epoll;

#[path = "../../../tests/process/src/descriptors.rs"]
mod descriptors;

use descriptors::descriptors;

const CONNECTIONS: u64 = 200;
const ROUNDS: usize = 5;
const LONG: Duration = Duration::from_secs(60);

#[test]
fn every_end_of_many_connections_is_reported_to_a_sleeper() {
    for _ in 0..ROUNDS {
        if !round(false) {
            return;
        }
    }
}

#[test]
fn every_end_of_many_connections_is_reported_while_a_thread_polls() {
    for _ in 0..ROUNDS {
        if !round(true) {
            return;
        }
    }
}

/// A caller ends all connections when the last one is established. The other side took no events meanwhile. The look that
/// follows the first end finds all beginnings, which is what the engine's order of events relies on.
#[test]
fn the_look_after_an_end_finds_older_beginnings() {
    for _ in 0..ROUNDS {
        let Some(sides) = both() else { return };
        let (callers, _answerers, mut up) = connected(&sides, |_, answered| answered as u64 == CONNECTIONS);
        if (up[0].len() as u64) < CONNECTIONS {
            await_events(&[&sides[0]], "connections", |_, event| {
                assert!(event.kind == EventKind::ESTABLISHED && up[0].insert(event.user));
                up[0].len() as u64 == CONNECTIONS
            });
        }
        callers.iter().for_each(|channel| assert_eq!(channel.disconnect(), Status::OK));
        let (mut ended, start) = (0, Instant::now());
        while ended < CONNECTIONS {
            let older = ended;
            look(&sides[1], |event| match event.kind {
                EventKind::ESTABLISHED => assert!(up[1].insert(event.user)),
                EventKind::DISCONNECTED => ended += 1,
                other => panic!("{other:?} while ending"),
            });
            let begun = up[1].len() as u64;
            assert!(older == 0 || begun == CONNECTIONS, "{begun} beginnings after {older} ends and a look");
            look(&sides[0], |event| panic!("{:?} on the side that ended it", event.kind));
            assert!(start.elapsed() < LONG, "{ended} of {CONNECTIONS} ends");
        }
    }
}

/// With `polled`, a thread polls a queue of each device all the time and takes no events. `false`: the test cannot run here.
fn round(polled: bool) -> bool {
    let Some(sides) = both() else { return false };
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        if polled {
            for side in &sides {
                let (queue, over) = (&side.queue, &over);
                scope.spawn(move || {
                    while !over.load(std::sync::atomic::Ordering::Relaxed) {
                        queue.poll(&mut [Completion::default(); 4]);
                    }
                });
            }
        }
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| all_come_and_go(&sides)));
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
    true
}

/// `None`: there is no libfabric.
fn both() -> Option<[Side; 2]> {
    // Both ends, of all tests of this file at once.
    if !descriptors(3 * 2 * CONNECTIONS as usize + 200, "many connections come and go") {
        return None;
    }
    if libfabric_sys::Library::get().is_ok() {
        return Some([Side::new(), Side::new()]);
    }
    println!("NOT RUN: libfabric is not installed (Debian: libfabric1)");
    let required = std::env::var_os("DAT_REQUIRE_LIBFABRIC").is_some();
    assert!(!required, "DAT_REQUIRE_LIBFABRIC is set, and there is no libfabric");
    None
}

/// Connects the sides until `enough`, given the users each side got an event for and the number of accepted requests.
/// Returns both ends and those users.
fn connected(
    [a, b]: &[Side; 2],
    enough: impl Fn(&[BTreeSet<u64>; 2], usize) -> bool,
) -> (Vec<Channel>, Vec<Channel>, [BTreeSet<u64>; 2]) {
    let listener = b.device.listen(0, 9).expect("a port");
    let callers: Vec<Channel> = (0..CONNECTIONS).map(|user| a.channel(user)).collect();
    let mut answerers: Vec<Channel> = Vec::new();
    let param = ConnectParam { addr: b.device.attr().address, port: listener.port(), qos: 0, data: b"" };
    for channel in &callers {
        channel.connect(&param).expect("begins");
    }
    let mut up = [BTreeSet::new(), BTreeSet::new()];
    await_events(&[a, b], "connections", |side, event| {
        match event.kind {
            EventKind::REQUEST => {
                let channel = b.channel(answerers.len() as u64);
                channel.accept(event.request, b"").expect("accepts");
                answerers.push(channel);
            }
            EventKind::ESTABLISHED => assert!(up[side].insert(event.user)),
            other => panic!("{other:?} while connecting"),
        }
        enough(&up, answerers.len())
    });
    (callers, answerers, up)
}

fn all_come_and_go(sides: &[Side; 2]) {
    let (callers, _answerers, _) =
        connected(sides, |up, _| up.iter().all(|users| users.len() as u64 == CONNECTIONS));
    let mut waiting = 0;
    for channel in &callers {
        match channel.disconnect() {
            Status::OK => {}
            Status::PENDING => waiting += 1,
            other => panic!("disconnect: {other:?}"),
        }
    }
    let mut ended = BTreeSet::new();
    await_events(&[&sides[0], &sides[1]], "ends", |side, event| {
        assert_eq!(event.kind, EventKind::DISCONNECTED);
        match side {
            0 => waiting -= 1,
            _ => assert!(ended.insert(event.user), "reported twice"),
        }
        waiting == 0 && ended.len() as u64 == CONNECTIONS
    });
}

/// Takes events until there are none: everything that happened before is among them.
fn look(side: &Side, mut take: impl FnMut(&Event)) {
    loop {
        let mut events = [Event::new(EventKind(0), 0); 8];
        let count = side.device.poll_events(&mut events);
        events[..count].iter().for_each(&mut take);
        if count < events.len() {
            return;
        }
    }
}

/// Takes events as an event thread does: sleeps on the descriptors, and polls a device when its descriptor is ready.
fn await_events(sides: &[&Side], what: &str, mut is_all: impl FnMut(usize, &Event) -> bool) {
    let sleeper = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a descriptor");
    for (index, side) in sides.iter().enumerate() {
        let data = epoll::EventData::new_u64(index as u64);
        epoll::add(&sleeper, side.fd(), data, epoll::EventFlags::IN).expect("to watch it");
    }
    let start = Instant::now();
    loop {
        let mut ready: Vec<epoll::Event> = Vec::with_capacity(2);
        let second = rustix::time::Timespec { tv_sec: 1, tv_nsec: 0 };
        epoll::wait(&sleeper, rustix::buffer::spare_capacity(&mut ready), Some(&second)).expect("waits");
        for woken in &ready {
            let index = woken.data.u64() as usize;
            let mut events = [Event::new(EventKind(0), 0); 8];
            let count = sides[index].device.poll_events(&mut events);
            for event in &events[..count] {
                if is_all(index, event) {
                    return;
                }
            }
        }
        assert!(start.elapsed() < LONG, "some are missing: {what}");
    }
}

struct Side {
    queue: Arc<Queue>,
    device: Device,
}

impl Side {
    fn new() -> Side {
        let params =
            [("fabric", "tcp"), ("endpoint", "msg"), ("address", "127.0.0.1"), ("keepalive_ms", "0")];
        let params = params.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let config = Config { ia_name: "ofi".into(), params };
        let device = Plugin::of::<Libfabric>().open(&config).expect("a device");
        Side { queue: Arc::new(device.open_queue(64).expect("a queue")), device }
    }

    fn channel(&self, user: u64) -> Channel {
        let attr = ChannelAttr {
            user,
            max_requests: 4,
            max_recvs: 4,
            max_request_segments: 1,
            max_recv_segments: 1,
            max_message: 64,
            ..ChannelAttr::default()
        };
        self.device.open_channel(&attr, Some(&self.queue), Some(&self.queue), None).expect("a channel")
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.device.event_fd().expect("a device has one")
    }
}
