//! Ports: the same one of each child.

use std::sync::{Arc, Mutex, PoisonError};

use dat_plugin::host::BelowListener;
use dat_plugin::{Device as _, Failure, Listener, Status};

use crate::child::Child;

/// A port of a route.
pub struct RouteListener {
    port: u64,
    /// Emptied when the port is closed.
    below: Mutex<Vec<Arc<BelowListener>>>,
}

/// How often another free port is tried, when the one that the first child gave is taken at another child.
const TRIES: usize = 64;

impl RouteListener {
    pub(crate) fn open(children: &[Child], port: u64, user: u64) -> Result<RouteListener, Failure> {
        if port != 0 {
            return on(children, port, user);
        }
        // Kept until one is found, so that the first child gives another one each time.
        let mut taken = Vec::new();
        loop {
            let first = children[0].below.listen(0, user)?;
            let port = first.port();
            let rest = children[1..].iter().map(|child| child.below.listen(port, user));
            match rest.collect::<Result<Vec<_>, Failure>>() {
                Ok(mut below) => {
                    below.insert(0, first);
                    return Ok(RouteListener { port, below: Mutex::new(below) });
                }
                Err(failure) if failure.status == Status::IN_USE && taken.len() < TRIES => taken.push(first),
                Err(failure) => return Err(failure),
            }
        }
    }
}

fn on(children: &[Child], port: u64, user: u64) -> Result<RouteListener, Failure> {
    let below = children.iter().map(|child| {
        child
            .below
            .listen(port, user)
            .map_err(|failure| Failure { message: format!("{}: {}", child.name, failure.message), ..failure })
    });
    Ok(RouteListener { port, below: Mutex::new(below.collect::<Result<_, _>>()?) })
}

impl Listener for RouteListener {
    fn port(&self) -> u64 {
        self.port
    }

    fn close(&self) {
        self.below.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
