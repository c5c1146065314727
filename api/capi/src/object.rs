//! What stands behind handles: the engine's object, its IA, and what C programs are given pointers to.

use std::collections::HashMap;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, OnceLock};

use dat_engine as engine;
use dat_types::{ObjectId, Subtype};
use parking_lot::Mutex;

use crate::abi::{Agent, Comm, Handle, Kind, NULL, Provider};
use crate::address::Stored;
use crate::code::{NO_ROOM, Outcome, handle as bad_handle};
use crate::counter::Base;
use crate::handle::{self, Object};
use crate::registered::Line;
use crate::text::NamedList;

/// An open IA.
pub struct Ia {
    pub engine: engine::Ia,
    /// What consumers know it by: a small number, or its address if another registry opened it.
    pub handle: OnceLock<HandleCell>,
    /// The table its objects begin with.
    pub provider: &'static Provider,
    /// Its own address.
    pub address: Stored,
    pub transport_attr: NamedList,
    pub vendor_attr: NamedList,
    pub provider_attr: NamedList,
    /// What `dat_ia_query` gives as the dispatcher of asynchronous errors.
    pub async_evd: OnceLock<HandleCell>,
    /// The line of another registry that opened it.
    pub line: OnceLock<Line>,
    /// Reserved service points by connection qualifier.
    pub reserved: Mutex<HashMap<u64, HandleCell>>,
    /// Handles of all its objects.
    pub children: Mutex<HashMap<usize, Kind>>,
    pub counters: Base,
}

/// A handle in a place that threads share: a number as far as we are concerned.
#[derive(Clone, Copy)]
pub struct HandleCell(pub usize);

impl From<Handle> for HandleCell {
    fn from(handle: Handle) -> HandleCell {
        HandleCell(handle as usize)
    }
}

impl Ia {
    /// What consumers know it by.
    pub fn handle(&self) -> Handle {
        self.handle.get().map_or(NULL, |handle| handle.0 as Handle)
    }

    /// Makes a handle for an object of this IA. Without room for one the engine's object ends too, because no call could free it.
    pub fn adopt<T: Child>(&self, id: ObjectId, object: T) -> Outcome<Handle> {
        let handle = handle::insert(id, self.provider, object).map_err(|object| {
            object.end();
            NO_ROOM
        })?;
        self.children.lock().insert(handle as usize, T::KIND);
        Ok(handle)
    }

    /// Ends a handle.
    pub fn disown<T: Object>(&self, handle: Handle) {
        self.children.lock().remove(&(handle as usize));
        handle::remove::<T>(handle);
    }

    /// Ends all handles: the IA is closed.
    pub fn disown_all(&self) {
        let children = std::mem::take(&mut *self.children.lock());
        for (child, kind) in children {
            let child = child as Handle;
            let _ = match kind {
                Kind::Cr => handle::remove::<Cr>(child),
                Kind::Ep => handle::remove::<Ep>(child),
                Kind::Evd => handle::remove::<Evd>(child),
                Kind::Ia => false,
                Kind::Lmr => handle::remove::<Lmr>(child),
                Kind::Psp => handle::remove::<Psp>(child),
                Kind::Pz => handle::remove::<Pz>(child),
                Kind::Rmr => handle::remove::<Rmr>(child),
                Kind::Rsp => handle::remove::<Rsp>(child),
                Kind::Cno => handle::remove::<Cno>(child),
                Kind::Srq => handle::remove::<Srq>(child),
                Kind::Csp => handle::remove::<Csp>(child),
            };
        }
    }
}

/// An object that belongs to an IA.
pub trait Child: Object {
    /// Ends the engine's object. A failure has no consequence that a caller could act on.
    fn end(self);
}

