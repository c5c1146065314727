//! The provider over the stand-in for libibverbs (`tests/fakes/libibverbs`), for what no emulated device shows. The loader
//! finds libraries by `LD_LIBRARY_PATH` as it was at the start, so each test runs in a process of its own.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dat_ibverbs::Ibverbs;
use dat_plugin::host::{Channel, Device, Memory, Plugin, Queue, Remote, SpanTable};
use dat_plugin::{
    Access, ChannelAttr, Completion, CompletionStatus, Config, ConnectParam, Event, EventKind, Opcode,
    PostFlag, Status,
};

#[test]
fn small_messages_out_of_a_dma_buf_are_not_sent_inline() {
    over_the_stand_in("dma_buf_child", "0");
}

#[test]
fn a_disconnect_does_not_wait_for_the_device() {
    over_the_stand_in("slow_child", "300");
}

#[test]
#[ignore = "runs in a process of its own, started by small_messages_out_of_a_dma_buf_are_not_sent_inline"]
fn dma_buf_child() {
    /// No address of this process: the first page is never mapped.
    const ELSEWHERE: u64 = 0x100;
    let pair = Pair::connected();
    let file = memory_file(4096);
    rustix::io::pwrite(&file, b"in a dma-buf", 0).expect("the file takes bytes");
    let (device, spans) = (&pair.a.device, &pair.a.spans);
    let memory = Memory::device(file, 0, 4096, ELSEWHERE);
    let registration = device.register(memory, Access(0x33), 9).expect("a registration of the dma-buf");
    let Ok(context) = spans.insert(registration) else { panic!("the table is full") };
    let segment = spans.segment(context, ELSEWHERE, 12, 9, Access::LOCAL_READ).expect("a segment");
    let (to, receive) = pair.b.buffer(64);
    assert_eq!(pair.b.channel.post_recv(PostFlag::NONE, 1, &[receive], 64), Status::OK);
    let sent = pair.a.channel.post(Opcode::SEND, PostFlag::NONE, 2, &[segment], 12, Remote::default());
    assert_eq!(sent, Status::OK, "a driver faults when it copies from the address");
    assert_eq!(completion(&pair.a.sends).status, CompletionStatus::SUCCESS);
    assert_eq!(completion(&pair.b.recvs).length, 12);
    let mut content = [0; 12];
    to.read(0, &mut content);
    assert_eq!(&content, b"in a dma-buf");
}

#[test]
#[ignore = "runs in a process of its own, started by a_disconnect_does_not_wait_for_the_device"]
fn slow_child() {
    let pair = Pair::connected();
    let (_to, receive) = pair.a.buffer(64);
    assert_eq!(pair.a.channel.post_recv(PostFlag::NONE, 1, &[receive], 64), Status::OK);
    let start = Instant::now();
    assert_eq!(pair.a.channel.disconnect(), Status::PENDING, "the device holds a receive");
    let took = start.elapsed();
    assert!(took < Duration::from_millis(200), "disconnect took {took:?} of the device's 300 ms");
    assert_eq!(pair.a.event(EventKind::DISCONNECTED).user, 10);
    assert!(start.elapsed() >= Duration::from_millis(300), "before the device gave the receive back");
    assert_eq!(pair.a.channel.disconnect(), Status::OK, "stopped");
}

/// Runs the ignored test `name` of this program over the stand-in.
fn over_the_stand_in(name: &str, flush_ms: &str) {
    let folder = tempfile::tempdir().expect("a folder for the stand-in");
    let double = stand_in();
    for name in ["libibverbs.so.1", "librdmacm.so.1"] {
        std::os::unix::fs::symlink(&double, folder.path().join(name)).expect("a link to the stand-in");
    }
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--ignored", "--exact", name, "--nocapture"])
        .env("LD_LIBRARY_PATH", folder.path())
        .env("DAT_FAKE_VERBS_FLUSH_MS", flush_ms)
        .output()
        .expect("this program starts again");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{}:\n{text}{errors}", output.status);
}

