//! A plugin that lies (`tests/plugins/hostile.c`): for each of its answers the caller gets a precise error, nothing hangs and
//! the adapter closes.
#![cfg(not(miri))]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use dat_engine::{ConnectOptions, Ep, Evd, Ia, IaOptions, Lmr, Plugin};
use dat_plugin::host::Device;
use dat_plugin::{Config, Failure, Status};
use dat_types::{
    AsyncReason, CloseFlags, CompletionFlags, ConnectionKind, DtoStatus, EvdFlags, EventData, Privileges,
    ReturnType, Timeout,
};

/// Longer than anything here takes on a busy machine, and far from for ever.
const LONG: Duration = Duration::from_secs(20);
const WAIT: Timeout = Timeout::from_millis(20_000);

/// The plugin, compiled once. Linking Rust programs needs a C compiler too, so there is one.
fn plugin() -> Plugin {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let path = BUILT.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let out =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("libhostile-{}.so", std::process::id()));
        let output = Command::new(std::env::var_os("CC").unwrap_or("cc".into()))
            .args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-I"])
            .args([&root.join("include"), Path::new("-o"), &out, &root.join("tests/plugins/hostile.c")])
            .arg("-lpthread")
            .output()
            .expect("the C compiler runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        out
    });
    let plugin = Plugin::load(path).expect("it loads: nothing in its tables is wrong");
    logged::install();
    plugin
}

fn open(lie: &str) -> Result<Device, Failure> {
    let mut config = Config { ia_name: lie.into(), ..Config::default() };
    config.params.insert("lie".into(), lie.into());
    plugin().open(&config)
}

/// An adapter of the plugin's, with an endpoint.
struct World {
    ep: Ep,
    dto: Evd,
    conn: Evd,
    lmr: Lmr,
    ia: Ia,
    opened: Instant,
}

impl World {
    fn new(lie: &str) -> World {
        let opened = Instant::now();
        let ia = Ia::open(open(lie).expect("opens"), lie, "0", IaOptions::default()).expect("an adapter");
        let pz = ia.pz_create().expect("a zone");
        let dto = ia.evd_create(64, EvdFlags::DTO).expect("a dispatcher");
        let conn = ia.evd_create(8, EvdFlags::CONNECTION).expect("a dispatcher");
        let lmr = ia.lmr_create(&pz, ia.alloc(8192).expect("memory"), Privileges::ALL).expect("a region");
        let ep = ia.ep_create(Some(&pz), Some(&dto), Some(&dto), Some(&conn), None).expect("an endpoint");
        World { ep, dto, conn, lmr, ia, opened }
    }

    fn connected(lie: &str) -> World {
        let world = World::new(lie);
        world.connect(WAIT);
        assert_eq!(world.conn(), ConnectionKind::Established);
        world
    }

    fn connect(&self, timeout: Timeout) {
        let address = self.ia.query().expect("attributes").address;
        let options = ConnectOptions { timeout, ..ConnectOptions::new((address, 0).into(), 1024) };
        self.ep.connect(&options).expect("begins");
    }

    fn send(&self, cookie: u64) {
        self.ep.post_send(&[self.lmr.triplet(0, 8)], cookie, CompletionFlags::empty()).expect("is accepted");
    }

    /// The next connection event.
    fn conn(&self) -> ConnectionKind {
        match self.conn.wait(WAIT, 1).expect("an event").0.data {
            EventData::Connection { kind, .. } => kind,
            other => panic!("{other:?}"),
        }
    }

    /// The next completion: its cookie and how it ended.
    fn dto(&self) -> (u64, DtoStatus) {
        match self.dto.wait(WAIT, 1).expect("a completion").0.data {
            EventData::Dto(done) => (done.cookie, done.status),
            other => panic!("{other:?}"),
        }
    }

    fn asynchronous(&self) -> AsyncReason {
        match self.ia.async_evd().wait(WAIT, 1).expect("an asynchronous event").0.data {
            EventData::Async { reason, .. } => reason,
            other => panic!("{other:?}"),
        }
    }

    fn is_quiet(&self) {
        for evd in [&self.dto, &self.conn] {
            assert_eq!(evd.dequeue().expect_err("nothing").kind(), ReturnType::QueueEmpty);
        }
    }

