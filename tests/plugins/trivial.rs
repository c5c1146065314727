// A provider that opens, holds objects and moves nothing: the sound part of the plugins that are broken on purpose.
// Included with `include!`, because these plugins depend on dat-plugin and nothing else. The including file defines
// `fn at_open()` and `fn at_post()`, where its fault is.

use std::sync::Arc;

use dat_plugin::{
    Access, Caps, Channel, ChannelAttr, Completion, Config, ConnectParam, Device, DeviceAttr, Event, Failure,
    Keys, Listener, Probe, Provider, ProviderInfo, Queue, RecvRequest, RejectReason, Request, SockAddr,
    Status,
};

/// The provider.
pub struct Trivial;

/// Its device.
pub struct TrivialDevice;

/// Its channel, queue and listener.
pub struct TrivialObject;

impl Provider for Trivial {
    type Device = TrivialDevice;

    const INFO: ProviderInfo = ProviderInfo {
        name: NAME,
        version: env!("CARGO_PKG_VERSION"),
        description: "for tests of the loader",
    };

    fn open(config: &Config) -> Result<Arc<TrivialDevice>, Failure> {
        config.check_known(&["fail"])?;
        at_open();
        match config.params.get("fail").map(String::as_str) {
            None => Ok(Arc::new(TrivialDevice)),
            Some("no_device") => Err(Failure::new(Status::NO_DEVICE, "no such device on this machine")),
            Some("no_resource") => Err(Failure::new(Status::NO_RESOURCE, "no room")),
            Some(other) => Err(Failure::new(Status::BAD_CONFIG, format!("fail = {other:?} is unknown"))),
        }
    }

    fn probe(config: &Config) -> Vec<Probe> {
        let usable = !config.params.contains_key("fail");
        vec![Probe { candidate: "trivial".into(), usable, reason: "as configured".into() }]
    }
}

impl Device for TrivialDevice {
    type Channel = TrivialObject;
    type Queue = TrivialObject;
    type Listener = TrivialObject;
    type Srq = dat_plugin::NoSrq;

    fn attr(&self) -> DeviceAttr {
        DeviceAttr {
            caps: Caps::NONE,
            address: SockAddr::from(std::net::IpAddr::from([127, 0, 0, 1])),
            max_channels: 1,
            max_queues: 1,
            max_queue_depth: 1,
            max_regions: 1,
            max_requests_per_channel: 1,
            max_recvs_per_channel: 1,
            max_segments: 1,
            max_read_segments: 1,
            max_write_segments: 1,
            max_reads_per_channel: 1,
            max_message: 64,
            max_rdma: 64,
            max_region: 4096,
            max_private_data: 64,
            qos: 1,
            alignment: 8,
            ..DeviceAttr::default()
        }
    }

    fn open_queue(&self, _depth: u32) -> Result<Arc<TrivialObject>, Failure> {
        Ok(Arc::new(TrivialObject))
    }

    fn open_channel(
        &self,
        _attr: &ChannelAttr,
        _send: Option<&Arc<TrivialObject>>,
        _recv: Option<&Arc<TrivialObject>>,
    ) -> Result<Arc<TrivialObject>, Failure> {
        Ok(Arc::new(TrivialObject))
    }

    fn listen(&self, _port: u64, _user: u64) -> Result<Arc<TrivialObject>, Failure> {
        Ok(Arc::new(TrivialObject))
    }

    fn register(&self, _addr: u64, _len: u64, _access: Access, _domain: u32) -> Result<Keys, Failure> {
        Ok(Keys::default())
    }

    fn deregister(&self, _keys: Keys) -> Status {
        Status::OK
    }

    fn reject(&self, _request: u64, _reason: RejectReason, _data: &[u8]) -> Status {
        Status::GONE
    }

    fn poll_events(&self, _out: &mut [Event]) -> usize {
        0
    }

    fn event_fd(&self) -> std::os::fd::RawFd {
        -1
    }

    fn describe(&self) -> String {
        format!("{NAME}: moves nothing")
    }

    fn close(&self) {}
}

impl Channel for TrivialObject {
    fn connect(&self, _param: &ConnectParam<'_>) -> Result<(), Failure> {
        Err(Failure::new(Status::UNREACHABLE, "connects to nobody"))
    }

    fn accept(&self, _request: u64, _data: &[u8]) -> Result<(), Failure> {
        Err(Failure::new(Status::GONE, "connects to nobody"))
    }

    fn disconnect(&self) -> Status {
        Status::OK
    }

    fn post(&self, _request: &Request) -> Status {
        at_post();
        Status::NOT_CONNECTED
    }

    fn post_recv(&self, _request: &RecvRequest) -> Status {
        at_post();
        Status::NOT_CONNECTED
    }

    fn local_port(&self) -> u64 {
        0
    }

    fn describe(&self) -> String {
        format!("{NAME}: leads nowhere")
    }

    fn close(&self) {}
}

impl Queue for TrivialObject {
    fn poll(&self, _out: &mut [Completion]) -> usize {
        0
    }

    fn arm(&self) -> bool {
        true
    }

    fn disarm(&self) {}

    fn fd(&self) -> std::os::fd::RawFd {
        -1
    }

    fn close(&self) {}
}

impl Listener for TrivialObject {
    fn port(&self) -> u64 {
        0
    }

    fn close(&self) {}
}

dat_plugin::export_provider!(Trivial);
