//! A running program. Its output goes to a file, so that a full pipe never stops it.

use crate::report::Result;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What a program printed, and its exit status (`None`: a signal).
pub struct Output {
    pub status: Option<i32>,
    pub text: String,
}

impl Output {
    /// The last lines.
    pub fn tail(&self) -> String {
        let lines: Vec<&str> = self.text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(3)..].join(" / ")
    }
}

/// A started program. Ended when this is dropped.
pub struct Started {
    child: Child,
    file: tempfile::NamedTempFile,
}

impl Started {
    pub fn new(command: &mut Command) -> Result<Started> {
        let file = tempfile::NamedTempFile::new().map_err(|error| format!("no temporary file: {error}"))?;
        let child = command.stdin(Stdio::null()).stdout(append(&file)?).stderr(append(&file)?).spawn();
        let child = child.map_err(|error| format!("cannot start {command:?}: {error}"))?;
        Ok(Started { child, file })
    }

    /// Its output until now.
    pub fn said(&self) -> String {
        let bytes = fs::read(self.file.path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits for its end.
    pub fn finish(mut self, deadline: Duration) -> Result<Output> {
        let begin = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Ok(Output { status: status.code(), text: self.said() }),
                Ok(None) if begin.elapsed() < deadline => std::thread::sleep(Duration::from_millis(5)),
                Ok(None) => {
                    let said = self.said();
                    let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
                    fail!("not finished after {} s; it last said {last:?}", deadline.as_secs());
                }
                Err(error) => fail!("waiting failed: {error}"),
            }
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // Both do nothing for a program that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Both streams append to one file, so that neither writes over the other.
fn append(file: &tempfile::NamedTempFile) -> Result<Stdio> {
    let opened = fs::OpenOptions::new().append(true).open(file.path());
    Ok(Stdio::from(opened?))
}
