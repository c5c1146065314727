//! The registrations of a route, with the keys that each child has for them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use dat_plugin::{Access, Device as _, Failure, Keys, Segment, Status};

use crate::child::{Child, MAX_SEGMENTS};
use crate::header::TableAt;
use crate::table::Table;

/// The rights of a peer.
const REMOTE: u32 = Access::REMOTE_READ.0 | Access::REMOTE_WRITE.0 | Access::REMOTE_ATOMIC.0;

/// All registrations, and the tables that peers read.
#[derive(Debug)]
pub(crate) struct Regions {
    children: Arc<[Child]>,
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By the local key of the first child.
    regions: HashMap<u32, Region>,
    /// By child and protection domain.
    tables: HashMap<(usize, u32), Table>,
}

#[derive(Debug)]
struct Region {
    addr: u64,
    len: u64,
    access: Access,
    domain: u32,
    keys: Keys,
    /// By child; nothing for the first.
    others: Vec<Option<Keys>>,
}

impl Regions {
    pub(crate) fn new(children: Arc<[Child]>) -> Regions {
        Regions { children, state: RwLock::default() }
    }

    /// Registers a range with the first child, and with every child that peers of this domain are connected by.
    pub(crate) fn register(&self, addr: u64, len: u64, access: Access, domain: u32) -> Result<Keys, Failure> {
        let mut state = self.write();
        let keys = self.children[0].below.register(addr, len, access, domain)?;
        let mut region = Region { addr, len, access, domain, keys, others: vec![None; self.children.len()] };
        for ((child, of), table) in &state.tables {
            if *of == domain
                && let Err(failure) = self.publish(&mut region, *child, table)
            {
                self.end(&region, &state.tables);
                return Err(failure);
            }
        }
        state.regions.insert(keys.lkey, region);
        Ok(keys)
    }

    /// Ends a registration with every child. The first failure counts: the memory is in use then.
    pub(crate) fn deregister(&self, keys: Keys) -> Status {
        let mut state = self.write();
        match state.regions.remove(&keys.lkey) {
            Some(region) => self.end(&region, &state.tables),
            None => Status::INVALID,
        }
    }

    /// The table of a child and a domain. It is made at the first call: regions with remote rights are registered with
    /// the child from now on.
    pub(crate) fn table(&self, child: usize, domain: u32) -> Result<TableAt, Failure> {
        let mut state = self.write();
        let State { regions, tables } = &mut *state;
        let vacant = match tables.entry((child, domain)) {
            Entry::Occupied(table) => return Ok(table.get().at()),
            Entry::Vacant(vacant) => vacant,
        };
        let table = Table::new(&self.children[child].device, domain)?;
        for region in regions.values_mut().filter(|region| region.domain == domain) {
            // What was registered so far stays so: it ends with its region.
            self.publish(region, child, &table)?;
        }
        Ok(vacant.insert(table).at())
    }

    /// Calls `f` with the segments, which get the keys that a child has for them. A region is registered with the child at
    /// its first use. Allocates nothing.
    #[allow(unsafe_code, reason = "the same ranges with the keys that this child has for them")]
    pub(crate) fn with_local<T>(
        &self,
        child: usize,
        segments: &[Segment],
        f: impl FnOnce(&[Segment]) -> T,
    ) -> Result<T, Status> {
        let (Some(first), true) = (segments.first(), child != 0) else { return Ok(f(segments)) };
        let mut own = [*first; MAX_SEGMENTS as usize];
        let own = own.get_mut(..segments.len()).ok_or(Status::INVALID)?;
        for (own, segment) in own.iter_mut().zip(segments) {
            let lkey = self.local_key(child, segment.lkey())?;
            // SAFETY: the host made the segment for a region that is registered while posts name it. `lkey` is this
            // child's key for the same region, which ends with it.
            *own = unsafe { Segment::from_parts(segment.addr(), segment.len(), lkey) };
        }
        Ok(f(own))
    }

    fn local_key(&self, child: usize, lkey: u32) -> Result<u32, Status> {
        if let Some(region) = self.read().regions.get(&lkey)
            && let Some(keys) = region.others[child]
        {
            return Ok(keys.lkey);
        }
        let mut state = self.write();
        let region = state.regions.get_mut(&lkey).ok_or(Status::INVALID)?;
        self.with_child(region, child).map(|keys| keys.lkey).map_err(|failure| {
            tracing::error!(child = %self.children[child].name, %failure, "a region could not be registered");
            failure.status
        })
    }

    fn publish(&self, region: &mut Region, child: usize, table: &Table) -> Result<(), Failure> {
        if region.access.0 & REMOTE == 0 {
            return Ok(());
        }
        let theirs = self.with_child(region, child)?;
        table.publish(region.keys.rkey, theirs.rkey)
    }

    fn with_child(&self, region: &mut Region, child: usize) -> Result<Keys, Failure> {
        if let Some(keys) = region.others[child] {
            return Ok(keys);
        }
        let Region { addr, len, access, domain, .. } = *region;
        let keys = self.children[child].below.register(addr, len, access, domain)?;
        region.others[child] = Some(keys);
        Ok(keys)
    }

    fn end(&self, region: &Region, tables: &HashMap<(usize, u32), Table>) -> Status {
        let mut worst = Status::OK;
        for (child, keys) in region.others.iter().enumerate() {
            let Some(keys) = keys else { continue };
            if let Some(table) = tables.get(&(child, region.domain)) {
                table.withdraw(region.keys.rkey);
            }
            let status = self.children[child].below.deregister(*keys);
            worst = if worst.0 < 0 { worst } else { status };
        }
        let status = self.children[0].below.deregister(region.keys);
        if worst.0 < 0 { worst } else { status }
    }

    // A panic of a child stops at its boundary, so the state is sound at all times.

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}
