//! Names: `plugins.toml`, `dat.conf`, `DAT_OVERRIDE`, and what is refused.

mod support;

use support::{Kit, finish};

const CONF: &str = r#"
# ours by plugin, with and without parameters; ours by this library; a foreign one; a broken line; another version
plain    u2.0 nonthreadsafe default libdat_loopback.so dapl.2.0 "" ""
tuned    u2.0 threadsafe default libdat_shm.so dapl.2.0 "domain=names-test" ""
renamed  u2.0 nonthreadsafe default libdat2.so.2 dapl.2.0 "loopback0" ""
wrong    u2.0 nonthreadsafe default libdat_shm.so dapl.2.0 "nonsense=1" ""
ofa-v2   u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 "ib0 0" ""
broken   u2.0 nonthreadsafe default
old      u1.2 nonthreadsafe default libdat_loopback.so dapl.1.2 "" ""
"#;

#[test]
fn lines_of_dat_conf_open_what_they_name() {
    let kit = Kit::new();
    let program = kit.build("names");
    let file = kit.path().join("dat.conf");
    std::fs::write(&file, CONF).expect("written");
    let names = ["plain", "tuned", "renamed", "wrong", "ofa-v2", "broken", "old", "shm0"];
    let (status, output) = finish(kit.command(&program).env("DAT_OVERRIDE", &file).args(names));
    assert_eq!(status, Some(0), "{output}");
    for expected in ["plain=0", "tuned=0", "renamed=0", "*plain", "*tuned", "*renamed", "*wrong", "*ofa-v2"] {
        assert!(output.lines().any(|line| line == expected), "{expected}: {output}");
    }
    // Not in that file, so it is unknown.
    for unknown in ["broken", "old", "shm0"] {
        assert!(output.contains(&format!("{unknown}=800a0064")), "{unknown}: {output}");
        assert!(!output.contains(&format!("*{unknown}")), "{unknown}: {output}");
    }
    // The provider's own refusal of a parameter, and a clear word about another project's library.
    assert!(output.contains("wrong=8006"), "{output}");
    assert!(output.contains("ofa-v2=800a0000") && output.contains("libdaplofa.so.2"), "{output}");
    assert!(output.contains("another project"), "{output}");
}

#[test]
fn without_dat_override_the_layers_of_plugins_toml_apply() {
    let kit = Kit::new();
    let program = kit.build("names");
    let file = kit.path().join("plugins.toml");
    std::fs::write(&file, "[provider.mine]\nlibrary = \"libdat_loopback.so\"\n[chain]\nany = [\"mine\"]\n")
        .expect("written");
    let names = ["mine", "any", "RO_AWARE_mine", "loopback0", "nobody"];
    let (status, output) = finish(kit.command(&program).env("DAT_PLUGINS", &file).args(names));
    assert_eq!(status, Some(0), "{output}");
    for expected in
        ["mine=0", "any=0", "RO_AWARE_mine=0", "loopback0=0", "nobody=800a0064", "*mine", "*any", "*shm0"]
    {
        assert!(output.lines().any(|line| line == expected), "{expected}: {output}");
    }
    assert!(output.contains("no provider is named \"nobody\""), "{output}");
    let silent = finish(kit.command(&program).env("DAT_PLUGINS", &file).env("DAT_LOG", "off").args(names)).1;
    assert!(!silent.contains("no provider is named"), "{silent}");
}

#[test]
fn an_unreadable_override_is_an_empty_registry() {
    let kit = Kit::new();
    let program = kit.build("names");
    let mut command = kit.command(&program);
    command.env("DAT_OVERRIDE", kit.path().join("missing")).args(["shm0", "loopback0"]);
    let (_, output) = finish(&mut command);
    assert!(output.contains("shm0=800a0064") && output.contains("loopback0=800a0064"), "{output}");
}
