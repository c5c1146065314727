//! The machine around the device: limits, permissions, forks, and a device that is unplugged.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use dat_ibverbs::Ibverbs;
use dat_plugin::host::{Device, Memory, Plugin};
use dat_plugin::{Caps, EventKind, PostFlag, Status};

use crate::setup::*;

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn what_cannot_be_is_said_precisely() {
    let failure = try_device(&[("device", "nosuch0")]).expect_err("there is none");
    assert_eq!(failure.status, Status::NO_DEVICE);
    assert!(failure.message.contains("nosuch0") && failure.message.contains(&name()), "{failure}");
    let failure = try_device(&[("interface", "nosuch1")]).expect_err("there is none");
    assert!(failure.message.contains("nosuch1"), "{failure}");
    let failure = try_device(&[("address", "127.0.0.1")]).expect_err("no RDMA device");
    assert_eq!(failure.status, Status::NO_DEVICE, "{failure}");
    let name = name();
    let probes = Plugin::of::<Ibverbs>().probe(&config(&[("device", &name)]));
    assert!(probes.iter().any(|probe| probe.usable && probe.candidate.contains(&name)), "{probes:?}");
    assert!(device(&[]).describe().contains(&name));
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn memory_of_other_devices_is_registered_where_the_driver_can() {
    let register =
        |device: &Device, fd: OwnedFd| device.register(Memory::device(fd, 0, 4096, 1 << 40), ALL, 1);
    let off = device(&[]);
    assert!(!off.attr().caps.contains(Caps::DMABUF));
    let failure = register(&off, memfd()).expect_err("switched off");
    assert!(failure.status == Status::NOT_SUPPORTED && failure.message.contains("dmabuf"), "{failure}");

    let on = device(&[("dmabuf", "on")]);
    assert!(on.attr().caps.contains(Caps::DMABUF));
    let failure = register(&on, memfd()).expect_err("ordinary memory is no dma-buf");
    assert!(failure.message.contains("dma-buf"), "{failure}");
    let failure = on.register(Memory::device(memfd(), u64::MAX, 4096, 1), ALL, 1).expect_err("no range");
    assert_eq!(failure.status, Status::INVALID, "{failure}");
    // Real memory of the kind, where this kernel makes some: either all is well, or the driver is named.
    let Ok(dmabuf) = udmabuf(&memfd()) else {
        println!("NOT RUN: this kernel has no /dev/udmabuf to make a dma-buf with");
        return;
    };
    match register(&on, dmabuf) {
        Ok(registration) => assert_ne!(registration.keys().rkey, 0),
        Err(failure) => {
            assert_eq!(failure.status, Status::NOT_SUPPORTED, "{failure}");
            assert!(failure.message.contains("driver"), "{failure}");
        }
    }
}

/// A page of sealed shared memory that can become a dma-buf.
fn memfd() -> OwnedFd {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    let fd = memfd_create("page", MemfdFlags::ALLOW_SEALING).expect("shared memory");
    ftruncate(&fd, 4096).expect("a page");
    fcntl_add_seals(&fd, SealFlags::SHRINK).expect("sealed");
    fd
}

/// The page as a dma-buf (`UDMABUF_CREATE` of linux/udmabuf.h).
fn udmabuf(page: &OwnedFd) -> std::io::Result<OwnedFd> {
    #[repr(C)]
    struct Create {
        memfd: u32,
        flags: u32,
        offset: u64,
        size: u64,
    }
    let maker = std::fs::File::options().read(true).write(true).open("/dev/udmabuf")?;
    let create = Create { memfd: page.as_raw_fd() as u32, flags: 0, offset: 0, size: 4096 };
    // SAFETY: the structure is the one the request takes; it is only read.
    let fd = unsafe { libc::ioctl(maker.as_raw_fd(), 0x4018_7542, &raw const create) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: a new descriptor; no other code has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Runs one of these tests again in a process that `prepare` has changed.
fn again(test: &str, prepare: impl FnMut() -> std::io::Result<()> + Send + Sync + 'static) {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", test, "--ignored", "--nocapture"]).env("DAT_TEST_IBVERBS_AGAIN", "1");
    // SAFETY: what is called between fork and exec are system calls only.
    unsafe { command.pre_exec(prepare) };
    let out = command.output().expect("the process starts");
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success(), "{said}{}", String::from_utf8_lossy(&out.stderr));
}

fn is_again() -> bool {
    std::env::var_os("DAT_TEST_IBVERBS_AGAIN").is_some()
}

/// An ordinary user with 64 KiB of lockable memory.
fn ordinary() -> std::io::Result<()> {
    let limit = libc::rlimit { rlim_cur: 65_536, rlim_max: 65_536 };
    // SAFETY: plain system calls on this process.
    let codes = unsafe {
        [libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit), libc::setgid(65_534), libc::setuid(65_534)]
    };
    if codes.iter().all(|code| *code == 0) { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn a_small_limit_on_locked_memory_is_named() {
    if is_again() {
        let device = device(&[]);
        let failure = device.register(Memory::heap(1 << 20), ALL, 1).expect_err("too much to lock");
        assert_eq!(failure.status, Status::NO_RESOURCE, "{failure}");
        assert!(failure.message.contains("ulimit -l") && failure.message.contains("64 KiB"), "{failure}");
        assert!(device.describe().contains("64 KiB"), "{}", device.describe());
        return;
    }
    if !rustix::process::geteuid().is_root() {
        println!("NOT RUN: needs root, to become somebody else");
        return;
    }
    again("surroundings::a_small_limit_on_locked_memory_is_named", ordinary);
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn a_node_that_may_not_be_opened_is_named() {
    let named = |text: &str| text.contains("may not open its node /dev/infiniband/uverbs");
    if is_again() {
        let name = name();
        let failure = try_device(&[("device", &name)]).expect_err("the node is shut");
        assert!(failure.status == Status::PERMISSION && named(&failure.message), "{failure}");
        let probes = Plugin::of::<Ibverbs>().probe(&config(&[("device", &name)]));
        assert!(
            probes.iter().any(|probe| !probe.usable && probe.candidate == name && named(&probe.reason)),
            "{probes:?}"
        );
        return;
    }
    if !rustix::process::geteuid().is_root() || !name().starts_with("rxe") {
        println!("NOT RUN: needs root and a Soft-RoCE device, to shut its node to others");
        return;
    }
    let own = |node: &std::fs::DirEntry| {
        std::fs::read_to_string(node.path().join("ibdev")).is_ok_and(|of| of.trim() == name())
    };
    let nodes = std::fs::read_dir("/sys/class/infiniband_verbs").expect("a device is there");
    let node = nodes.flatten().find(own).expect("the device has a node");
    let _shut = Shut::new(&std::path::Path::new("/dev/infiniband").join(node.file_name()));
    again("surroundings::a_node_that_may_not_be_opened_is_named", ordinary);
}

/// A file that only its owner may open, until this is dropped.
struct Shut(std::path::PathBuf, std::fs::Permissions);

impl Shut {
    fn new(path: &std::path::Path) -> Shut {
        let before = std::fs::metadata(path).expect("the node").permissions();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("its mode is changed");
        Shut(path.to_owned(), before)
    }
}

impl Drop for Shut {
    fn drop(&mut self) {
        if let Err(error) = std::fs::set_permissions(&self.0, self.1.clone()) {
            println!("{}: {error}", self.0.display());
        }
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn a_fork_leaves_the_parents_connection_alone() {
    let pair = Pair::new(&[]);
    let (from, to) = (pair.a.buffer(b"after"), pair.b.buffer(&[0; 5]));
    assert_eq!(pair.b.recv(1, &to, 5), Status::OK);
    // SAFETY: the child closes what it inherited, which makes no system call on the parent's objects, and leaves.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        let failed = pair.a.device.open_queue(1).err().map(|failure| failure.status);
        drop(pair);
        // SAFETY: ends the child without running what belongs to the parent.
        unsafe { libc::_exit(if failed == Some(Status::FORKED) { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: the child just made.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child's calls are refused, and its closing is silent");
    from.memory.write(0, b"again");
    assert_eq!(pair.a.send(2, PostFlag::NONE, &from, 5), Status::OK);
    assert_eq!(pair.b.received().length, 5);
    assert_eq!(content(&to), b"again");
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn an_unplugged_device_ends_its_connections() {
    // Only a device that can be made again is unplugged, and not the one the other tests use.
    let there = Command::new("rdma").args(["link", "show", "rxe1/1"]).output();
    if name() != "rxe0" || !there.is_ok_and(|out| out.status.success()) {
        println!("NOT RUN: there is no second Soft-RoCE device to unplug");
        return;
    }
    if is_again() {
        return unplugged();
    }
    // In a process of its own: librdmacm keeps a device open for as long as its process lives, and Soft-RoCE's waits for
    // that.
    again("surroundings::an_unplugged_device_ends_its_connections", || Ok(()));
    let links = || Command::new("rdma").args(["link", "show", "rxe1/1"]).output().expect("rdma link show");
    wait("the device goes once nobody holds it", || (!links().status.success()).then_some(()));
    let again = Command::new("rdma").args(["link", "add", "rxe1", "type", "rxe", "netdev", "d1"]).status();
    assert!(again.is_ok_and(|status| status.success()), "the device is made anew");
    wait("the device is there again", || {
        std::thread::sleep(Duration::from_millis(50));
        try_device(&[("device", "rxe1")]).ok().map(drop)
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn a_port_that_goes_down_and_comes_up_is_told() {
    let there = Command::new("rdma").args(["link", "show", "rxe1/1"]).output();
    if name() != "rxe0" || !there.is_ok_and(|out| out.status.success()) {
        println!("NOT RUN: there is no second Soft-RoCE device whose link could be taken down");
        return;
    }
    // In a process of its own: it would keep the device, which another test unplugs.
    if !is_again() {
        return again("surroundings::a_port_that_goes_down_and_comes_up_is_told", || Ok(()));
    }
    let link = |state: &str| Command::new("ip").args(["link", "set", "d1", state]).status();
    let events = Events::of(&try_device(&[("device", "rxe1")]).expect("the second device"));
    for (state, told) in [("down", EventKind::PORT_DOWN), ("up", EventKind::PORT_UP)] {
        assert!(link(state).is_ok_and(|status| status.success()), "ip link set d1 {state}");
        events.kind(told);
        if told == EventKind::PORT_DOWN {
            let failure = try_device(&[("device", "rxe1")]).expect_err("its link is down");
            assert_eq!(failure.status, Status::NO_DEVICE, "{failure}");
            assert!(failure.message.contains("rxe1 port 1: its link is down"), "{failure}");
        }
    }
    wait("the device is of use again", || {
        std::thread::sleep(Duration::from_millis(50));
        try_device(&[("device", "rxe1")]).ok().map(drop)
    });
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn parameters_of_connections_are_taken() {
    let params = [
        ("mtu", "256"),
        ("traffic_class", "32"),
        ("retry_count", "3"),
        ("ack_timeout", "14"),
        ("rnr_retry", "6"),
        ("rnr_timer", "10"),
        ("inline_bytes", "0"),
    ];
    let pair = Pair::new(&params);
    let sent: Vec<u8> = (0..=255).cycle().take(3000).collect();
    let (from, to) = (pair.a.buffer(&sent), pair.b.buffer(&[0; 3000]));
    assert_eq!(pair.b.recv(1, &to, 3000), Status::OK);
    assert_eq!(pair.a.send(2, PostFlag::NONE, &from, 3000), Status::OK);
    assert_eq!((pair.b.received().length, pair.a.sent().2), (3000, 3000));
    assert_eq!(content(&to), sent);
    assert!(pair.a.channel.describe().contains("up to 0 bytes inline"), "{}", pair.a.channel.describe());
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn memory_that_is_not_pinned_is_had_or_refused_with_the_reason() {
    let device = device(&[("on_demand", "on")]);
    match device.register(Memory::heap(8192), ALL, 1) {
        Ok(registration) => assert_ne!(registration.keys().lkey, 0),
        Err(failure) => assert!(failure.message.contains("on_demand"), "{failure}"),
    }
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask rdma"]
fn huge_pages_are_had_or_refused_with_the_reason() {
    let reserved = || std::fs::read_to_string("/proc/sys/vm/nr_hugepages").ok()?.trim().parse::<u32>().ok();
    let device = device(&[("hugepages", "require")]);
    let Some(before) = reserved() else {
        println!("NOT RUN: this kernel has no huge pages");
        return;
    };
    if before == 0 {
        let failure = device.alloc(4 << 20).expect_err("there are none");
        assert!(failure.message.contains("nr_hugepages"), "{failure}");
    }
    // Reserving them is for root, and for a machine that is there for tests.
    if before == 0
        && (!name().starts_with("rxe") || std::fs::write("/proc/sys/vm/nr_hugepages", "4").is_err())
    {
        println!("NOT RUN: no huge pages are reserved");
        return;
    }
    if reserved().is_some_and(|pages| pages >= 2) {
        let memory = device.alloc(3 << 20).expect("there are enough");
        assert_eq!(memory.len(), 3 << 20, "as much as was asked for");
        assert_eq!(memory.addr() % (2 << 20), 0, "it begins with a huge page");
        let registration = device.register(memory, ALL, 1).expect("huge pages are registered like others");
        assert_ne!(registration.keys().lkey, 0);
    }
    if before == 0 {
        assert!(std::fs::write("/proc/sys/vm/nr_hugepages", "0").is_ok(), "given back");
    }
}

/// Unplugs the second device under load.
fn unplugged() {
    let open = || try_device(&[("device", "rxe1")]).expect("the second device");
    let (da, db) = (open(), open());
    let (at_a, at_b) = (Events::of(&da), Events::of(&db));
    let listener = db.listen(0, 77).expect("a listener");
    let (a, b) = (Side::new(&da, 10, 9), Side::new(&db, 20, 9));
    connect(&a, &at_a, &b, &at_b, listener.port());
    let (from, to) = (a.buffer(&[1; 4096]), b.buffer(&[0; 4096]));
    for token in 0..8 {
        assert_eq!(b.recv(token, &to, 4096), Status::OK);
        assert_eq!(a.send(token, PostFlag::NONE, &from, 4096), Status::OK);
    }
    // Ends when this process does, so the shell does not wait for it.
    let unplug =
        Command::new("sh").args(["-c", "rdma link delete rxe1 < /dev/null > /dev/null 2>&1 &"]).status();
    assert!(unplug.is_ok_and(|status| status.success()));
    for (events, user) in [(&at_a, 10), (&at_b, 20)] {
        wait("DEVICE_LOST", || {
            at_a.poll();
            at_b.poll();
            events.left().contains(&EventKind::DEVICE_LOST).then_some(())
        });
        let end = events.take("the end of the connection", |event| event.user == user);
        assert!([EventKind::BROKEN, EventKind::DISCONNECTED].contains(&end.kind), "{:?}", end.kind);
        assert_eq!(
            events.left().iter().filter(|kind| **kind == EventKind::DEVICE_LOST).count(),
            1,
            "told once"
        );
    }
    assert_eq!(a.send(9, PostFlag::NONE, &from, 1), Status::NOT_CONNECTED);
    let failure = Side::new(&da, 30, 9).connect_to(9, b"").err();
    println!("connecting on the lost device: {failure:?}");
    drop((a, b, listener, at_a, at_b, from, to));
    drop((da, db));
}
