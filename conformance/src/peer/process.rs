//! A peer that is a process: one line of JSON for each command on its standard input, one for each answer on its
//! standard output. It ends with its input, so it never outlives its parent process.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use dat_engine::Plugin;
use dat_plugin::Config;
use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use super::command::{Answer, Command, Refusal};
use super::executor::World;
use crate::check::{Failed, Outcome, Stop, fail};
use crate::fixture::Fixture;
use crate::subject::{PeerCommand, open};

type Reply = Result<Answer, Refusal>;

pub(super) struct ProcessPeer {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

/// How long a process may take to open its adapter.
const START: Duration = Duration::from_secs(10);

impl ProcessPeer {
    /// Starts one, which on a device `scaled` times slower than usual may take so much longer.
    pub(super) fn start(command: &PeerCommand, fixture: &Fixture) -> Result<ProcessPeer, Stop> {
        let mut child = std::process::Command::new(&command.program)
            .args(&command.args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .failed(&format!("starting the peer {}", command.program.display()))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return fail("the peer has no standard streams");
        };
        let (sender, lines) = channel();
        // Ends with the peer: its output closes.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let peer = ProcessPeer { child, input, lines };
        let greeting: Reply = peer.answer(fixture.scaled(START), "its greeting")?;
        match greeting {
            Ok(_) => Ok(peer),
            Err(refusal) => fail(format!("the peer did not start: {}", refusal.text)),
        }
    }

    pub(super) fn ask(&mut self, command: &Command, patience: Duration) -> Result<Reply, Stop> {
        let mut line = serde_json::to_string(command).failed("writing a command")?;
        line.push('\n');
        self.input.write_all(line.as_bytes()).failed("telling the peer")?;
        self.answer(patience, &line)
    }

    fn answer(&self, patience: Duration, what: &str) -> Result<Reply, Stop> {
        match self.lines.recv_timeout(patience) {
            Ok(line) => serde_json::from_str(&line).failed(&format!("the peer wrote {line:?}")),
            Err(RecvTimeoutError::Timeout) => {
                fail(format!("the peer did not answer within {patience:?}: {what}"))
            }
            Err(RecvTimeoutError::Disconnected) => fail(format!("the peer died before it answered: {what}")),
        }
    }

    pub(super) fn kill(mut self) -> Outcome {
        self.child.kill().failed("killing the peer")?;
        self.child.wait().failed("waiting for the killed peer")?;
        Ok(())
    }

    pub(super) fn freeze(&self) -> Outcome {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else { return fail("the peer has no process id") };
        kill_process(pid, Signal::STOP).failed("stopping the peer")
    }
}

impl Drop for ProcessPeer {
    fn drop(&mut self) {
        // Already gone is as good as killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves as a peer: opens the provider's adapter and performs commands from standard input until it ends. For
/// programs that are started by a [`PeerCommand`].
pub fn peer_main(plugin: &Plugin, config: &Config) -> ExitCode {
    // The end of its input ends it; this does when it is stopped at that time and cannot read. It is the end of the
    // clause's thread that counts, which starts its peer and drops it.
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        eprintln!("a peer could not be tied to the process that started it: {error}");
        return ExitCode::FAILURE;
    }
    let mut output = std::io::stdout().lock();
    let mut world = match open(plugin, config) {
        Ok(ia) => World::new(ia),
        Err(stop) => {
            let _ = say(&mut output, &Err(Refusal { text: format!("{stop:?}") }));
            return ExitCode::FAILURE;
        }
    };
    if say(&mut output, &Ok(Answer::Done)).is_err() {
        return ExitCode::FAILURE;
    }
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let reply = match serde_json::from_str::<Command>(&line) {
            Ok(command) => world.perform(&command),
            Err(error) => Err(Refusal { text: format!("{line:?} is no command: {error}") }),
        };
        if say(&mut output, &reply).is_err() {
            break;
        }
    }
    ExitCode::SUCCESS
}

fn say(output: &mut impl Write, reply: &Reply) -> std::io::Result<()> {
    let mut line = serde_json::to_string(reply)?;
    line.push('\n');
    output.write_all(line.as_bytes())?;
    output.flush()
}
