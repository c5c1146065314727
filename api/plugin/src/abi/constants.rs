//! Numbers with names: statuses, opcodes, flags, rights, capabilities, kinds of events.

use abi_stable::StableAbi;

macro_rules! constants {
    ($(#[$doc:meta])* $name:ident($int:ty) { $($(#[$cdoc:meta])* $constant:ident = $value:expr;)* }) => {
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default, StableAbi)]
        pub struct $name(pub $int);
        impl $name {
            $($(#[$cdoc])* pub const $constant: $name = $name($value);)*

            /// All of them by name, in the order they are declared.
            pub const ALL: &'static [(&'static str, $name)] =
                &[$((stringify!($constant), $name::$constant),)*];

            /// The constant's name, or `None` for a value this version does not know.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $(v if v == $value => Some(stringify!($constant)),)*
                    _ => None,
                }
            }
        }
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, concat!(stringify!($name), "({:#x})"), self.0),
                }
            }
        }
    };
}

macro_rules! bits {
    ($name:ident($int:ty)) => {
        impl $name {
            /// No bit.
            pub const NONE: $name = $name(0);

            /// Whether all bits of `other` are set.
            #[inline]
            pub const fn contains(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }
        }
        impl std::ops::BitOr for $name {
            type Output = $name;
            #[inline]
            fn bitor(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }
        }
    };
}

constants! {
    /// Outcome of a call into a provider. Negative values are failures.
    Status(i32) {
        /// Done.
        OK = 0;
        /// Begun; an event will tell.
        PENDING = 1;
        /// A queue, table or limit is full. Nothing changed; a later try may work.
        NO_RESOURCE = -1;
        /// An argument the provider cannot make sense of.
        INVALID = -2;
        /// The provider does not have this operation.
        NOT_SUPPORTED = -3;
        /// The channel is not, or no longer, connected.
        NOT_CONNECTED = -4;
        /// The port already has a listener.
        IN_USE = -5;
        /// The peer cannot be reached.
        UNREACHABLE = -6;
        /// The address is of a kind this provider cannot use.
        BAD_ADDRESS = -7;
        /// The operating system forbids it.
        PERMISSION = -8;
        /// There is no such device on this machine.
        NO_DEVICE = -9;
        /// The provider panicked; the panic stopped at the boundary.
        PANICKED = -10;
        /// An operating system call failed.
        IO = -11;
        /// A parameter of the configuration is unknown or out of range.
        BAD_CONFIG = -12;
        /// The request is gone: its peer gave up.
        GONE = -13;
        /// Called in a child made by fork from the process that opened the device.
        FORKED = -14;
        /// Made by the host when a provider's answer makes no sense; never return it.
        FAULTY = -15;
    }
}

constants! {
    /// What a request does.
    Opcode(u16) {
        /// Message into the peer's next posted receive.
        SEND = 0;
        /// Local memory to remote memory.
        WRITE = 1;
        /// Remote memory to local memory.
        READ = 2;
        /// [`Opcode::WRITE`], then the peer's next receive completes with [`crate::Request::imm`]. With
        /// [`Caps::IMMEDIATE`].
        WRITE_IMM = 3;
        /// [`Opcode::SEND`] whose receive completes with [`crate::Request::imm`]. With [`Caps::IMMEDIATE`].
        SEND_IMM = 4;
        /// [`Opcode::SEND`] that ends the peer's window [`crate::Request::rkey`] before its receive completes. With
        /// [`Caps::SEND_INVALIDATE`].
        SEND_INVALIDATE = 5;
        /// [`crate::AtomicRequest`]: adds to a remote word, the old value goes to local memory. With [`Caps::ATOMICS`].
        FETCH_ADD = 6;
        /// [`crate::AtomicRequest`]: replaces a remote word that is as expected; the old value goes to local memory.
        CMP_SWAP = 7;
        /// [`crate::BindRequest`]; for a provider's own books, no [`crate::Request`] has it.
        BIND = 8;
    }
}

constants! {
    /// Flags of a request.
    PostFlag(u16) {
        /// The peer's completion is marked [`CompletionFlag::SOLICITED`].
        SOLICITED = 1;
        /// Start only when all earlier reads of the channel completed.
        FENCE = 2;
        /// On a receive: complete with [`CompletionStatus::LOCAL_ACCESS`] when a message would use it.
        POISON = 4;
        /// A success needs no completion of its own (the provider may give one); a failure still has one. A later
        /// completion of the channel's requests means that this one succeeded. A provider that gives no completion has
        /// [`crate::Channel::settle`]. At most half of [`crate::ChannelAttr::max_requests`] in a row are unsignalled.
        UNSIGNALLED = 8;
    }
}
bits!(PostFlag(u16));

