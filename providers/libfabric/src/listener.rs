//! Where peers knock: a passive endpoint, or with datagrams an endpoint at the port's address, or a socket where they ask.

use std::net::SocketAddr;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dat_plugin::{Failure, Listener, Status};
use libfabric_sys::inline::{fi_bind, fi_listen, fi_passive_ep};
use libfabric_sys::types::fid_pep;

use crate::address::Raw;
use crate::connect::{address_of, port_of};
use crate::device::Dev;
use crate::inherited::keep_from_children;
use crate::port::Port;
use crate::retired::Socket;

/// A port being listened on.
pub struct FabricListener {
    dev: Arc<Dev>,
    port: u64,
    how: How,
    closed: AtomicBool,
}

enum How {
    Passive(*mut fid_pep, Option<Socket>),
    Datagrams(Option<Arc<Port>>),
}

// SAFETY: a pointer to a thread-safe object, closed once.
unsafe impl Send for FabricListener {}
// SAFETY: as above.
unsafe impl Sync for FabricListener {}

impl FabricListener {
    pub(crate) fn open(dev: &Arc<Dev>, port: u64, user: u64) -> Result<FabricListener, Failure> {
        let Some(ip) = dev.fabric.ip() else {
            let message = format!(
                "{}: fabric {:?} has no internet address here, so nobody could find a port of it",
                dev.params.ia_name, dev.params.fabric
            );
            return Err(Failure::new(Status::NOT_SUPPORTED, message));
        };
        let Ok(wanted) = u16::try_from(port) else {
            let message = format!("{}: port {port}: at most 65535 is possible", dev.params.ia_name);
            return Err(Failure::new(Status::INVALID, message));
        };
        let at = SocketAddr::new(ip, wanted);
        let closed = AtomicBool::new(false);
        if let Some(datagrams) = &dev.datagrams {
            let (opened, port) = datagrams.listen(dev, at, user)?;
            return Ok(FabricListener { dev: dev.clone(), port, how: How::Datagrams(opened), closed });
        }
        let info = dev.fabric.info.at(&Raw::from(at))?;
        let fabric = &dev.fabric;
        let mut pep = ptr::null_mut();
        let what = || format!("{}: listen on port {port}", dev.params.ia_name);
        // SAFETY: open objects; an endpoint that was not finished is closed before anything uses it.
        let at = unsafe {
            fabric.check(&what(), fi_passive_ep(fabric.fabric, info.head, &mut pep, ptr::null_mut()))?;
            let bound = match fi_bind(pep.cast(), fabric.eq.cast(), 0) {
                0 => {
                    // Known before the first request arrives.
                    let port = port_of(pep.cast());
                    dev.connector.add_listener(pep, user, port);
                    fi_listen(pep)
                }
                error => error,
            };
            if let Err(failure) = fabric.check(&what(), bound) {
                dev.connector.close_listener(dev, pep, None);
                return Err(failure);
            }
            address_of(pep.cast())
        };
        let socket = at.and_then(|at| Socket::among(&keep_from_children(at), at));
        let port = at.map_or(0, |at| at.port().into());
        Ok(FabricListener { dev: dev.clone(), port, how: How::Passive(pep, socket), closed })
    }
}

impl Listener for FabricListener {
    fn port(&self) -> u64 {
        self.port
    }

    fn close(&self) {
        if self.closed.swap(true, Ordering::AcqRel) || !self.dev.owner.here() {
            return;
        }
        match &self.how {
            How::Passive(pep, socket) => self.dev.connector.close_listener(&self.dev, *pep, *socket),
            How::Datagrams(port) => {
                if let Some(datagrams) = &self.dev.datagrams {
                    datagrams.close_port(&self.dev, port.as_ref(), self.port);
                }
            }
        }
    }
}