macro_rules! objects {
    ($($(#[$doc:meta])* $name:ident($kind:ident) { $($field:ident: $type:ty,)* } $(ends by $end:path)?;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone)]
            pub struct $name {
                pub ia: Arc<Ia>,
                $(pub $field: $type,)*
            }
            impl Object for $name {
                const KIND: Kind = Kind::$kind;
            }
            $(impl Child for $name {
                fn end(self) {
                    let _ = $end(&self.engine);
                }
            })?
        )*
    };
}

objects! {
    /// An IA: the cell's own reference.
    IaRef(Ia) {};
    /// A protection zone.
    Pz(Pz) { engine: engine::Pz, } ends by engine::Pz::free;
    /// A memory region.
    Lmr(Lmr) { engine: engine::Lmr, made: Made, } ends by engine::Lmr::free;
    /// An event dispatcher.
    Evd(Evd) { engine: engine::Evd, counters: Arc<Base>, } ends by engine::Evd::free;
    /// An endpoint.
    Ep(Ep) { engine: engine::Ep, kept: Arc<EpKept>, } ends by engine::Ep::free;
    /// A public service point.
    Psp(Psp) { engine: engine::Psp, } ends by engine::Psp::free;
    /// A reserved service point.
    Rsp(Rsp) { engine: engine::Rsp, } ends by engine::Rsp::free;
    /// A common service point.
    Csp(Csp) { engine: engine::Csp, kept: Arc<CspKept>, } ends by engine::Csp::free;
    /// A memory window.
    Rmr(Rmr) { engine: engine::Rmr, } ends by engine::Rmr::free;
    /// A notification object.
    Cno(Cno) { engine: engine::Cno, agent: Arc<Mutex<AgentCell>>, } ends by engine::Cno::free;
    /// A shared receive queue.
    Srq(Srq) { engine: engine::Srq, } ends by engine::Srq::free;
    /// A connection request.
    Cr(Cr) { engine: engine::Cr, kept: Arc<CrKept>, } ends by reject;
}

fn reject(cr: &engine::Cr) -> dat_types::Result<()> {
    cr.reject(&[])
}

/// How a region was asked for; a query tells it.
#[derive(Clone, Copy)]
pub struct Made {
    pub mem_type: u32,
    pub privileges: dat_types::Privileges,
    pub region: [usize; 2],
}

/// What an endpoint keeps for pointers that were given out.
pub struct EpKept {
    /// Private data of the last connection event.
    pub private_data: Mutex<Box<[u8]>>,
    /// The peer's address as last queried.
    pub remote: Mutex<Option<(std::net::SocketAddr, Stored)>>,
    pub transport_attr: Mutex<NamedList>,
    pub provider_attr: Mutex<NamedList>,
    /// The sizes in the consumer's attributes, which are hints: a query shows them again.
    pub size_hints: SizeHints,
    pub counters: Base,
}

impl Default for EpKept {
    fn default() -> EpKept {
        EpKept {
            private_data: Mutex::default(),
            remote: Mutex::default(),
            transport_attr: Mutex::new(NamedList::new(&[])),
            provider_attr: Mutex::new(NamedList::new(&[])),
            size_hints: SizeHints::default(),
            counters: Base::default(),
        }
    }
}

/// Sizes from a consumer's endpoint attributes; 0 where it gave none. The reference library enforces neither.
#[derive(Default)]
pub struct SizeHints {
    pub message: AtomicU32,
    pub rdma: AtomicU32,
}

impl SizeHints {
    pub fn new(message: u32, rdma: u32) -> SizeHints {
        SizeHints { message: AtomicU32::new(message), rdma: AtomicU32::new(rdma) }
    }
}

/// An agent as a query tells it.
pub struct AgentCell(pub Agent);

// SAFETY: a function and the consumer's own word; nobody here follows the word, and the function is the consumer's to
// call from any thread, as the public API says of agents.
unsafe impl Send for AgentCell {}

/// What a common service point keeps for pointers that were given out.
pub struct CspKept {
    pub comm: Comm,
    pub address: Stored,
}

/// What a connection request keeps for pointers that were given out.
pub struct CrKept {
    pub address: Stored,
    pub port: u64,
    pub private_data: Box<[u8]>,
    /// The endpoint the request holds; null without one.
    pub ep: HandleCell,
}

/// The object behind a handle, to keep while the call lasts. `wrong` is the subtype that says which handle it was.
pub fn find<T: Object + Clone>(handle: Handle, wrong: Subtype) -> Outcome<T> {
    let guard = handle::epoch::enter();
    handle::get::<T>(&guard, handle).cloned().ok_or(bad_handle(wrong))
}

/// The same for a handle that may be null.
pub fn find_or_null<T: Object + Clone>(handle: Handle, wrong: Subtype) -> Outcome<Option<T>> {
    if handle.is_null() { Ok(None) } else { find(handle, wrong).map(Some) }
}

/// The IA behind its number or address.
pub fn find_ia(handle: Handle) -> Outcome<Arc<Ia>> {
    find::<IaRef>(handle::ia_address(handle), Subtype::HandleIa).map(|found| found.ia)
}
