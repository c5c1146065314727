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

mod callgrind;
#[path = "../../layers/mod.rs"]
#[allow(dead_code, reason = "used in part")]
mod layers;
mod verbs;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::Path;

use dat::IaBuilder;
use dat_plugin::Config;
use dat_plugin::host::Plugin;

use layers::Layer;

/// Messages a round; fits every queue and the provider's default ring.
pub(crate) const BATCH: usize = 64;

/// Rounds of the shorter count. Many, because some work is done once in several rounds.
const ROUNDS: usize = 128;

/// A batch of one operation.
type Phase = fn(&mut dyn Layer);

/// What is counted. Nothing costs something too: the calls to begin and to end.
const PHASES: [(&str, Phase); 6] = [
    ("post_recv", |layer| layer.post_recvs()),
    ("post_send", |layer| layer.post_sends()),
    ("recv_completion", |layer| layer.take_recvs()),
    ("send_completion", |layer| layer.take_sends()),
    ("empty_poll", |layer| layer.poll_nothing()),
    ("nothing", |_| ()),
];

/// Counts the providers named, whose libraries are in a folder.
fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [folder, providers @ ..] = &args[..] else { panic!("dat-count FOLDER PROVIDER...") };
    let folder = Path::new(folder);
    assert!(callgrind::runs(), "this counts under valgrind only: `cargo xtask instructions`");
    for provider in providers {
        let library = folder.join(format!("libdat_{provider}.so"));
        let plugin = Plugin::load(&library).unwrap_or_else(|error| panic!("{}: {error}", library.display()));
        if provider == "ibverbs" {
            // What it is compared with.
            count(provider, &mut verbs::Verbs::new());
        }
        // The standing of each in a world of its own.
        count(provider, &mut layers::abi::Abi::new(&plugin, &config(provider, "abi")));
        count(provider, &mut layers::engine::Engine::new(&plugin, &config(provider, "engine")));
        let names = names(provider, &library, &config(provider, "api"));
        count(
            provider,
            &mut layers::api::Api::new(|| {
                IaBuilder::new("counted").plugins(names.path()).open().expect("the name opens")
            }),
        );
    }
}

/// The double of the verbs library knows one address.
fn config(provider: &str, layer: &str) -> Config {
    match provider {
        "ibverbs" => Config {
            ia_name: format!("count-{layer}"),
            params: BTreeMap::from([("address".to_owned(), "127.0.0.1".to_owned())]),
        },
        _ => layers::config(layer),
    }
}

fn names(provider: &str, library: &Path, config: &Config) -> tempfile::NamedTempFile {
    let params: Vec<String> = config.params.iter().map(|(key, value)| format!("{key} = {value:?}")).collect();
    let text = format!(
        "[provider.counted]\nlibrary = {library:?}\ndescription = {provider:?}\nparams = {{ {} }}\n",
        params.join(", ")
    );
    let file = tempfile::Builder::new().suffix(".toml").tempfile().expect("a temporary file");
    std::fs::write(file.path(), text).expect("the temporary file is written");
    file
}

fn count(provider: &str, layer: &mut dyn Layer) {
    // Memory is touched, locks have found their favourites, rings have gone round.
    rounds(layer, ROUNDS, None);
    for (number, (phase, _)) in PHASES.iter().enumerate() {
        for rounds_counted in [ROUNDS, 2 * ROUNDS] {
            callgrind::zero();
            rounds(layer, rounds_counted, Some(number));
            let operations = rounds_counted * BATCH;
            let name = format!("{provider}.{}.{phase}.{operations}", layer.name());
            callgrind::dump(&CString::new(name).expect("no zero in it"));
        }
    }
}

fn rounds(layer: &mut dyn Layer, rounds: usize, counted: Option<usize>) {
    for _ in 0..rounds {
        for (number, (_, phase)) in PHASES.iter().enumerate() {
            match counted == Some(number) {
                true => {
                    callgrind::toggle();
                    phase(layer);
                    callgrind::toggle();
                }
                false => phase(layer),
            }
        }
    }
}
