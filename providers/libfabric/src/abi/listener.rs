//! Listeners: a passive endpoint, a datagram endpoint at the port's address, or a socket of the discovery service.

use std::net::SocketAddr;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dat_kit::Qualifier;
use dat_plugin::{Failure, Listener, Status};
use libfabric_sys::inline::{fi_bind, fi_listen, fi_passive_ep};
use libfabric_sys::types::fid_pep;

use crate::address::Raw;
use crate::connected::deferred_close::ListenSocket;
use crate::device::DeviceInner;
use crate::endpoint::name::{address_of, port_of};
use crate::endpoint::port::Port;
use crate::fabric::fd_scan::set_cloexec;

/// A listener.
pub struct FabricListener {
    device: Arc<DeviceInner>,
    /// The qualifier.
    port: u64,
    kind: Kind,
    closed: AtomicBool,
}

enum Kind {
    Passive(*mut fid_pep, Option<ListenSocket>),
    Datagrams(Option<Arc<Port>>),
}

// SAFETY: any thread may use the passive endpoint (FI_THREAD_SAFE); `closed` makes sure that it is closed once.
unsafe impl Send for FabricListener {}
// SAFETY: shared references only read the pointer.
unsafe impl Sync for FabricListener {}

impl FabricListener {
    pub(crate) fn open(device: &Arc<DeviceInner>, port: u64, user: u64) -> Result<FabricListener, Failure> {
        let core = &device.core;
        let Some(ip) = core.fabric.ip() else {
            let message = format!(
                "{}: fabric {:?} has no IP address here, so peers cannot find its ports",
                core.params.ia_name, core.params.fabric
            );
            return Err(Failure::new(Status::NOT_SUPPORTED, message));
        };
        let qualifier = Qualifier::new(port);
        let what = || format!("{}: listen on {qualifier}", core.params.ia_name);
        let closed = AtomicBool::new(false);
        if let Some(datagrams) = &device.datagrams {
            let (opened, port) = datagrams.listen(ip, qualifier, user).map_err(|mut failure| {
                failure.message = format!("{}: {}", what(), failure.message);
                failure
            })?;
            return Ok(FabricListener {
                device: device.clone(),
                port,
                kind: Kind::Datagrams(opened),
                closed,
            });
        }
        let info = core.fabric.info.at(&Raw::from(SocketAddr::new(ip, qualifier.port)))?;
        let fabric = &core.fabric;
        let mut pep = ptr::null_mut();
        // SAFETY: the core keeps fabric and event queue open. An endpoint that is not finished is closed before any use.
        let at = unsafe {
            fabric.check(&what(), fi_passive_ep(fabric.fabric, info.head, &mut pep, ptr::null_mut()))?;
            let bound = match fi_bind(pep.cast(), fabric.eq.cast(), 0) {
                0 => {
                    // Entered before the first request can arrive.
                    let port = u16::try_from(port_of(pep.cast())).map_or(port, |port| qualifier.at(port));
                    device.connector.add_listener(pep, user, port);
                    fi_listen(pep)
                }
                error => error,
            };
            if let Err(failure) = fabric.check(&what(), bound) {
                device.connector.close_listener(pep, None);
                return Err(failure);
            }
            address_of(pep.cast())
        };
        let socket = at.and_then(|at| ListenSocket::among(&set_cloexec(at), at));
        let port = at.map_or(0, |at| qualifier.at(at.port()));
        Ok(FabricListener { device: device.clone(), port, kind: Kind::Passive(pep, socket), closed })
    }
}

impl Listener for FabricListener {
    fn port(&self) -> u64 {
        self.port
    }

    fn close(&self) {
        if self.closed.swap(true, Ordering::AcqRel) || !self.device.core.fork_guard.here() {
            return;
        }
        match &self.kind {
            Kind::Passive(pep, socket) => self.device.connector.close_listener(*pep, *socket),
            Kind::Datagrams(port) => {
                if let Some(datagrams) = &self.device.datagrams {
                    datagrams.close_port(port.as_ref(), self.port);
                }
            }
        }
    }
}
