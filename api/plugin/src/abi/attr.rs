//! What devices, channels and shared receive queues can do, and what registering and allocating give.

use abi_stable::StableAbi;

use super::constants::{Caps, ChannelFlag};
use super::event::SockAddr;

/// What a device can do. Counts are objects, sizes bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, StableAbi)]
pub struct DeviceAttr {
    /// Optional features.
    pub caps: Caps,
    /// The device's own address; peers connect to it.
    pub address: SockAddr,
    /// Channels open at one time.
    pub max_channels: u32,
    /// Completion queues open at one time.
    pub max_queues: u32,
    /// Completions that one queue holds.
    pub max_queue_depth: u32,
    /// Registrations at one time.
    pub max_regions: u32,
    /// Requests outstanding on one channel.
    pub max_requests_per_channel: u32,
    /// Receives outstanding on one channel.
    pub max_recvs_per_channel: u32,
    /// Segments of a send or receive.
    pub max_segments: u32,
    /// Local segments of an RDMA read.
    pub max_read_segments: u32,
    /// Local segments of an RDMA write.
    pub max_write_segments: u32,
    /// Reads a channel may have under way, as initiator and as target.
    pub max_reads_per_channel: u32,
    /// Bytes of one message.
    pub max_message: u64,
    /// Bytes of one RDMA write or read.
    pub max_rdma: u64,
    /// Bytes of one registration.
    pub max_region: u64,
    /// At request, accept and reject; at most [`crate::MAX_PRIVATE_DATA`].
    pub max_private_data: u32,
    /// OR of the quality of service values offered, as DAT numbers them.
    pub qos: u32,
    /// Advice for buffers.
    pub alignment: u32,
    /// Shared receive queues open at one time; 0 without `Caps::SRQ`.
    pub max_srqs: u32,
    /// Receives in one shared queue.
    pub max_srq_depth: u32,
    /// Segments of a receive of a shared queue.
    pub max_srq_segments: u32,
    /// Memory windows open at one time; 0 without `Caps::WINDOWS`.
    pub max_windows: u32,
    /// Must be 0.
    pub reserved: u32,
}

/// What a channel is to be able to do.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, StableAbi)]
pub struct ChannelAttr {
    /// Comes back in the channel's events.
    pub user: u64,
    /// Comes back in the completions of requests.
    pub send_user: u64,
    /// Comes back in the completions of receives.
    pub recv_user: u64,
    /// Remote access through this channel is limited to registrations of this protection domain.
    pub domain: u32,
    /// Requests outstanding.
    pub max_requests: u32,
    /// Receives outstanding.
    pub max_recvs: u32,
    /// Segments of a request.
    pub max_request_segments: u32,
    /// Segments of a receive.
    pub max_recv_segments: u32,
    /// RDMA reads that the channel issues at one time.
    pub max_reads_out: u32,
    /// RDMA reads of the peer at one time.
    pub max_reads_in: u32,
    /// Bits of [`ChannelFlag`] for a device that has [`Caps::CHANNEL_FLAGS`], else 0. Bits it does not know mean nothing
    /// to it.
    pub reserved: u32,
    /// Bytes of one message.
    pub max_message: u64,
}

impl ChannelAttr {
    /// What else is known of the channel's use.
    pub fn flags(&self) -> ChannelFlag {
        ChannelFlag(self.reserved)
    }

    /// The same with these flags.
    #[must_use]
    pub fn with_flags(self, flags: ChannelFlag) -> ChannelAttr {
        ChannelAttr { reserved: flags.0, ..self }
    }

    /// What a device with `caps` is shown of it.
    pub(crate) fn shown_to(self, caps: Caps) -> ChannelAttr {
        match caps.contains(Caps::CHANNEL_FLAGS) {
            true => self,
            false => self.with_flags(ChannelFlag::NONE),
        }
    }
}

/// What a shared receive queue is to be able to do.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, StableAbi)]
pub struct SrqAttr {
    /// Comes back in [`crate::EventKind::SRQ_LIMIT`].
    pub user: u64,
    /// Most receives in it.
    pub depth: u32,
    /// Most segments of a receive.
    pub max_segments: u32,
    /// Protection domain of the receives' memory.
    pub domain: u32,
    /// Must be 0.
    pub reserved: u32,
}

/// Keys of a registration.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, StableAbi)]
pub struct Keys {
    /// For local segments.
    pub lkey: u32,
    /// For peers; 0 when no remote right was asked for.
    pub rkey: u32,
}

/// Memory a provider allocated.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, StableAbi)]
pub struct Block {
    /// Address of the first byte, aligned to a page.
    pub addr: u64,
    /// Length in bytes, at least what was asked for.
    pub len: u64,
    /// Names the block when it is freed.
    pub handle: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_shown_to_who_claims_to_look_at_them() {
        let attr = ChannelAttr { user: 7, ..ChannelAttr::default() }.with_flags(ChannelFlag::SINGLE_THREADED);
        let told = attr.shown_to(Caps::CHANNEL_FLAGS | Caps::SRQ);
        assert_eq!((told.user, told.flags()), (7, ChannelFlag::SINGLE_THREADED));
        // As every plugin built before there were flags is.
        let other = attr.shown_to(Caps(!Caps::CHANNEL_FLAGS.0));
        assert_eq!((other.user, other.reserved), (7, 0));
    }
}
