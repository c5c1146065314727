//! Where peers knock.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dat_plugin::{Failure, Listener, Status};

use crate::cm::CmId;
use crate::device::{Dev, Source};
use crate::status;

/// A port being listened on.
pub struct IbListener {
    dev: Arc<Dev>,
    port: u64,
    token: u64,
    closed: AtomicBool,
}

/// What the device knows of it.
pub(crate) struct Listening {
    /// Listens as long as it is here.
    pub(crate) _id: CmId,
    pub(crate) port: u64,
    pub(crate) user: u64,
}

impl IbListener {
    pub(crate) fn new(dev: &Arc<Dev>, port: u64, user: u64) -> Result<IbListener, Failure> {
        dev.check_fork()?;
        let what = || format!("{}: listen on port {port} of {}", dev.params.ia_name, dev.address.ip());
        let Ok(number) = u16::try_from(port) else {
            let message = format!("{}: RDMA CM has ports up to 65535", what());
            return Err(Failure::new(Status::INVALID, message));
        };
        let token = dev.new_token();
        let os = |error| status::failure(&what(), &error);
        let id = CmId::new(&dev.cm, token).map_err(os)?;
        id.bind(SocketAddr::new(dev.address.ip(), number)).map_err(os)?;
        let port = id.local_port().into();
        // Known before the first request can come.
        let mut sources = dev.sources();
        id.listen(dev.params.backlog).map_err(os)?;
        sources.insert(token, Source::Listener(Listening { _id: id, port, user }));
        drop(sources);
        Ok(IbListener { dev: dev.clone(), port, token, closed: AtomicBool::new(false) })
    }
}

impl Listener for IbListener {
    fn port(&self) -> u64 {
        self.port
    }

    fn close(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) && !self.dev.forked() {
            let gone = self.dev.sources().remove(&self.token);
            // Requests the kernel holds are refused with it.
            drop(gone);
        }
    }
}
