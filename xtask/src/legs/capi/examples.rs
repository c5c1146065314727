//! The examples in C and C++, built with what the layout's pkg-config file says, and run.

use crate::report::Result;
use std::path::Path;

use super::cases::{Column, OWN, Ready};
use super::field::{Device, Field, check, own};
use super::process::Started;
use crate::need;
use crate::process::Run;
use crate::root::root;

/// Builds the C tests that are programs for any provider, into the layout.
pub fn build_own(library: &Path) -> Result<()> {
    let flags = flags(library)?;
    fs_err::create_dir_all(library.join("tests"))?;
    for program in OWN {
        let source = root().join("api/capi/tests/c").join(program).with_extension("c");
        Run::new("cc")
            .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"])
            .args([source, "-o".into(), own(library, program)])
            .args(&flags)
            .args(["-lpthread"])
            .run()?;
    }
    Ok(())
}

/// Builds and runs the examples.
pub fn run(library: &Path, column: &Column) -> Result<()> {
    let field = Field::new(library, column, Device::software(column))?;
    let flags = flags(library)?;
    for (compiler, standard, source, program) in
        [("cc", "-std=c11", "ping.c", "ping"), ("c++", "-std=c++17", "put.cpp", "put")]
    {
        Run::new(compiler)
            .args([standard, "-O2", "-Wall", "-Wextra", "-Werror", "-D_DEFAULT_SOURCE"])
            .args([root().join("examples/c").join(source), "-o".into(), field.place().join(program)])
            .args(&flags)
            .run()?;
    }
    let mut put = field.command(&field.place().join("put"), &[field.ia()]);
    let output = Started::new(&mut put)?.finish(std::time::Duration::from_secs(20))?;
    check("put", &output, &["written and read back"])?;
    let ping = field.place().join("ping");
    let (_, outputs) = field.pair(Ready::Says("listening"), 1, &["1000 messages came back"], |server| {
        let role = if server { "server" } else { "client" };
        field.command(&ping, &[field.ia(), role, "7777", "1000"])
    });
    let [server, _] = outputs?;
    check("ping server", &server, &["served 1000 messages"])
}

/// What `pkg-config` makes of the layout's file.
fn flags(library: &Path) -> Result<Vec<String>> {
    need::programs(&[("pkg-config", "pkg-config")])?;
    let folder = library.join("lib/pkgconfig");
    let asked = Run::new("pkg-config").env("PKG_CONFIG_PATH", folder).args(["--cflags", "--libs", "dat2"]);
    Ok(words(&asked.output()?))
}

/// The words of a line, as a shell would take them: a space after a backslash ends none.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut escaped) = (vec![String::new()], false);
    for letter in line.chars() {
        match letter {
            '\\' if !escaped => {
                escaped = true;
                continue;
            }
            _ if letter.is_whitespace() && !escaped => words.push(String::new()),
            _ => words.last_mut().expect("there is always one").push(letter),
        }
        escaped = false;
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_space_after_a_backslash_ends_no_word() {
        assert_eq!(words(r"-L/opt/my\ dat/lib -ldat2"), ["-L/opt/my dat/lib", "-ldat2"]);
    }
}
