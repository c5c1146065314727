//! The children of a route, and what they have in common.

use dat_plugin::host::{Below, Device as HostDevice};
use dat_plugin::{Caps, Device as _, DeviceAttr, Failure, Status};

use crate::header;

/// A device that a route may use.
#[derive(Debug)]
pub struct Via {
    /// The name of the child, for people.
    pub name: String,
    /// Whether it reaches peers of this host only.
    pub near: bool,
    /// The open device.
    pub device: HostDevice,
}

/// One child. Its place in the list is its number.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) name: String,
    pub(crate) near: bool,
    pub(crate) attr: DeviceAttr,
    pub(crate) below: Below,
    /// The same device, for memory that the route itself owns.
    pub(crate) device: HostDevice,
}

impl Child {
    #[allow(unsafe_code, reason = "the only place of the crate that makes a `Below`")]
    pub(crate) fn new(via: Via) -> Child {
        let Via { name, near, device } = via;
        // SAFETY: the route registers and posts what the host called it with: the same ranges, with this child's keys
        // for them. `far.rs` posts one more segment, in a registration of the route's own.
        let below = unsafe { Below::new(device.clone()) };
        Child { name, near, attr: below.attr(), below, device }
    }

    /// What a status message calls it.
    pub(crate) fn label(&self) -> String {
        let place = if self.near { "near" } else { "far" };
        format!("{} ({place})", self.name)
    }
}

/// The most segments of a post of a route.
pub(crate) const MAX_SEGMENTS: u32 = 32;

/// Features that a route passes on, if every child has them.
const COMMON: Caps = Caps(
    Caps::RECEIVER_WAITS.0
        | Caps::WRITE_ORDERED.0
        | Caps::ATOMICS.0
        | Caps::IMMEDIATE.0
        | Caps::CHANNEL_FLAGS.0,
);

/// Features that one child is enough for.
const ANY: Caps = Caps(Caps::INTER_PROCESS.0 | Caps::INTER_HOST.0);

/// The child whose address is the route's: the first that reaches other hosts, or else the first.
pub(crate) fn address_of(children: &[Child]) -> usize {
    children.iter().position(|child| child.attr.caps.contains(Caps::INTER_HOST)).unwrap_or(0)
}

/// The attributes that hold for every child.
pub(crate) fn attributes(name: &str, children: &[Child]) -> Result<DeviceAttr, Failure> {
    let Some(first) = children.first() else {
        return Err(Failure::new(Status::NO_DEVICE, format!("{name}: no child of the route is usable here")));
    };
    let address = address_of(children);
    let mut attr = DeviceAttr { address: children[address].attr.address, ..first.attr };
    let (mut common, mut any) = (COMMON, Caps::NONE);
    for (nth, child) in children.iter().enumerate() {
        let its = &child.attr;
        common = Caps(common.0 & its.caps.0);
        any = any | Caps(ANY.0 & its.caps.0);
        for (ours, its) in [
            (&mut attr.max_channels, its.max_channels),
            (&mut attr.max_queues, its.max_queues),
            (&mut attr.max_queue_depth, its.max_queue_depth),
            (&mut attr.max_regions, its.max_regions),
            (&mut attr.max_requests_per_channel, its.max_requests_per_channel),
            (&mut attr.max_recvs_per_channel, its.max_recvs_per_channel),
            (&mut attr.max_segments, its.max_segments),
            (&mut attr.max_read_segments, its.max_read_segments),
            (&mut attr.max_write_segments, its.max_write_segments),
            (&mut attr.max_reads_per_channel, its.max_reads_per_channel),
        ] {
            *ours = (*ours).min(its);
        }
        for (ours, its) in [
            (&mut attr.max_message, its.max_message),
            (&mut attr.max_rdma, its.max_rdma),
            (&mut attr.max_region, its.max_region),
        ] {
            *ours = (*ours).min(its);
        }
        attr.qos &= its.qos;
        attr.alignment = attr.alignment.max(its.alignment);
        let Some(room) = its.max_private_data.checked_sub(header::len(nth == address) as u32) else {
            let message = format!(
                "{name}: {} carries {} bytes of private data, too few for a route",
                child.name, its.max_private_data
            );
            return Err(Failure::new(Status::NOT_SUPPORTED, message));
        };
        attr.max_private_data = if nth == 0 { room } else { attr.max_private_data.min(room) };
    }
    for segments in [&mut attr.max_segments, &mut attr.max_read_segments, &mut attr.max_write_segments] {
        *segments = (*segments).min(MAX_SEGMENTS);
    }
    // One more request than the application may have: the read of a translation.
    attr.max_requests_per_channel = attr.max_requests_per_channel.saturating_sub(1).max(1);
    attr.caps = common | any | Caps(first.attr.caps.0 & Caps::ALLOC.0);
    (attr.max_srqs, attr.max_srq_depth, attr.max_srq_segments, attr.max_windows) = (0, 0, 0, 0);
    Ok(attr)
}
