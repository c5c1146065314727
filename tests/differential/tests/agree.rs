//! A fixed set of seeds, over the providers of the tree. More of them: `cargo run --release -p dat-differential`.

use std::path::PathBuf;
use std::time::Instant;

use dat_differential::{Subject, search};
use dat_engine::Plugin;
use dat_plugin::Config;

fn loopback() -> Subject {
    let config = Config { ia_name: "loopback0".into(), ..Config::default() };
    Subject {
        label: "loopback".into(),
        plugin: Plugin::of::<dat_loopback::Loopback>(),
        config,
        soft_roce: false,
    }
}

fn shm() -> Subject {
    let path = shm_library();
    let plugin = Plugin::load(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut config = Config { ia_name: "shm0".into(), ..Config::default() };
    config.params.insert("domain".into(), format!("differential-{}", std::process::id()));
    Subject { label: "shm".into(), plugin, config, soft_roce: false }
}

fn all_agree(first: u64, count: u64, subjects: &[Subject], arguments: &str) {
    let start = Instant::now();
    let tally = search(first, count, subjects, |_, _| false).unwrap_or_else(|found| {
        panic!("{found}reproduce: dat-differential --seed {} --count 1 {arguments}", found.seed)
    });
    let rate = tally.programs as f64 / start.elapsed().as_secs_f64() * 60.0;
    println!("{} programs, {} steps, {rate:.0} programs a minute", tally.programs, tally.steps);
    // Both have everything; for other providers the refused features are printed.
    assert!(tally.refused.is_empty(), "refused: {:?}", tally.refused);
    // A generator that gets nowhere would agree with everything.
    for kind in [
        "Send [Success] bytes",
        "RdmaWrite [RemoteAccess]",
        "Receive [LocalLength]",
        "[Established] bytes",
        "RdmaWriteImmed [Success] bytes",
        "RecvImmed [Success] bytes and",
        "RecvMsgImmed [Success] bytes and",
        "HandOff Success",
        "HandOff InvalidParameter",
        "Adopt Success",
        "Receive shared [Success] bytes",
        "Receive shared [LocalLength]",
        "low watermark",
        "BindMw [Success] bytes",
        "Bind InvalidState",
        "QueueFree InvalidState",
        "QueueResize Success",
        "FetchAdd [Success] bytes",
        "CmpSwap [Success] bytes",
        "CmpSwap [RemoteAccess]",
    ] {
        assert!(tally.kinds.get(kind).copied().unwrap_or(0) > 3, "hardly any {kind} in {:?}", tally.kinds);
    }
}

#[test]
fn loopback_does_what_the_model_says() {
    all_agree(1, 2000, &[loopback()], "");
}

#[test]
fn shm_does_what_the_model_and_loopback_do() {
    let path = shm_library();
    all_agree(1_000_000, 600, &[loopback(), shm()], &format!("--plugin {}", path.display()));
}

/// `DAT_TEST_SHM`, or the library as cargo built it beside this test.
fn shm_library() -> PathBuf {
    if let Some(path) = std::env::var_os("DAT_TEST_SHM") {
        let path = PathBuf::from(path);
        assert!(path.is_file(), "DAT_TEST_SHM names {}, which is no file", path.display());
        return path;
    }
    let test = std::env::current_exe().expect("the test knows its own path");
    let folder = test.parent().expect("a folder");
    [folder.to_owned(), folder.join("..")]
        .into_iter()
        .map(|folder| folder.join("libdat_shm.so"))
        .find(|path| path.is_file())
        .expect("cargo builds libdat_shm.so for this test; or set DAT_TEST_SHM to its path")
}