    /// Closes in bounded time with every provider.
    fn close(self) {
        self.ia.close(CloseFlags::Abrupt).expect("closes");
        assert!(self.opened.elapsed() < LONG, "{:?}", self.opened.elapsed());
    }
}

/// What the engine and the host log, of all tests of this file.
mod logged {
    use super::*;
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};

    static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

    pub fn install() {
        // Fails when it is installed already.
        let _ = tracing::subscriber::set_global_default(Collect);
    }

    pub fn has(text: &str) -> bool {
        LINES.lock().expect("no test panics with it").iter().any(|line| line.contains(text))
    }

    struct Collect;

    impl tracing::Subscriber for Collect {
        fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
            *metadata.level() <= tracing::Level::WARN
        }
        fn event(&self, event: &tracing::Event<'_>) {
            let mut line = Line(String::new());
            event.record(&mut line);
            LINES.lock().expect("no test panics with it").push(line.0);
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    struct Line(String);

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            self.0.push_str(&format!("{}={value:?} ", field.name()));
        }
    }
}

#[test]
fn without_a_lie_it_does_what_is_asked() {
    let world = World::connected("none");
    world.send(7);
    assert_eq!(world.dto(), (7, DtoStatus::Success));
    world.ep.disconnect(CloseFlags::Abrupt).expect("is connected");
    assert_eq!(world.conn(), ConnectionKind::Disconnected);
    world.is_quiet();
    world.close();
}

#[test]
fn a_device_that_makes_no_sense_is_refused_with_what_it_said() {
    let cases = [
        ("null_device", "it opened a device and gave a null pointer for it"),
        ("device_fd", "the device's descriptor is 987654, which is not open: Bad file descriptor"),
        ("private_data", "attribute max_private_data is 4096, more than 512"),
        ("no_segments", "attribute max_segments is 0"),
    ];
    for (lie, said) in cases {
        let failure = open(lie).expect_err(lie);
        assert_eq!(failure.status, Status::FAULTY, "{lie}");
        assert_eq!(failure.message, format!("the provider breaks the plugin interface: {}", lines(said)));
    }

    /// The system's words end with the number of the error.
    fn lines(said: &str) -> String {
        if said.ends_with("descriptor") { format!("{said} (os error 9)") } else { said.to_owned() }
    }
}

#[test]
fn objects_that_make_no_sense_are_internal_errors() {
    let cases = [
        ("null_queue", "it opened a queue and gave a null pointer for it"),
        ("strange_status", "it returned Status(0x4d), which is neither success nor a failure"),
        ("strange_failure", "Status(0xffffe19f)"),
        ("queue_fd", "a queue's descriptor is 987654, which is not open"),
    ];
    for (lie, said) in cases {
        let ia = Ia::open(open(lie).expect("opens"), lie, "0", IaOptions::default()).expect("an adapter");
        let error = ia.evd_create(64, EvdFlags::DTO).expect_err(lie);
        assert_eq!(error.kind(), ReturnType::InternalError, "{error}");
        assert!(error.to_string().contains(said), "{error}");
        ia.close(CloseFlags::Graceful).expect("nothing is left");
    }
    let world = World::new("null_channel");
    let address = world.ia.query().expect("attributes").address;
    let error = world.ep.connect(&ConnectOptions::new((address, 0).into(), 1024)).expect_err("no channel");
    assert_eq!(error.kind(), ReturnType::InternalError, "{error}");
    assert!(error.to_string().contains("it opened a channel and gave a null pointer for it"), "{error}");
    world.close();
}

#[test]
fn a_sentence_of_any_length_is_cut_and_shown_as_text() {
    let ia = Ia::open(open("long_message").expect("opens"), "x", "0", IaOptions::default()).expect("opens");
    let error = ia.evd_create(64, EvdFlags::DTO).expect_err("no");
    assert_eq!(error.kind(), ReturnType::InsufficientResources);
    assert!(error.to_string().ends_with("no") && !error.to_string().contains('\0'), "{error:?}");
}

#[test]
fn memory_that_is_none_or_too_short_is_not_used() {
    for (lie, given) in [("null_block", "8192 at 0x0"), ("short_block", "4096 at 0x")] {
        let ia = Ia::open(open(lie).expect("opens"), lie, "0", IaOptions::default()).expect("an adapter");
        let error = ia.alloc(8192).expect_err(lie);
        assert_eq!(error.kind(), ReturnType::InternalError, "{error}");
        assert!(
            error.to_string().contains(&format!("asked for 8192 bytes, it allocated {given}")),
            "{error}"
        );
    }
}

