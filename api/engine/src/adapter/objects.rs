//! Everything alive on an IA.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

use dat_types::ObjectId;

use crate::base::deferred::Endpoint;

#[derive(Default)]
pub(crate) struct Objects {
    pub(crate) eps: HashMap<ObjectId, Arc<dyn Endpoint>>,
    /// Connection attempts and connections under way: what the provider's events name.
    pub(crate) attempts: HashMap<u64, Arc<dyn Endpoint>>,
    /// Handles of all other kinds, a map for each type.
    tables: HashMap<TypeId, Box<dyn Any + Send>>,
}

impl Objects {
    /// The objects of type `T`.
    pub(crate) fn of<T: Send + 'static>(&mut self) -> &mut HashMap<ObjectId, T> {
        let table = self.tables.entry(TypeId::of::<T>());
        let table = table.or_insert_with(|| Box::<HashMap<ObjectId, T>>::default());
        table.downcast_mut().expect("tables are filed by the type of their values")
    }
}
