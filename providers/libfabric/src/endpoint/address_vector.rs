//! The peers of a datagram endpoint: their entries in libfabric's address vector.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use dat_plugin::{Failure, Status};
use libfabric_sys::types::fi_addr_t;
use parking_lot::Mutex;

use crate::address::Raw;
use crate::endpoint::port::Port;
use crate::fabric::Fabric;

/// The endpoints of this process on fabrics that map each other's memory, by address. libfabric's shm uses the mapping of
/// another endpoint of the process as long as it knows the address, even if that endpoint is closed. So an entry of the
/// address vector keeps such an endpoint open.
static LOCAL_ENDPOINTS: Mutex<BTreeMap<Vec<u8>, Weak<Port>>> = Mutex::new(BTreeMap::new());

/// Enters an endpoint of this process.
pub fn register_local(name: &Raw, port: &Arc<Port>) {
    let mut all = LOCAL_ENDPOINTS.lock();
    all.retain(|_, port| port.strong_count() > 0);
    all.insert(name.bytes().to_vec(), Arc::downgrade(port));
}

/// A peer's entry in libfabric's address vector. An entry that nothing else refers to may be removed to make room.
pub struct PeerAddress {
    pub number: fi_addr_t,
    /// Where the peer's process listens by TCP.
    tcp: Mutex<Option<SocketAddr>>,
    last_used: AtomicU64,
    /// An endpoint of this process at that address, kept open as long as libfabric knows the address.
    _local: Option<Arc<Port>>,
}

impl PeerAddress {
    pub fn tcp(&self) -> Option<SocketAddr> {
        *self.tcp.lock()
    }
}

/// The peers a device knows.
pub struct AddressVector {
    fabric: Arc<Fabric>,
    peers: Mutex<HashMap<Vec<u8>, Arc<PeerAddress>>>,
    /// Most entries. To make room, the entry that was looked up longest ago and is not in use is removed.
    most: usize,
    clock: AtomicU64,
}

impl AddressVector {
    pub fn new(fabric: &Arc<Fabric>, most: usize) -> AddressVector {
        AddressVector { fabric: fabric.clone(), peers: Mutex::default(), most, clock: AtomicU64::new(0) }
    }

    /// The entry of an address, made when it is new.
    pub fn get(&self, addr: &Raw, tcp: Option<SocketAddr>) -> Result<Arc<PeerAddress>, Failure> {
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        let mut peers = self.peers.lock();
        if let Some(known) = peers.get(addr.bytes()) {
            known.last_used.store(now, Ordering::Relaxed);
            if tcp.is_some() {
                *known.tcp.lock() = tcp;
            }
            return Ok(known.clone());
        }
        if peers.len() >= self.most {
            self.evict(&mut peers)?;
        }
        let local = match self.fabric.maps_peers() {
            true => LOCAL_ENDPOINTS.lock().get(addr.bytes()).and_then(Weak::upgrade),
            false => None,
        };
        let number = self.fabric.add_peer(addr)?;
        let peer = Arc::new(PeerAddress {
            number,
            tcp: Mutex::new(tcp),
            last_used: AtomicU64::new(now),
            _local: local,
        });
        peers.insert(addr.bytes().to_vec(), peer.clone());
        Ok(peer)
    }

    pub fn contains(&self, addr: &Raw) -> bool {
        self.peers.lock().contains_key(addr.bytes())
    }

    /// Removes the entry that was used longest ago, of those that no connection, request or frame needs.
    fn evict(&self, peers: &mut HashMap<Vec<u8>, Arc<PeerAddress>>) -> Result<(), Failure> {
        let unused = peers.iter().filter(|(_, peer)| Arc::strong_count(peer) == 1);
        let oldest = unused.min_by_key(|(_, peer)| peer.last_used.load(Ordering::Relaxed));
        let Some(address) = oldest.map(|(address, _)| address.clone()) else {
            let message = format!("{} peers are in use, the most a device can have", self.most);
            return Err(Failure::new(Status::NO_RESOURCE, message));
        };
        if let Some(peer) = peers.remove(&address) {
            self.fabric.remove_peer(peer.number);
        }
        Ok(())
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.peers.lock().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::device;

    #[test]
    fn a_full_table_gives_up_the_oldest_entry_that_is_not_in_use() {
        let Some(device) = device(&[("fabric", "tcp;ofi_rxm"), ("address", "127.0.0.1")]) else { return };
        let table = AddressVector::new(&device.inner().core.fabric, 3);
        let address = |port: u16| Raw::from(SocketAddr::from(([127, 0, 0, 1], port)));
        let first = table.get(&address(1), None).expect("room");
        drop(table.get(&address(2), None).expect("room"));
        let third = table.get(&address(3), None).expect("room");
        // In use: 1 and 3. So 2 goes, then 4.
        for port in [4, 5, 6] {
            drop(table.get(&address(port), None).expect("an unused entry goes"));
            assert_eq!(table.len(), 3);
        }
        assert_eq!(table.get(&address(1), None).expect("known").number, first.number);
        let last = table.get(&address(7), None).expect("an unused entry goes");
        let failure = table.get(&address(8), None).err().expect("all are in use");
        assert_eq!(failure.status, Status::NO_RESOURCE);
        drop((first, third, last));
    }
}
