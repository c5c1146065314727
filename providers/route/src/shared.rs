//! What the objects of a route share, and the events of its children.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use dat_plugin::{Device as _, DeviceAttr, Event, EventKind, Failure, RejectReason, Status};

use crate::child::{Child, address_of};
use crate::header::Header;
use crate::regions::Regions;

/// What the objects of a route share.
pub(crate) struct Shared {
    pub(crate) children: Arc<[Child]>,
    pub(crate) regions: Arc<Regions>,
    pub(crate) attr: DeviceAttr,
    /// The child whose address is the route's.
    address_of: usize,
    /// By the number in their events.
    channels: RwLock<HashMap<u64, Arc<dyn Connection>>>,
    requests: Mutex<Requests>,
    /// Ports given to connecting channels so far.
    ports: AtomicU32,
    /// Held while events are handed out. A channel is closed under it, so that no event is handled meanwhile.
    events: Mutex<()>,
}

#[derive(Default)]
struct Requests {
    next: u64,
    open: HashMap<u64, Asked>,
}

/// A connection request.
pub(crate) struct Asked {
    pub(crate) child: usize,
    /// Its number at the child.
    pub(crate) request: u64,
    pub(crate) peer: Header,
}

/// A channel, as events reach it.
pub(crate) trait Connection: Send + Sync {
    /// Takes an event of a child. What it gives is for the engine.
    fn event(&self, child: usize, event: Event) -> Option<Event>;
}

impl Shared {
    pub(crate) fn new(children: Arc<[Child]>, attr: DeviceAttr) -> Shared {
        Shared {
            regions: Arc::new(Regions::new(children.clone())),
            address_of: address_of(&children),
            attr,
            children,
            channels: RwLock::default(),
            requests: Mutex::default(),
            ports: AtomicU32::new(0),
            events: Mutex::default(),
        }
    }

    /// Adds a channel, unless there are as many as the device may have.
    pub(crate) fn add(&self, user: u64, channel: Arc<dyn Connection>) -> Result<(), Failure> {
        let mut channels = self.channels.write().unwrap_or_else(PoisonError::into_inner);
        if channels.len() >= self.attr.max_channels as usize {
            let message = format!("the route has {} channels open already", channels.len());
            return Err(Failure::new(Status::NO_RESOURCE, message));
        }
        channels.insert(user, channel);
        Ok(())
    }

    /// Takes events of the children, in their order.
    pub(crate) fn poll_events(&self, out: &mut [Event]) -> usize {
        let _events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let mut given = 0;
        for (nth, child) in self.children.iter().enumerate() {
            loop {
                let room = out.len() - given;
                if room == 0 {
                    return given;
                }
                let first = given;
                let taken = child.below.poll_events(&mut out[first..]);
                for place in first..first + taken {
                    if let Some(event) = self.event(nth, out[place]) {
                        out[given] = event;
                        given += 1;
                    }
                }
                if taken < room {
                    break;
                }
            }
        }
        given
    }

    /// Refuses a connection request.
    pub(crate) fn reject(&self, request: u64, reason: RejectReason, data: &[u8]) -> Status {
        if reason == RejectReason::CONSUMER && !self.carries(data) {
            return Status::INVALID;
        }
        let Ok(asked) = self.take_request(request) else { return Status::INVALID };
        let below = &self.children[asked.child].below;
        match reason {
            RejectReason::CONSUMER => {
                let own = Header { table: None, port: 0, address: None };
                below.reject(asked.request, reason, &own.with(data))
            }
            _ => below.reject(asked.request, reason, data),
        }
    }

    /// What this side says of itself on a connection through this child.
    pub(crate) fn header(&self, child: usize, domain: u32, port: u32) -> Result<Header, Failure> {
        let table = match child {
            0 => None,
            child => Some(self.regions.table(child, domain)?),
        };
        Ok(Header { table, port, address: (child != self.address_of).then_some(self.attr.address) })
    }

    /// Whether a message of a connection has room for this private data.
    pub(crate) fn carries(&self, data: &[u8]) -> bool {
        data.len() <= self.attr.max_private_data as usize
    }

    /// A port for the connecting side. It is a name only: nothing listens there.
    pub(crate) fn new_port(&self) -> u32 {
        const FIRST: u32 = 1 << 16;
        FIRST + self.ports.fetch_add(1, Ordering::Relaxed) % (u32::MAX - FIRST)
    }

    pub(crate) fn take_request(&self, request: u64) -> Result<Asked, Failure> {
        let gone = || Failure::new(Status::INVALID, format!("there is no connection request {request}"));
        self.requests().open.remove(&request).ok_or_else(gone)
    }

    /// The request could not be accepted; it can be rejected.
    pub(crate) fn put_back(&self, request: u64, asked: Asked) {
        self.requests().open.insert(request, asked);
    }

    /// The channel is closed.
    pub(crate) fn forget(&self, user: u64) {
        let _events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        self.channels.write().unwrap_or_else(PoisonError::into_inner).remove(&user);
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an event of a child. What it gives is for the engine.
    fn event(&self, child: usize, event: Event) -> Option<Event> {
        use EventKind as K;
        match event.kind {
            K::REQUEST => self.request(child, event),
            K::ESTABLISHED | K::REJECTED | K::REFUSED | K::UNREACHABLE | K::ACCEPT_FAILED => {
                self.of_channel(child, event)
            }
            K::DISCONNECTED | K::BROKEN => self.of_channel(child, event),
            _ => Some(event),
        }
    }

    fn of_channel(&self, child: usize, event: Event) -> Option<Event> {
        let channel = self.channels.read().unwrap_or_else(PoisonError::into_inner).get(&event.user).cloned();
        channel?.event(child, event)
    }

    fn request(&self, child: usize, event: Event) -> Option<Event> {
        let Some((peer, data)) = Header::read(event.data()) else {
            let child = &self.children[child];
            tracing::warn!(child = %child.name, "a peer that is no route of this version is refused");
            child.below.reject(event.request, RejectReason::PROVIDER, &[]);
            return None;
        };
        let mut given =
            Event { data: [0; dat_plugin::MAX_PRIVATE_DATA], data_len: 0, ..event }.with_data(data);
        given.peer = peer.address.unwrap_or(event.peer);
        given.peer_port = peer.port.into();
        let mut requests = self.requests();
        requests.next += 1;
        given.request = requests.next;
        requests.open.insert(given.request, Asked { child, request: event.request, peer });
        Some(given)
    }
}
