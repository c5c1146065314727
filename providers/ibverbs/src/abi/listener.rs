//! Listeners: ports that accept connection requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dat_kit::Qualifier;
use dat_plugin::{Failure, Listener};

use crate::control::events::DeviceInner;
use crate::control::sources::{Listening, Source};
use crate::status;
use crate::sys::cm::CmId;

/// A port being listened on.
pub struct IbListener {
    device: Arc<DeviceInner>,
    /// The qualifier.
    port: u64,
    token: u64,
    closed: AtomicBool,
}

impl IbListener {
    pub(crate) fn new(device: &Arc<DeviceInner>, port: u64, user: u64) -> Result<IbListener, Failure> {
        let adapter = &device.adapter;
        adapter.check_fork()?;
        let qualifier = Qualifier::new(port);
        let what =
            || format!("{}: listen on {qualifier} of {}", adapter.params.ia_name, adapter.address.ip());
        let token = adapter.new_token();
        let os = |error| status::failure(&what(), &error);
        let id = CmId::new(&adapter.cm, token).map_err(os)?;
        id.bind(SocketAddr::new(adapter.address.ip(), qualifier.port)).map_err(os)?;
        let port = qualifier.at(id.local_port());
        // Known before the first request can come.
        let mut sources = device.sources.lock();
        id.listen(adapter.params.backlog).map_err(os)?;
        sources
            .insert(token, Source::Listener(Listening { _id: id, port, quotient: qualifier.quotient, user }));
        drop(sources);
        Ok(IbListener { device: device.clone(), port, token, closed: AtomicBool::new(false) })
    }
}

impl Listener for IbListener {
    fn port(&self) -> u64 {
        self.port
    }

    fn close(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) && !self.device.adapter.forked() {
            let gone = self.device.sources.lock().remove(&self.token);
            // Requests the kernel holds are refused with it.
            drop(gone);
        }
    }
}