/// The stand-in's library, as cargo builds it now.
fn stand_in() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--quiet", "--package", "dat-verbs-double", "--message-format=json"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "dat-verbs-double does not build:\n{errors}");
    let text = String::from_utf8_lossy(&output.stdout);
    let name = text.split('"').find(|part| part.ends_with("/libdat_verbs_double.so"));
    name.expect("cargo built dat-verbs-double but named no library").into()
}

fn memory_file(len: u64) -> OwnedFd {
    let file = rustix::fs::memfd_create("dma-buf", rustix::fs::MemfdFlags::CLOEXEC).expect("a memfd");
    rustix::fs::ftruncate(&file, len).expect("its length");
    file
}

struct Pair {
    a: End,
    b: End,
}

/// An adapter with one channel.
struct End {
    device: Device,
    channel: Channel,
    sends: Arc<Queue>,
    recvs: Arc<Queue>,
    spans: SpanTable,
}

impl Pair {
    fn connected() -> Pair {
        let (a, b) = (End::new(10), End::new(20));
        let listener = b.device.listen(0, 77).expect("a listener");
        let param = ConnectParam { addr: b.device.attr().address, port: listener.port(), qos: 0, data: b"" };
        a.channel.connect(&param).expect("connecting begins");
        let request = wait("a request", || {
            assert!(a.poll().is_empty(), "nothing is due at A yet");
            b.poll().into_iter().find(|event| event.kind == EventKind::REQUEST)
        });
        b.channel.accept(request.request, b"").expect("accepting begins");
        a.event(EventKind::ESTABLISHED);
        b.event(EventKind::ESTABLISHED);
        Pair { a, b }
    }
}

impl End {
    fn new(user: u64) -> End {
        let params = [("address", "127.0.0.1"), ("dmabuf", "on")];
        let params = params.map(|(key, value)| (key.to_owned(), value.to_owned())).into_iter().collect();
        let config = Config { ia_name: "ib0".into(), params };
        let device = Plugin::of::<Ibverbs>().open(&config).expect("the device opens");
        let queue = || Arc::new(device.open_queue(16).expect("a queue"));
        let (sends, recvs) = (queue(), queue());
        let attr = ChannelAttr {
            user,
            send_user: user + 1,
            recv_user: user + 2,
            domain: 9,
            max_requests: 8,
            max_recvs: 8,
            max_request_segments: 4,
            max_recv_segments: 4,
            max_reads_out: 4,
            max_reads_in: 4,
            reserved: 0,
            max_message: 1 << 20,
        };
        let channel = device.open_channel(&attr, Some(&sends), Some(&recvs), None).expect("a channel");
        End { device, channel, sends, recvs, spans: SpanTable::new() }
    }

    fn buffer(&self, len: usize) -> (Memory, dat_plugin::Segment) {
        let memory = Memory::heap(len);
        let registration = self.device.register(memory.clone(), Access(0x33), 9).expect("registered");
        let Ok(context) = self.spans.insert(registration) else { panic!("the table is full") };
        let segment = self.spans.segment(context, memory.addr(), len as u32, 9, Access::LOCAL_WRITE);
        (memory, segment.expect("a segment"))
    }

    fn poll(&self) -> Vec<Event> {
        let mut out = [Event::new(EventKind(0), 0); 8];
        let n = self.device.poll_events(&mut out);
        out[..n].to_vec()
    }

    fn event(&self, kind: EventKind) -> Event {
        wait(kind.name().unwrap_or("?"), || self.poll().into_iter().find(|event| event.kind == kind))
    }
}

fn completion(queue: &Queue) -> Completion {
    let mut out = [Completion::default()];
    wait("a completion", || (queue.poll(&mut out) == 1).then_some(out[0]))
}

fn wait<T>(what: &str, mut f: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        if let Some(found) = f() {
            return found;
        }
        assert!(Instant::now() < until, "no {what} within 20 s");
        std::thread::sleep(Duration::from_micros(200));
    }
}
