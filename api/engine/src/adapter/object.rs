//! What every object of an IA has: an id, the IA it belongs to, a life that ends once, and a value of the consumer's.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use dat_plugin::host::ForkGuard;
use dat_types::{Error, ObjectId, Result, Subtype};

use super::inner::IaInner;
use crate::base::context::Context;
use crate::base::error;

/// What kind of object it is, for the errors about it.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) handle: Subtype,
    pub(crate) name: &'static str,
}

/// An object's identity and life.
pub(crate) struct Life {
    pub(crate) id: ObjectId,
    /// Its IA.
    pub(crate) ia: ObjectId,
    pub(crate) owner: Weak<IaInner>,
    kind: Kind,
    alive: AtomicBool,
    fork: ForkGuard,
    context: Context,
}

impl Life {
    pub(crate) fn new(kind: Kind, ia: &Arc<IaInner>) -> Life {
        Life {
            id: crate::base::id::next_id(),
            ia: ia.id,
            owner: Arc::downgrade(ia),
            kind,
            alive: AtomicBool::new(true),
            fork: ForkGuard::new(),
            context: Context::default(),
        }
    }

    /// Fails in a forked child, and when the object was freed. Gives the consumer's value.
    pub(crate) fn check(&self, call: &'static str) -> Result<&Context> {
        self.check_fork(call)?;
        match self.is_alive() {
            true => Ok(&self.context),
            false => Err(self.gone(call)),
        }
    }

    /// Fails unless alive and of `ia`.
    pub(crate) fn check_of(&self, call: &'static str, ia: ObjectId) -> Result<()> {
        self.check(call)?;
        match self.ia == ia {
            true => Ok(()),
            false => Err(error::foreign(call, self.kind.handle, self.kind.name, self.id)),
        }
    }

    /// Fails in a forked child only.
    pub(crate) fn check_fork(&self, call: &'static str) -> Result<()> {
        if self.fork.forked() { Err(error::forked(call)) } else { Ok(()) }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    /// Ends it. Only the first caller gets `true`.
    pub(crate) fn end(&self) -> bool {
        self.alive.swap(false, Ordering::AcqRel)
    }

    /// Takes back an end that came to nothing.
    pub(crate) fn revive(&self) {
        self.alive.store(true, Ordering::Release);
    }

    /// Its IA, unless that is gone.
    pub(crate) fn ia(&self, call: &'static str) -> Result<Arc<IaInner>> {
        self.owner.upgrade().ok_or_else(|| self.gone(call))
    }

    /// The error of a call on an object that was freed.
    pub(crate) fn gone(&self, call: &'static str) -> Error {
        error::freed(call, self.kind.handle, self.kind.name, self.id)
    }
}

/// What every handle has whose object has a `life`: its id, the calls on any handle, and what it prints.
macro_rules! object {
    ($handle:ident) => {
        impl $handle {
            /// Its id; events about it carry it.
            pub fn id(&self) -> dat_types::ObjectId {
                self.0.life.id
            }

            fn checked(&self, call: &'static str) -> dat_types::Result<&crate::base::context::Context> {
                self.0.life.check(call)
            }
        }

        crate::base::context::object_calls!($handle, $handle);

        impl std::fmt::Debug for $handle {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($handle), "({})"), self.0.life.id)
            }
        }
    };
}
pub(crate) use object;
