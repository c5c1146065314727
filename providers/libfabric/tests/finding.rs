//! Fabrics whose peers are looked up by TCP. Strangers at the port do not keep a peer from connecting, and a killed peer is
//! noticed. Without libfabric, or one of its fabrics, the tests print that they did not run.

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

/// The environment variable with the child's fabric.
const CHILD: &str = "DAT_TEST_FINDING_CHILD";

#[test]
fn strangers_do_not_keep_a_peer_from_connecting() {
    for fabric in FABRICS {
        let (Some(a), Some(b)) = (Side::new(fabric), Side::new(fabric)) else { continue };
        let listener = b.device.listen(0, 9).expect("a port");
        let at = SocketAddr::new(local(), listener.port() as u16);
        let strangers = crowd(at);
        let asks = a.connect(listener.port());
        let mut answers = None;
        let mut rng = fastrand::Rng::with_seed(1);
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
            let _ = stranger(at, &mut rng);
            let events = a.events().into_iter().chain(b.events());
            assert!(events.into_iter().all(|event| event.kind == EventKind::ESTABLISHED), "{fabric}");
        }
        drop((strangers, asks, answers));
    }
}

/// Connections that send nothing, half of a question, or something else.
fn crowd(at: SocketAddr) -> Vec<TcpStream> {
    let mut rng = fastrand::Rng::with_seed(2);
    // More than the device serves at a time.
    (0..100).filter_map(|_| stranger(at, &mut rng)).collect()
}

fn stranger(at: SocketAddr, rng: &mut fastrand::Rng) -> Option<TcpStream> {
    let mut socket = TcpStream::connect_timeout(&at, Duration::from_secs(5)).ok()?;
    let mut words = Vec::new();
    for _ in 0..8 {
        words.extend_from_slice(&rng.u64(..).to_le_bytes());
    }
    let question = *b"DATQ\x01\0\0\0";
    let _ = match rng.u8(..5) {
        0 => Ok(()),
        1 => socket.write_all(&question[..rng.usize(..8)]),
        2 => socket.write_all(&[&question[..4], &words].concat()),
        3 => socket.write_all(&question),
        _ => socket.write_all(&words),
    };
    Some(socket)
}

#[test]
fn a_killed_peer_is_noticed() {
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
        // Opening a device removes what the killed process left in shared memory.
        drop(Side::new(fabric));
    }
}

/// A process of this test that listens, and its port.
fn other_process(fabric: &str) -> (Child, u64) {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "the_other_process", "--ignored", "--nocapture"])
        .env(CHILD, fabric)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let port = lines.find_map(|line| line.expect("a line").strip_prefix("port ")?.parse().ok());
    (child, port.expect("its port"))
}

/// The child process of the test above.
#[test]
#[ignore = "the child process of another test"]
fn the_other_process() {
    let fabric = std::env::var(CHILD).expect("started by `a_killed_peer_is_noticed`");
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
    panic!("the first process did not kill it");
}

/// Polls the devices until `is_it` accepts an event.
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