#[test]
fn an_unknown_answer_to_a_post_is_an_internal_error_and_no_work() {
    let world = World::connected("strange_post");
    let posted = world.ep.post_send(&[world.lmr.triplet(0, 8)], 1, CompletionFlags::empty());
    assert_eq!(posted.expect_err("refused").kind(), ReturnType::InternalError);
    world.is_quiet();
    world.close();
}

#[test]
fn work_completed_twice_or_never_posted_breaks_the_connection() {
    for (lie, expected) in [
        ("twice", DtoStatus::Success),
        ("unknown_token", DtoStatus::Flushed),
        ("flood_of_one", DtoStatus::Success),
    ] {
        let world = World::connected(lie);
        world.send(7);
        assert_eq!(world.dto(), (7, expected), "{lie}");
        // The next poll of the dispatcher meets the second completion.
        let _ = world.dto.dequeue();
        assert_eq!(world.conn(), ConnectionKind::Broken, "{lie}");
        world.is_quiet();
        world.close();
    }
    assert!(logged::has("completed work that was not posted, or out of order; breaking the connection"));
}

#[test]
fn work_of_a_channel_that_does_not_exist_is_nobodys() {
    let world = World::connected("unknown_channel");
    for cookie in 0..3 {
        world.send(cookie);
        assert_eq!(world.dto(), (cookie, DtoStatus::Success));
    }
    world.is_quiet();
    world.close();
}

#[test]
fn an_unknown_status_is_a_failure_and_never_a_success() {
    let world = World::connected("strange_completion");
    world.send(7);
    assert_eq!(world.dto(), (7, DtoStatus::Transport));
    assert_eq!(world.conn(), ConnectionKind::Broken);
    world.close();
}

#[test]
fn what_comes_after_the_end_is_not_heard() {
    let world = World::connected("after_the_end");
    world.ep.disconnect(CloseFlags::Abrupt).expect("is connected");
    assert_eq!(world.conn(), ConnectionKind::Disconnected);
    std::thread::sleep(Duration::from_millis(50));
    world.is_quiet();
    world.close();
}

#[test]
fn more_completions_than_there_is_room_for_are_none() {
    let world = World::connected("overrun");
    world.send(7);
    assert_eq!(world.dto.dequeue().expect_err("nothing").kind(), ReturnType::QueueEmpty);
    let waited = world.dto.wait(Timeout::from_millis(20), 1).expect_err("nothing");
    assert_eq!(waited.error.kind(), ReturnType::TimeoutExpired);
    assert!(logged::has("claimed=1099511627776 room=16"));
    world.close();
}

#[test]
fn completions_without_end_do_not_keep_a_caller() {
    let world = World::connected("flood");
    world.send(7);
    assert_eq!(world.dto.dequeue().expect_err("nothing").kind(), ReturnType::QueueEmpty);
    let waited = world.dto.wait(Timeout::from_millis(20), 1).expect_err("nothing");
    assert_eq!(waited.error.kind(), ReturnType::TimeoutExpired);
    assert!(logged::has("completes work of channels that do not exist, without end"));
    world.close();
}

#[test]
fn events_that_make_no_sense_are_told_and_harm_nobody() {
    let world = World::connected("strange_event");
    world.send(7);
    assert_eq!(world.conn(), ConnectionKind::Disconnected, "whatever its data claims to be");
    world.close();

    let world = World::connected("unknown_events");
    world.send(7);
    assert_eq!(world.dto(), (7, DtoStatus::Success));
    assert_eq!(world.asynchronous(), AsyncReason::ProviderInternal);
    world.is_quiet();
    assert!(logged::has("raises events this version does not know"));
    world.close();
}

#[test]
fn events_without_end_do_not_keep_the_adapter() {
    for lie in ["event_overrun", "event_flood"] {
        let world = World::new(lie);
        world.connect(Timeout::from_millis(100));
        // The device never says that it is connected, and the time of the attempt is kept all the same.
        assert_eq!(world.conn(), ConnectionKind::TimedOut, "{lie}");
        world.close();
    }
}
