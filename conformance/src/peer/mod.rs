//! End B: an adapter driven by commands, in this process or in one of its own. The same commands and the same
//! executor serve both.

mod command;
mod executor;
mod process;
mod remote;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

pub(crate) use command::AttrSpec;
pub(crate) use command::Posted;
use command::{Answer, Command, Refusal};
use executor::World;
use process::ProcessPeer;
pub use process::peer_main;
pub(crate) use remote::RemoteEnd;

use crate::check::{Outcome, Stop, fail};
use crate::fixture::Fixture;
use crate::subject::Subject;

pub(crate) struct Peer {
    link: Mutex<Link>,
    pub(crate) fixture: Arc<Fixture>,
}

enum Link {
    Here(Box<World>),
    There(ProcessPeer),
    Gone,
}

impl Peer {
    pub(crate) fn start(subject: &Subject, fixture: Arc<Fixture>) -> Result<Peer, Stop> {
        let link = match &subject.peer {
            None => Link::Here(Box::new(World::new(subject.open()?))),
            Some(command) => Link::There(ProcessPeer::start(command, &fixture)?),
        };
        Ok(Peer { link: Mutex::new(link), fixture })
    }

    /// Has the peer do something; its refusal is a failure here.
    pub(crate) fn call(&self, command: Command) -> Result<Answer, Stop> {
        self.fixture.doing(format!("the peer's answer to {command:?}"));
        let reply = match &mut *self.link.lock() {
            Link::Here(world) => world.perform(&command),
            Link::There(process) => process.ask(&command, self.fixture.long() + command.patience())?,
            Link::Gone => return fail("the peer is gone already"),
        };
        reply.map_err(|Refusal { text }| Stop::Failed(format!("at the peer, {command:?} gave {text}")))
    }

    /// Ends the peer without any warning: SIGKILL for a process, an abrupt close for an adapter of this one.
    pub(crate) fn kill(&self) -> Outcome {
        let link = std::mem::replace(&mut *self.link.lock(), Link::Gone);
        match link {
            Link::There(process) => process.kill(),
            Link::Here(world) => {
                drop(world);
                Ok(())
            }
            Link::Gone => fail("the peer is gone already"),
        }
    }

    /// Stops the peer's process in its tracks; `false`: it is no process.
    pub(crate) fn freeze(&self) -> Result<bool, Stop> {
        match &*self.link.lock() {
            Link::There(process) => process.freeze().map(|()| true),
            _ => Ok(false),
        }
    }
}

impl Command {
    /// What the command itself may take.
    fn patience(&self) -> Duration {
        match self {
            Command::Wait { ms, .. } => Duration::from_millis(*ms),
            _ => Duration::ZERO,
        }
    }
}
