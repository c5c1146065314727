//! Manual pages and completions, made from the table of the command line.

use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;
use crate::failure::{Context, Outcome};
use crate::output;

/// One page per command, `dat.1` first.
pub fn man(folder: &Path) -> Outcome<ExitCode> {
    clap_mangen::generate_to(Cli::command(), folder)
        .context(|| format!("the manual pages cannot be written to {}", folder.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// On standard output.
pub fn completions(shell: Shell) -> Outcome<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "dat", &mut text);
    output::print(&String::from_utf8_lossy(&text))?;
    Ok(ExitCode::SUCCESS)
}
