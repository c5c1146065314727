//! What each layer costs in instructions, counted by callgrind: the same on every run and every machine.
//!
//! Each phase is counted over a number of rounds and over twice as many, so that the difference is what the operations
//! cost and nothing else. What callgrind counts is left in its files, one per count, named
//! `provider.layer.phase.operations`; `cargo xtask instructions` runs this, reads them and compares with the counts that are
//! kept.
//!
//! A program of its own, so that what the compiler makes of the data path here does not depend on other benchmarks.
//!
//! `valgrind --tool=callgrind --collect-atstart=no dat-count FOLDER PROVIDER...`

mod c_library;
mod callgrind;
mod fabric;
#[path = "../../layers/mod.rs"]
#[allow(dead_code, reason = "used in part")]
mod layers;
mod verbs;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dat::IaBuilder;
use dat_plugin::Config;
use dat_plugin::host::Plugin;

use layers::{BATCH, Layer};

/// Rounds of the shorter count. Many, because some work is done once in several rounds.
const ROUNDS: usize = 128;

/// A batch of one operation.
type Phase = fn(&mut dyn Layer);

/// What is counted. Nothing costs something too: the calls to begin and to end.
const PHASES: [(&str, Phase); 6] = [
    (POST_RECV, |layer| layer.post_recvs()),
    ("post_send", |layer| layer.post_sends()),
    (RECV_COMPLETION, |layer| layer.take_recvs()),
    ("send_completion", |layer| layer.take_sends()),
    ("empty_poll", |layer| layer.poll_nothing()),
    ("nothing", |_| ()),
];
const POST_RECV: &str = "post_recv";
const RECV_COMPLETION: &str = "recv_completion";

/// Time for a provider to send pending control messages: more than it waits for a message that could carry them.
const LULL: Duration = Duration::from_micros(200);

/// Polls after which a provider has done its deferred work at least once.
const SELDOM: usize = 8;

/// Counts the providers named, whose libraries are in a folder.
#[allow(
    clippy::disallowed_methods,
    reason = "this program is the application, and the C library has no other way"
)]
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [folder, providers @ ..] = &args[..] else { panic!("dat-count FOLDER PROVIDER...") };
    let folder = Path::new(folder);
    assert!(callgrind::runs(), "this counts under valgrind only: `cargo xtask instructions`");
    let names = names(folder, providers);
    // SAFETY: nothing else runs yet that could look at the environment.
    unsafe { std::env::set_var("DAT_PLUGINS", names.path()) };
    for provider in providers {
        let library = library(folder, provider);
        let plugin = Plugin::load(&library).unwrap_or_else(|error| panic!("{}: {error}", library.display()));
        // What it is compared with.
        match provider.as_str() {
            "ibverbs" => count(provider, &mut verbs::Verbs::new()),
            "libfabric" => count(provider, &mut fabric::Fabric::new()),
            _ => {}
        }
        // The standing of each in a world of its own.
        count(provider, &mut layers::abi::Abi::new(&plugin, &config(provider, "abi")));
        count(provider, &mut layers::engine::Engine::new(&plugin, &config(provider, "engine")));
        let name = format!("{provider}-api");
        count(provider, &mut layers::api::Api::new(|| IaBuilder::new(&name).open().expect("the name opens")));
        let name = format!("{provider}-buffer");
        let open = || IaBuilder::new(&name).open().expect("the name opens");
        count(provider, &mut layers::buffer::Buffers::new(open));
        let name = CString::new(format!("{provider}-c")).expect("no zero in it");
        count(provider, &mut c_library::C::new(folder, &name));
    }
}

fn library(folder: &Path, provider: &str) -> PathBuf {
    folder.join(format!("libdat_{provider}.so"))
}

/// The doubles of libraries have one device each.
fn config(provider: &str, layer: &str) -> Config {
    let of_double = match provider {
        "ibverbs" => ("address", "127.0.0.1"),
        "libfabric" => ("fabric", "double"),
        _ => return layers::config(layer),
    };
    let params = BTreeMap::from([(of_double.0.to_owned(), of_double.1.to_owned())]);
    Config { ia_name: format!("count-{layer}"), params }
}

/// What the layers that open by name find: each provider once for each of them.
fn names(folder: &Path, providers: &[String]) -> tempfile::NamedTempFile {
    let mut text = String::new();
    let by_name = |provider| ["api", "buffer", "c"].map(|layer| (provider, layer));
    for (provider, layer) in providers.iter().flat_map(by_name) {
        let (library, config) = (library(folder, provider), config(provider, layer));
        let params: Vec<String> =
            config.params.iter().map(|(key, value)| format!("{key} = {value:?}")).collect();
        let _ = write!(
            text,
            "[provider.{provider}-{layer}]\nlibrary = {library:?}\nparams = {{ {} }}\n",
            params.join(", ")
        );
    }
    let file = tempfile::Builder::new().suffix(".toml").tempfile().expect("a temporary file");
    std::fs::write(file.path(), text).expect("the temporary file is written");
    file
}

fn count(provider: &str, layer: &mut dyn Layer) {
    // libfabric announces receives to the peer, and takes messages, in idle polls.
    let lulls = provider == "libfabric";
    // Memory is touched, locks have their bias owners, rings have gone round.
    rounds(layer, ROUNDS, None, lulls);
    for (number, (phase, _)) in PHASES.iter().enumerate() {
        for rounds_counted in [ROUNDS, 2 * ROUNDS] {
            callgrind::zero();
            rounds(layer, rounds_counted, Some(number), lulls);
            let operations = rounds_counted * BATCH;
            let name = format!("{provider}.{}.{phase}.{operations}", layer.name());
            callgrind::dump(&CString::new(name).expect("no zero in it"));
        }
    }
}

fn rounds(layer: &mut dyn Layer, rounds: usize, counted: Option<usize>, lulls: bool) {
    for _ in 0..rounds {
        for (number, (name, phase)) in PHASES.iter().enumerate() {
            match counted == Some(number) {
                true => {
                    callgrind::toggle();
                    phase(layer);
                    callgrind::toggle();
                }
                false => phase(layer),
            }
            match *name {
                POST_RECV if lulls => lull(layer, &[1, 0]),
                // What was sent is for the sender to find in its turn.
                RECV_COMPLETION if lulls => lull(layer, &[1]),
                _ => {}
            }
        }
    }
}

/// Polls both idle ends until their control messages have been exchanged.
fn lull(layer: &mut dyn Layer, ends: &[usize]) {
    let mut poll_all = || ends.iter().for_each(|side| layer.idle(*side));
    // The first poll notices pending control messages, a later one sends them, and one after that receives them.
    poll_all();
    let end = Instant::now() + LULL;
    while Instant::now() < end {
        poll_all();
    }
    for _ in 0..2 * SELDOM {
        poll_all();
    }
}