constants! {
    /// How a request or receive ended.
    CompletionStatus(u32) {
        /// Done.
        SUCCESS = 0;
        /// The message was longer than the receive.
        LOCAL_LENGTH = 1;
        /// A local segment could not be accessed.
        LOCAL_ACCESS = 2;
        /// Key, right, range or zone at the peer.
        REMOTE_ACCESS = 3;
        /// The peer failed the request.
        REMOTE_ERROR = 4;
        /// The link or the peer is gone.
        TRANSPORT = 5;
        /// The peer had no receive posted for longer than the provider's bound.
        NOT_READY = 6;
        /// The peer's answer made no sense.
        BAD_RESPONSE = 7;
        /// The message arrived incomplete.
        PARTIAL = 8;
        /// A memory window could not be bound or ended.
        WINDOW = 9;
        /// The channel itself is in no order for the operation.
        LOCAL_CHANNEL = 10;
    }
}

constants! {
    /// Marks of a completion.
    CompletionFlag(u32) {
        /// The sender asked for a solicited completion.
        SOLICITED = 1;
        /// Receive: [`crate::Completion::imm`] is the sender's immediate value.
        IMMEDIATE = 2;
        /// Receive: the message ended the window whose key is [`crate::Completion::imm`].
        INVALIDATED = 4;
        /// Receive: a write with an immediate value used it; `length` is what was written, the buffer is untouched.
        WRITTEN = 8;
    }
}
bits!(CompletionFlag(u32));

constants! {
    /// Rights on registered memory.
    Access(u32) {
        /// Source of sends and writes.
        LOCAL_READ = 0x01;
        /// Source of a peer's reads.
        REMOTE_READ = 0x02;
        /// Sink of receives and reads.
        LOCAL_WRITE = 0x10;
        /// Sink of a peer's writes.
        REMOTE_WRITE = 0x20;
        /// Target of a peer's atomic operations.
        REMOTE_ATOMIC = 0x40;
        /// Windows may be bound to it.
        WINDOW = 0x80;
    }
}
bits!(Access(u32));

constants! {
    /// What a device can do beyond messages, one-sided writes and reads. The engine refuses the rest.
    Caps(u64) {
        /// Allocates memory that peers reach fastest ([`crate::Device::alloc`]).
        ALLOC = 0x01;
        /// A message that finds no receive waits without limit, rather than breaking the connection.
        RECEIVER_WAITS = 0x02;
        /// Bytes of a one-sided write become visible in address order, the last byte last.
        WRITE_ORDERED = 0x04;
        /// Reaches peers in other processes.
        INTER_PROCESS = 0x08;
        /// Reaches peers on other hosts.
        INTER_HOST = 0x10;
        /// Has [`Opcode::FETCH_ADD`] and [`Opcode::CMP_SWAP`].
        ATOMICS = 0x20;
        /// Has [`Opcode::WRITE_IMM`] and [`Opcode::SEND_IMM`].
        IMMEDIATE = 0x40;
        /// Has shared receive queues ([`crate::Device::open_srq`]).
        SRQ = 0x80;
        /// Has memory windows ([`crate::Device::open_window`], [`crate::Channel::bind`]).
        WINDOWS = 0x100;
        /// Has [`Opcode::SEND_INVALIDATE`].
        SEND_INVALIDATE = 0x200;
        /// Registers memory of other devices ([`crate::Device::register_dmabuf`]).
        DMABUF = 0x400;
        /// Looks at [`ChannelFlag`] in [`crate::ChannelAttr`], which are 0 for others.
        CHANNEL_FLAGS = 0x800;
    }
}
bits!(Caps(u64));

constants! {
    /// What is known of a channel's use. All are advice: a channel works whatever they say.
    ChannelFlag(u32) {
        /// One thread posts to it and polls for it, others seldom if at all. Calls of several threads at once come
        /// nevertheless, and must be served correctly.
        SINGLE_THREADED = 1;
        /// Programs poll memory for the last byte of an RDMA write. It becomes visible after all other bytes of the write.
        LAST_BYTE_LAST = 2;
    }
}
bits!(ChannelFlag(u32));

constants! {
    /// Kind of an [`crate::Event`].
    EventKind(u32) {
        /// A peer asks to connect: `user` is the listener's, `request` names it, `peer`, `peer_port`, `qos`, `data`.
        REQUEST = 1;
        /// A channel is connected. On the connecting side `data` is the acceptor's.
        ESTABLISHED = 2;
        /// The peer's consumer refused; `data` is its reason.
        REJECTED = 3;
        /// Refused by something else: no listener, backlog, a protocol fault.
        REFUSED = 4;
        /// The peer cannot be reached.
        UNREACHABLE = 5;
        /// An accept did not lead to a connection: the peer is gone.
        ACCEPT_FAILED = 6;
        /// The peer ended the connection in order.
        DISCONNECTED = 7;
        /// The connection broke.
        BROKEN = 8;
        /// The device is unusable from now on.
        DEVICE_LOST = 9;
        /// A shared receive queue has fewer receives left than it was armed for; `user` is its own.
        SRQ_LIMIT = 10;
        /// A port of the device went down; connections live on for as long as the fabric lets them.
        PORT_DOWN = 11;
        /// A port of the device came up.
        PORT_UP = 12;
    }
}

constants! {
    /// Why a request is rejected.
    RejectReason(u32) {
        /// The consumer refused; the peer sees [`EventKind::REJECTED`].
        CONSUMER = 1;
        /// The engine refused (backlog, quality of service); the peer sees [`EventKind::REFUSED`].
        PROVIDER = 2;
    }
}
