//! The parts of the data path, each by itself: `cargo bench -p dat-bench`, with a name behind it for one of them, and
//! `cargo bench -p dat-bench -- --test` to see that they work.
//!
//! An iteration is one operation. Those that cannot be repeated alone (a send needs a receive, and both are to be completed)
//! are done in batches, of which only the part in question is timed.

#[path = "../src/layers/mod.rs"]
#[allow(dead_code, reason = "used in part")]
mod layers;
#[path = "../../../providers/shm/src/data/ring.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "the provider's own, which it does not give out; its tests run there"
)]
mod ring;

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use criterion::{Bencher, Criterion};
use dat::registry::Registry;
use dat_engine::{Evd, Ia, IaOptions};
use dat_kit::{KeyTable, MemSpan};
use dat_loopback::Loopback;
use dat_plugin::Access;
use dat_plugin::host::{Memory, Plugin, SpanTable};
use dat_shm::Shm;
use dat_sync::Lock;
use dat_types::{CompletionFlags, EvdFlags};

use layers::{Layer, config};

/// Operations of a batch; fits every queue and ring.
pub(crate) const BATCH: usize = 64;

/// A batch of one operation.
type Phase = fn(&mut dyn Layer);

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    data_path(&mut criterion, "loopback", &Plugin::of::<Loopback>());
    data_path(&mut criterion, "shm", &Plugin::of::<Shm>());
    dispatcher(&mut criterion);
    rings(&mut criterion);
    tables(&mut criterion);
    locks(&mut criterion);
    visits(&mut criterion);
    registry(&mut criterion);
    criterion.final_summary();
}

/// The engine's calls over a provider, both ends on this thread.
fn data_path(criterion: &mut Criterion, provider: &str, plugin: &Plugin) {
    let mut engine = layers::engine::Engine::new(plugin, &config(&format!("parts-{provider}")));
    let phases: [(&str, Phase); 5] = [
        ("post_recv", |layer| layer.post_recvs()),
        ("post_send", |layer| layer.post_sends()),
        ("dequeue of a receive", |layer| layer.take_recvs()),
        ("dequeue of a send", |layer| layer.take_sends()),
        ("dequeue of nothing", |layer| layer.poll_nothing()),
    ];
    let mut group = criterion.benchmark_group(format!("engine over {provider}"));
    for (timed, (name, _)) in phases.iter().enumerate() {
        group.bench_function(*name, |bencher| {
            batches(bencher, || {
                let mut spent = Duration::ZERO;
                for (number, (_, phase)) in phases.iter().enumerate() {
                    let start = Instant::now();
                    phase(&mut engine);
                    if number == timed {
                        spent = start.elapsed();
                    }
                }
                spent
            });
        });
    }
    // The first has the memory mapped, where it can be.
    engine.post_writes(CompletionFlags::empty());
    engine.take_sends();
    group.bench_function("write, suppressed", |bencher| {
        batches(bencher, || timed(|| engine.post_writes(CompletionFlags::SUPPRESS)));
    });
    // One signalled completion, for the unsignalled ones before it.
    engine.post_writes(CompletionFlags::empty());
    engine.take_sends();
    group.bench_function("write and its dequeue", |bencher| {
        batches(bencher, || {
            timed(|| {
                engine.post_writes(CompletionFlags::empty());
                engine.take_sends();
            })
        });
    });
    group.finish();
}

/// An event dispatcher without a provider: software events.
fn dispatcher(criterion: &mut Criterion) {
    let device = Plugin::of::<Loopback>().open(&config("parts-dispatcher")).expect("the provider opens");
    let ia = Ia::open(device, "parts", "0", IaOptions::default()).expect("an IA");
    let evd: Evd = ia.evd_create(2 * BATCH as i32, EvdFlags::SOFTWARE).expect("a dispatcher");
    let fill = || (0..BATCH as u64).for_each(|value| evd.post_se(value).expect("there is room"));
    let drain = || (0..BATCH).for_each(|_| drop(black_box(evd.dequeue().expect("an event"))));
    let mut group = criterion.benchmark_group("dispatcher");
    group.bench_function("post_se", |bencher| {
        batches(bencher, || {
            let spent = timed(fill);
            drain();
            spent
        });
    });
    group.bench_function("dequeue of a software event", |bencher| {
        batches(bencher, || {
            fill();
            timed(drain)
        });
    });
    group.finish();
}

