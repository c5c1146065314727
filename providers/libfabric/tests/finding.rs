//! Fabrics whose peers are asked for by TCP: strangers at the port, however many and whatever they say, keep nobody from
//! connecting; and a peer that is killed is missed. Without libfabric, or one of its fabrics, the tests say that they did
//! not run.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dat_libfabric::Libfabric;
use dat_plugin::host::{Channel, Device, Plugin, Queue};
use dat_plugin::{ChannelAttr, Config, ConnectParam, Event, EventKind};

const FABRICS: [&str; 2] = ["shm", "udp;ofi_rxd"];
const LONG: Duration = Duration::from_secs(30);
const KEEPALIVE_MS: &str = "4000";

/// Which fabric a child is to listen on, in its environment.
const CHILD: &str = "DAT_TEST_FINDING_CHILD";

#[test]
fn strangers_keep_nobody_from_connecting() {
    for fabric in FABRICS {
        let (Some(a), Some(b)) = (Side::new(fabric), Side::new(fabric)) else { continue };
        let listener = b.device.listen(0, 9).expect("a port");
        let at = SocketAddr::new(local(), listener.port() as u16);
        let strangers = crowd(at);
        let asks = a.connect(listener.port());
        let mut answers = None;
        let mut seed = 0x9E37_79B9_7F4A_7C15u64;
        await_event(&[&a, &b], |side, event| {
            match (side, event.kind) {
                (1, EventKind::REQUEST) => {
                    let channel = b.channel();
                    channel.accept(event.request, b"").expect("accepts");
                    answers = Some(channel);
                }
                (_, EventKind::ESTABLISHED) => return side == 0,
                (_, other) => panic!("{fabric}: {other:?}"),
            }
            false
        });
        // While the connection is up, too.
        for _ in 0..300 {
            let _ = stranger(at, &mut seed);
            let events = a.events().into_iter().chain(b.events());
            assert!(events.into_iter().all(|event| event.kind == EventKind::ESTABLISHED), "{fabric}");
        }
        drop((strangers, asks, answers));
    }
}

/// Many that say nothing, half of a question, or something else altogether.
fn crowd(at: SocketAddr) -> Vec<TcpStream> {
    let mut seed = 0x1234_5678_9ABC_DEF1u64;
    // As many as a port keeps while nobody looks, and more than the device listens to.
    (0..100).filter_map(|_| stranger(at, &mut seed)).collect()
}

fn stranger(at: SocketAddr, seed: &mut u64) -> Option<TcpStream> {
    let mut socket = TcpStream::connect_timeout(&at, Duration::from_secs(5)).ok()?;
    let mut words = Vec::new();
    for _ in 0..8 {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        words.extend_from_slice(&seed.to_le_bytes());
    }
    let question = *b"DATQ\x01\0\0\0";
    let _ = match *seed % 5 {
        0 => Ok(()),
        1 => socket.write_all(&question[..*seed as usize % 8]),
        2 => socket.write_all(&[&question[..4], &words].concat()),
        3 => socket.write_all(&question),
        _ => socket.write_all(&words),
    };
    Some(socket)
}

#[test]
fn a_peer_that_is_killed_is_missed() {
    for fabric in FABRICS {
        let Some(a) = Side::new(fabric) else { continue };
        let (mut child, port) = other_process(fabric);
        let channel = a.connect(port);
        await_event(&[&a], |_, event| {
            assert_eq!(event.kind, EventKind::ESTABLISHED, "{fabric}");
            true
        });
        child.kill().expect("killed");
        let killed = Instant::now();
        await_event(&[&a], |_, event| {
            assert_eq!(event.kind, EventKind::BROKEN, "{fabric}");
            true
        });
        println!("{fabric}: broken after {:?}", killed.elapsed());
        assert!(killed.elapsed() < Duration::from_secs(20), "{fabric}: after {:?}", killed.elapsed());
        child.wait().expect("ended");
        drop(channel);
        // What the other left in shared memory goes when a device is opened.
        drop(Side::new(fabric));
    }
}

/// A process of this test that listens, and its port.
fn other_process(fabric: &str) -> (Child, u64) {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "the_other_process", "--nocapture"])
        .env(CHILD, fabric)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let port = lines.find_map(|line| line.expect("a line").strip_prefix("port ")?.parse().ok());
    (child, port.expect("its port"))
}

/// The other side of the test above; by itself it has nothing to do.
#[test]
fn the_other_process() {
    let Ok(fabric) = std::env::var(CHILD) else { return };
    let side = Side::new(&fabric).expect("what the first process opened");
    let listener = side.device.listen(0, 1).expect("a port");
    println!("\nport {}", listener.port());
    let mut channels = Vec::new();
    let start = Instant::now();
    while start.elapsed() < LONG {
        for event in side.events() {
            if event.kind == EventKind::REQUEST {
                let channel = side.channel();
                channel.accept(event.request, b"").expect("accepts");
                channels.push(channel);
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("nobody killed it");
}

/// Looks at the devices until `is_it` says that an event is the one.
fn await_event(sides: &[&Side], mut is_it: impl FnMut(usize, &Event) -> bool) {
    let start = Instant::now();
    while start.elapsed() < LONG {
        for (index, side) in sides.iter().enumerate() {
            if side.events().iter().any(|event| is_it(index, event)) {
                return;
            }
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("an event is missing");
}

fn local() -> IpAddr {
    IpAddr::from([127, 0, 0, 1])
}

struct Side {
    queue: Arc<Queue>,
    device: Device,
}

impl Side {
    fn new(fabric: &str) -> Option<Side> {
        let params = [
            ("fabric", fabric),
            ("endpoint", "rdm"),
            ("address", "127.0.0.1"),
            ("keepalive_ms", KEEPALIVE_MS),
        ];
        let params = params.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let config = Config { ia_name: "ofi".into(), params };
        let device = match Plugin::of::<Libfabric>().open(&config) {
            Ok(device) => device,
            Err(failure) => {
                println!("NOT RUN: {failure}");
                let required = std::env::var_os("DAT_REQUIRE_LIBFABRIC").is_some();
                assert!(!required, "DAT_REQUIRE_LIBFABRIC is set, and {fabric} does not open: {failure}");
                return None;
            }
        };
        Some(Side { queue: Arc::new(device.open_queue(64).expect("a queue")), device })
    }

    fn channel(&self) -> Channel {
        let attr = ChannelAttr {
            user: 1,
            max_requests: 4,
            max_recvs: 4,
            max_request_segments: 1,
            max_recv_segments: 1,
            max_message: 64,
            ..ChannelAttr::default()
        };
        self.device.open_channel(&attr, Some(&self.queue), Some(&self.queue), None).expect("a channel")
    }

    fn connect(&self, port: u64) -> Channel {
        let channel = self.channel();
        let param = ConnectParam { addr: local().into(), port, qos: 0, data: b"" };
        channel.connect(&param).expect("begins");
        channel
    }

    fn events(&self) -> Vec<Event> {
        let mut events = [Event::new(EventKind(0), 0); 8];
        let count = self.device.poll_events(&mut events);
        events[..count].to_vec()
    }
}
