//! Events as a stream, for any executor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll};

use async_io::Async;
use dat_types::{Error, Result, ReturnType, Subtype};
use futures_core::Stream;

use crate::{Evd, Event};

/// The events of a dispatcher as a stream that never ends by itself: an error is its last item. Needs no particular
/// executor. One stream per dispatcher at a time.
#[derive(Debug)]
pub struct EventStream {
    evd: Evd,
    descriptor: Async<Descriptor>,
    ended: bool,
}

#[derive(Debug)]
struct Descriptor(Evd);

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Evd {
    /// All events from now on as a stream, for any executor.
    pub fn stream(&self) -> Result<EventStream> {
        EventStream::new(self)
    }
}

impl EventStream {
    fn new(evd: &Evd) -> Result<EventStream> {
        evd.fd()?;
        // Never read from, so whether it blocks does not matter.
        let descriptor = Async::new_nonblocking(Descriptor(evd.clone())).map_err(reactor)?;
        Ok(EventStream { evd: evd.clone(), descriptor, ended: false })
    }

    /// The next event.
    pub async fn next(&mut self) -> Result<Event> {
        loop {
            if let Some(event) = self.evd.poll()? {
                return Ok(event);
            }
            if self.evd.arm()? {
                self.descriptor.readable().await.map_err(reactor)?;
            }
        }
    }
}

impl Stream for EventStream {
    type Item = Result<Event>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Event>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        loop {
            match self.evd.poll() {
                Ok(Some(event)) => return Poll::Ready(Some(Ok(event))),
                Ok(None) => {}
                Err(error) => {
                    self.ended = true;
                    return Poll::Ready(Some(Err(error)));
                }
            }
            let outcome = match self.evd.arm() {
                Ok(false) => continue,
                Ok(true) => match self.descriptor.poll_readable(context) {
                    Poll::Ready(Ok(())) => continue,
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Err(error)) => reactor(error),
                },
                Err(error) => error,
            };
            self.ended = true;
            return Poll::Ready(Some(Err(outcome)));
        }
    }
}

fn reactor(source: io::Error) -> Error {
    let message = "the dispatcher's descriptor cannot be watched";
    Error::new("dat_evd_wait", ReturnType::InsufficientResources, Subtype::ResourceTevd, message)
        .with_source(source)
}