/// The ring of the shared-memory provider, in memory of this process.
fn rings(criterion: &mut Criterion) {
    const SIZE: usize = 16 << 10;
    let cells = Cells::new(SIZE);
    let (mut producer, mut consumer) = (ring::Producer::new(SIZE), ring::Consumer::new(SIZE));
    let push = |producer: &mut ring::Producer| {
        for arg in 0..BATCH as u64 {
            let slot = producer.reserve(&cells, black_box(8)).expect("there is room");
            producer.publish(&cells, slot, 2, 0, arg);
        }
    };
    let pop = |consumer: &mut ring::Consumer| {
        for arg in 0..BATCH as u64 {
            let frame = consumer.next(&cells).expect("a sound ring").expect("a frame");
            assert_eq!(frame.arg, arg);
            consumer.advance(&frame);
        }
    };
    let mut group = criterion.benchmark_group("shm ring");
    for timed_push in [true, false] {
        group.bench_function(if timed_push { "push" } else { "pop" }, |bencher| {
            batches(bencher, || {
                let pushed = timed(|| push(&mut producer));
                let popped = timed(|| pop(&mut consumer));
                producer.credit(consumer.publish()).expect("where the consumer is");
                if timed_push { pushed } else { popped }
            });
        });
    }
    group.finish();
}

/// What a local and a remote key are looked up in.
fn tables(criterion: &mut Criterion) {
    const REGIONS: u64 = 1024;
    let (rights, domain) = (Access::LOCAL_READ | Access::LOCAL_WRITE | Access::REMOTE_WRITE, 1);
    let mut keys = KeyTable::new(1 << 16);
    let rkeys: Vec<u32> = (0..REGIONS)
        .map(|index| {
            // SAFETY: nothing is copied from or to it.
            let memory = unsafe { MemSpan::new(0x10000 + index as usize * 4096, 4096) };
            keys.insert(memory, rights, domain).expect("there is room").rkey
        })
        .collect();
    let device = Plugin::of::<Loopback>().open(&config("parts-tables")).expect("the provider opens");
    let spans = SpanTable::new();
    let regions: Vec<(u32, u64)> = (0..REGIONS)
        .map(|_| {
            let memory = Memory::heap(64);
            let addr = memory.addr();
            let registration = device.register(memory, rights, domain).expect("a registration");
            (spans.insert(registration).expect("there is room"), addr)
        })
        .collect();
    let mut group = criterion.benchmark_group("tables");
    let mut at = 0;
    // Another one each time, and not the next.
    let mut next = move || {
        at = (at + 389) % REGIONS as usize;
        at
    };
    group.bench_function("remote key", |bencher| {
        bencher.iter(|| {
            let index = next();
            let addr = 0x10000 + index as u64 * 4096 + 8;
            keys.check(rkeys[index], addr, 8, Access::REMOTE_WRITE, domain).expect("a good key")
        });
    });
    group.bench_function("local context", |bencher| {
        bencher.iter(|| {
            let (context, addr) = regions[next()];
            spans.segment(context, addr + 8, 8, domain, Access::LOCAL_READ).expect("a good context")
        });
    });
    group.finish();
}

/// Taking and leaving an uncontended lock.
fn locks(criterion: &mut Criterion) {
    dat_sync::prepare();
    let (ours, system) = (Lock::new(0u64), Mutex::new(0u64));
    let single = Lock::single_threaded(0u64);
    let mut group = criterion.benchmark_group("lock");
    group.bench_function("of the data path", |bencher| bencher.iter(|| *ours.lock() += black_box(1)));
    group.bench_function("for one thread", |bencher| bencher.iter(|| *single.lock() += black_box(1)));
    for (name, lock) in [("of the data path", &ours), ("for one thread", &single)] {
        visited(
            || drop(black_box(lock.lock())),
            || {
                group.bench_function(format!("{name}, visited"), |bencher| {
                    bencher.iter(|| *lock.lock() += black_box(1));
                });
            },
        );
    }
    for (name, lock) in [("of the data path", &ours), ("for one thread", &single)] {
        group.bench_function(format!("{name}, the visit"), |bencher| {
            bencher.iter_custom(|turns| visits_of(lock, turns));
        });
    }
    group.bench_function("of the standard library", |bencher| {
        bencher.iter(|| *system.lock().expect("not poisoned") += black_box(1));
    });
    let mut plain = black_box(0u64);
    group.bench_function("none", |bencher| bencher.iter(|| plain += black_box(1)));
    group.finish();
    black_box(plain);
}

