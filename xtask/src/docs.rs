//! `cargo xtask docs`: files of `docs/` that are printed from the code, and the manual pages and shell completions of
//! the command `dat`, which it prints itself, for packagers.

use fs_err as fs;

use crate::cargo::{cargo, target_dir};
use crate::libtest::Tests;
use crate::process::Run;
use crate::report::Report;

/// Writes all of it. The test that compares `docs/ep-states.md` with the code writes that file.
pub fn run() -> Report {
    let states = cargo().args(["test", "-p", "dat-engine", "--lib", "the_printed_form_is_docs_ep_states_md"]);
    Tests::of(states.env("DAT_WRITE_DOCS", "1"))?;
    cargo().args(["build", "-p", "dat-cli"]).run()?;
    let target = target_dir()?;
    let dat = || Run::new(&target.join("debug/dat").to_string_lossy());
    let (man, completions) = (target.join("man"), target.join("completions"));
    for folder in [&man, &completions] {
        fs::create_dir_all(folder)?;
    }
    dat().args(["man".as_ref(), man.as_os_str()]).run()?;
    for shell in ["bash", "zsh", "fish"] {
        let text = dat().args(["completions", shell]).output()?;
        let file = completions.join(format!("dat.{shell}"));
        fs::write(&file, text)?;
    }
    Ok(format!("wrote docs/ep-states.md, {} and {}", man.display(), completions.display()))
}

#[cfg(test)]
mod tests {
    use fs_err as fs;

    use crate::root::root;

    #[test]
    fn the_plugin_authors_guide_has_every_function_of_the_header() {
        let guide = fs::read_to_string(root().join("docs/plugin-authors.md")).expect("it is there");
        let begin = guide.find("## Every function").expect("the section");
        let length = guide[begin..].find("\n## Capabilities").expect("its end");
        let guide = &guide[begin..begin + length];
        let header = fs::read_to_string(root().join("include/dat_plugin.h")).expect("it is there");
        let names = header.match_indices("(*").filter_map(|(at, _)| {
            let (name, rest) = header[at + 2..].split_once(')')?;
            rest.starts_with('(').then_some(name.trim_end_matches('_'))
        });
        // The host offers these two; a provider does not write them.
        let functions: Vec<&str> = names.filter(|name| !["log", "push"].contains(name)).collect();
        assert!(functions.len() > 40, "{functions:?}");
        let explained = |name: &&str| {
            let mut forms = [('`', '('), ('`', '`'), (':', '('), (':', '`')].into_iter();
            forms.any(|(before, after)| guide.contains(&format!("{before}{name}{after}")))
        };
        let missing: Vec<&str> = functions.into_iter().filter(|name| !explained(name)).collect();
        assert!(missing.is_empty(), "not in the table of docs/plugin-authors.md: {missing:?}");
    }
}