/// A message, all its calls on one thread, while another thread asks for the endpoints' status a thousand times a second.
fn visits(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("message over shm");
    for (name, single) in [("undeclared", false), ("declared single-threaded", true)] {
        let mut engine = layers::engine::Engine::declared(
            &Plugin::of::<Shm>(),
            &config(&format!("parts-{single}")),
            single,
        );
        let looked_at = engine.endpoints();
        let mut round = |bencher: &mut Bencher<'_>| {
            batches(bencher, || {
                timed(|| {
                    engine.post_recvs();
                    engine.post_sends();
                    engine.take_recvs();
                    engine.take_sends();
                })
            });
        };
        group.bench_function(name, &mut round);
        let look = || looked_at.iter().for_each(|ep| drop(black_box(ep.status())));
        visited(look, || {
            group.bench_function(format!("{name}, visited"), &mut round);
        });
    }
    group.finish();
}

/// Runs `work` while another thread does `visit` a thousand times a second.
fn visited(visit: impl Fn() + Sync, work: impl FnOnce()) {
    let over = AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while over.load(Ordering::Relaxed) == 0 {
                visit();
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        work();
        over.store(1, Ordering::Relaxed);
    });
}

/// A thread takes the lock again and again, and this one `turns` times: the time of these.
fn visits_of(lock: &Lock<u64>, turns: u64) -> Duration {
    let (done, over) = (AtomicU64::new(0), AtomicU32::new(0));
    let mut spent = Duration::ZERO;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while over.load(Ordering::Relaxed) == 0 {
                *lock.lock() += 1;
                done.fetch_add(1, Ordering::Relaxed);
                // As between posts: a lock that is hardly ever open is another matter.
                (0..16).for_each(|_| std::hint::spin_loop());
            }
        });
        for _ in 0..turns {
            let before = done.load(Ordering::Relaxed);
            while done.load(Ordering::Relaxed) < before + 1000 {
                std::hint::spin_loop();
            }
            spent += timed(|| *lock.lock() += 1);
        }
        over.store(1, Ordering::Relaxed);
    });
    spent
}

/// Names: the file that comes with it, read and checked; and a provider opened and closed by name.
fn registry(criterion: &mut Criterion) {
    const SHIPPED: &str = include_str!("../../../plugins.toml");
    const LINKED: &str = "[provider.lo]\nlibrary = \"builtin:loopback\"\n";
    let mut group = criterion.benchmark_group("registry");
    group.bench_function("plugins.toml", |bencher| {
        bencher.iter(|| Registry::from_str("plugins.toml", black_box(SHIPPED)).expect("a good file"));
    });
    let registry = Registry::from_str("linked", LINKED).expect("a good file");
    let registry = registry.with_static(Plugin::of::<Loopback>());
    group.bench_function("open and close", |bencher| {
        bencher.iter(|| registry.open_device(black_box("lo")).expect("the name opens"));
    });
    group.finish();
}

/// Times batches of [`BATCH`] operations, as an average of one.
fn batches(bencher: &mut Bencher<'_>, mut batch: impl FnMut() -> Duration) {
    bencher.iter_custom(|iterations| {
        let count = iterations.div_ceil(BATCH as u64);
        let spent: Duration = (0..count).map(|_| batch()).sum();
        spent.mul_f64(iterations as f64 / (count * BATCH as u64) as f64)
    });
}

fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// A ring's memory.
struct Cells {
    words: Vec<AtomicU32>,
    lens: Vec<AtomicU32>,
    args: Vec<AtomicU64>,
}

impl Cells {
    fn new(size: usize) -> Cells {
        let count = size / ring::UNIT;
        Cells {
            words: std::iter::repeat_with(AtomicU32::default).take(count).collect(),
            lens: std::iter::repeat_with(AtomicU32::default).take(count).collect(),
            args: std::iter::repeat_with(AtomicU64::default).take(count).collect(),
        }
    }
}

impl ring::Memory for Cells {
    fn word(&self, at: usize, order: Ordering) -> u32 {
        self.words[at / ring::UNIT].load(order)
    }

    fn set_word(&self, at: usize, word: u32, order: Ordering) {
        self.words[at / ring::UNIT].store(word, order);
    }

    fn rest(&self, at: usize) -> (u32, u64) {
        let unit = at / ring::UNIT;
        (self.lens[unit].load(Ordering::Relaxed), self.args[unit].load(Ordering::Relaxed))
    }

    fn set_rest(&self, at: usize, len: u32, arg: u64) {
        let unit = at / ring::UNIT;
        self.lens[unit].store(len, Ordering::Relaxed);
        self.args[unit].store(arg, Ordering::Relaxed);
    }
}
