/*
 * dat_plugin.h - the interface between DAT and a provider plugin written in C.
 *
 * The same tables in Rust are api/plugin/src/abi and ops.rs; a test compares every size, offset and constant.
 * docs/plugin-authors.md says what a provider must do; examples/provider_c is one. In short: make the tables, return them
 * from dat_plugin_c_root(), write DATP_NOTE(...) once at file level, link a shared object.
 *
 * Every table leads with its size. No entry may be null: a missing operation returns
 * DATP_STATUS_NOT_SUPPORTED. Every function may be called from any thread; a function must not unwind, longjmp or exit.
 */
#ifndef DAT_PLUGIN_H
#define DAT_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes when a table changes shape. */
#define DATP_ABI_MAJOR 1

/* Counts what was appended to PluginModule. */
#define DATP_ABI_MINOR 1

/* The most private data any provider carries, in bytes. */
#define DATP_MAX_PRIVATE_DATA 512

/* Outcome of a call into a provider. Negative values are failures. */
typedef int32_t datp_status;
/* Done. */
#define DATP_STATUS_OK ((datp_status)(0))
/* Begun; an event will tell. */
#define DATP_STATUS_PENDING ((datp_status)(1))
/* A queue, table or limit is full. Nothing changed; a later try may work. */
#define DATP_STATUS_NO_RESOURCE ((datp_status)(-1))
/* An argument the provider cannot make sense of. */
#define DATP_STATUS_INVALID ((datp_status)(-2))
/* The provider does not have this operation. */
#define DATP_STATUS_NOT_SUPPORTED ((datp_status)(-3))
/* The channel is not, or no longer, connected. */
#define DATP_STATUS_NOT_CONNECTED ((datp_status)(-4))
/* The port already has a listener. */
#define DATP_STATUS_IN_USE ((datp_status)(-5))
/* The peer cannot be reached. */
#define DATP_STATUS_UNREACHABLE ((datp_status)(-6))
/* The address is of a kind this provider cannot use. */
#define DATP_STATUS_BAD_ADDRESS ((datp_status)(-7))
/* The operating system forbids it. */
#define DATP_STATUS_PERMISSION ((datp_status)(-8))
/* There is no such device on this machine. */
#define DATP_STATUS_NO_DEVICE ((datp_status)(-9))
/* The provider panicked; the panic stopped at the boundary. */
#define DATP_STATUS_PANICKED ((datp_status)(-10))
/* An operating system call failed. */
#define DATP_STATUS_IO ((datp_status)(-11))
/* A parameter of the configuration is unknown or out of range. */
#define DATP_STATUS_BAD_CONFIG ((datp_status)(-12))
/* The request is gone: its peer gave up. */
#define DATP_STATUS_GONE ((datp_status)(-13))
/* Called in a child made by fork from the process that opened the device. */
#define DATP_STATUS_FORKED ((datp_status)(-14))
/* Made by the host when a provider's answer makes no sense; never return it. */
#define DATP_STATUS_FAULTY ((datp_status)(-15))

/* What a request does. */
typedef uint16_t datp_opcode;
/* Message into the peer's next posted receive. */
#define DATP_OPCODE_SEND ((datp_opcode)(0))
/* Local memory to remote memory. */
#define DATP_OPCODE_WRITE ((datp_opcode)(1))
/* Remote memory to local memory. */
#define DATP_OPCODE_READ ((datp_opcode)(2))
/* Opcode::WRITE, then the peer's next receive completes with Request::imm. With Caps::IMMEDIATE. */
#define DATP_OPCODE_WRITE_IMM ((datp_opcode)(3))
/* Opcode::SEND whose receive completes with Request::imm. With Caps::IMMEDIATE. */
#define DATP_OPCODE_SEND_IMM ((datp_opcode)(4))
/* Opcode::SEND that ends the peer's window Request::rkey before its receive completes. With Caps::SEND_INVALIDATE. */
#define DATP_OPCODE_SEND_INVALIDATE ((datp_opcode)(5))
/* AtomicRequest: adds to a remote word, the old value goes to local memory. With Caps::ATOMICS. */
#define DATP_OPCODE_FETCH_ADD ((datp_opcode)(6))
/* AtomicRequest: replaces a remote word that is as expected; the old value goes to local memory. */
#define DATP_OPCODE_CMP_SWAP ((datp_opcode)(7))
/* BindRequest; for a provider's own books, no Request has it. */
#define DATP_OPCODE_BIND ((datp_opcode)(8))

/* Flags of a request. */
typedef uint16_t datp_post_flag;
/* The peer's completion is marked CompletionFlag::SOLICITED. */
#define DATP_POST_FLAG_SOLICITED ((datp_post_flag)(1))
/* Start only when all earlier reads of the channel completed. */
#define DATP_POST_FLAG_FENCE ((datp_post_flag)(2))
/* On a receive: complete with CompletionStatus::LOCAL_ACCESS when a message would use it. */
#define DATP_POST_FLAG_POISON ((datp_post_flag)(4))
/* A success needs no completion of its own (the provider may give one); a failure still has one. A later completion of
 * the channel's requests means that this one succeeded. A provider that gives no completion has Channel::settle. At most
 * half of ChannelAttr::max_requests in a row are unsignalled. */
#define DATP_POST_FLAG_UNSIGNALLED ((datp_post_flag)(8))

/* How a request or receive ended. */
typedef uint32_t datp_completion_status;
/* Done. */
#define DATP_COMPLETION_STATUS_SUCCESS ((datp_completion_status)(0))
/* The message was longer than the receive. */
#define DATP_COMPLETION_STATUS_LOCAL_LENGTH ((datp_completion_status)(1))
/* A local segment could not be accessed. */
#define DATP_COMPLETION_STATUS_LOCAL_ACCESS ((datp_completion_status)(2))
/* Key, right, range or zone at the peer. */
#define DATP_COMPLETION_STATUS_REMOTE_ACCESS ((datp_completion_status)(3))
/* The peer failed the request. */
#define DATP_COMPLETION_STATUS_REMOTE_ERROR ((datp_completion_status)(4))
/* The link or the peer is gone. */
#define DATP_COMPLETION_STATUS_TRANSPORT ((datp_completion_status)(5))
/* The peer had no receive posted for longer than the provider's bound. */
#define DATP_COMPLETION_STATUS_NOT_READY ((datp_completion_status)(6))
/* The peer's answer made no sense. */
#define DATP_COMPLETION_STATUS_BAD_RESPONSE ((datp_completion_status)(7))
/* The message arrived incomplete. */
#define DATP_COMPLETION_STATUS_PARTIAL ((datp_completion_status)(8))
/* A memory window could not be bound or ended. */
#define DATP_COMPLETION_STATUS_WINDOW ((datp_completion_status)(9))
/* The channel itself is in no order for the operation. */
#define DATP_COMPLETION_STATUS_LOCAL_CHANNEL ((datp_completion_status)(10))

/* Marks of a completion. */
typedef uint32_t datp_completion_flag;
/* The sender asked for a solicited completion. */
#define DATP_COMPLETION_FLAG_SOLICITED ((datp_completion_flag)(1))
/* Receive: Completion::imm is the sender's immediate value. */
#define DATP_COMPLETION_FLAG_IMMEDIATE ((datp_completion_flag)(2))
/* Receive: the message ended the window whose key is Completion::imm. */
#define DATP_COMPLETION_FLAG_INVALIDATED ((datp_completion_flag)(4))
/* Receive: a write with an immediate value used it; length is what was written, the buffer is untouched. */
#define DATP_COMPLETION_FLAG_WRITTEN ((datp_completion_flag)(8))

/* Rights on registered memory. */
typedef uint32_t datp_access;
/* Source of sends and writes. */
#define DATP_ACCESS_LOCAL_READ ((datp_access)(0x01))
/* Source of a peer's reads. */
#define DATP_ACCESS_REMOTE_READ ((datp_access)(0x02))
/* Sink of receives and reads. */
#define DATP_ACCESS_LOCAL_WRITE ((datp_access)(0x10))
/* Sink of a peer's writes. */
#define DATP_ACCESS_REMOTE_WRITE ((datp_access)(0x20))
/* Target of a peer's atomic operations. */
#define DATP_ACCESS_REMOTE_ATOMIC ((datp_access)(0x40))
/* Windows may be bound to it. */
#define DATP_ACCESS_WINDOW ((datp_access)(0x80))

/* What a device can do beyond messages, one-sided writes and reads. The engine refuses the rest. */
typedef uint64_t datp_caps;
/* Allocates memory that peers reach fastest (Device::alloc). */
#define DATP_CAPS_ALLOC ((datp_caps)(0x01))
/* A message that finds no receive waits without limit, rather than breaking the connection. */
#define DATP_CAPS_RECEIVER_WAITS ((datp_caps)(0x02))
/* Bytes of a one-sided write become visible in address order, the last byte last. */
#define DATP_CAPS_WRITE_ORDERED ((datp_caps)(0x04))
/* Reaches peers in other processes. */
#define DATP_CAPS_INTER_PROCESS ((datp_caps)(0x08))
/* Reaches peers on other hosts. */
#define DATP_CAPS_INTER_HOST ((datp_caps)(0x10))
/* Has Opcode::FETCH_ADD and Opcode::CMP_SWAP. */
#define DATP_CAPS_ATOMICS ((datp_caps)(0x20))
/* Has Opcode::WRITE_IMM and Opcode::SEND_IMM. */
#define DATP_CAPS_IMMEDIATE ((datp_caps)(0x40))
/* Has shared receive queues (Device::open_srq). */
#define DATP_CAPS_SRQ ((datp_caps)(0x80))
/* Has memory windows (Device::open_window, Channel::bind). */
#define DATP_CAPS_WINDOWS ((datp_caps)(0x100))
/* Has Opcode::SEND_INVALIDATE. */
#define DATP_CAPS_SEND_INVALIDATE ((datp_caps)(0x200))
/* Registers memory of other devices (Device::register_dmabuf). */
#define DATP_CAPS_DMABUF ((datp_caps)(0x400))
/* Looks at ChannelFlag in ChannelAttr, which are 0 for others. */
#define DATP_CAPS_CHANNEL_FLAGS ((datp_caps)(0x800))

/* What is known of a channel's use. All are advice: a channel works whatever they say. */
typedef uint32_t datp_channel_flag;
/* One thread posts to it and polls for it, others seldom if at all. Calls of several threads at once come
 * nevertheless, and must be served correctly. */
#define DATP_CHANNEL_FLAG_SINGLE_THREADED ((datp_channel_flag)(1))
/* Programs poll memory for the last byte of an RDMA write. It becomes visible after all other bytes of the write. */
#define DATP_CHANNEL_FLAG_LAST_BYTE_LAST ((datp_channel_flag)(2))

/* Kind of an Event. */
typedef uint32_t datp_event_kind;
/* A peer asks to connect: user is the listener's, request names it, peer, peer_port, qos, data. */
#define DATP_EVENT_KIND_REQUEST ((datp_event_kind)(1))
/* A channel is connected. On the connecting side data is the acceptor's. */
#define DATP_EVENT_KIND_ESTABLISHED ((datp_event_kind)(2))
/* The peer's consumer refused; data is its reason. */
#define DATP_EVENT_KIND_REJECTED ((datp_event_kind)(3))
/* Refused by something else: no listener, backlog, a protocol fault. */
#define DATP_EVENT_KIND_REFUSED ((datp_event_kind)(4))
/* The peer cannot be reached. */
#define DATP_EVENT_KIND_UNREACHABLE ((datp_event_kind)(5))
/* An accept did not lead to a connection: the peer is gone. */
#define DATP_EVENT_KIND_ACCEPT_FAILED ((datp_event_kind)(6))
/* The peer ended the connection in order. */
#define DATP_EVENT_KIND_DISCONNECTED ((datp_event_kind)(7))
/* The connection broke. */
#define DATP_EVENT_KIND_BROKEN ((datp_event_kind)(8))
/* The device is unusable from now on. */
#define DATP_EVENT_KIND_DEVICE_LOST ((datp_event_kind)(9))
/* A shared receive queue has fewer receives left than it was armed for; user is its own. */
#define DATP_EVENT_KIND_SRQ_LIMIT ((datp_event_kind)(10))
/* A port of the device went down; connections live on for as long as the fabric lets them. */
#define DATP_EVENT_KIND_PORT_DOWN ((datp_event_kind)(11))
/* A port of the device came up. */
#define DATP_EVENT_KIND_PORT_UP ((datp_event_kind)(12))

/* Why a request is rejected. */
typedef uint32_t datp_reject_reason;
/* The consumer refused; the peer sees EventKind::REJECTED. */
#define DATP_REJECT_REASON_CONSUMER ((datp_reject_reason)(1))
/* The engine refused (backlog, quality of service); the peer sees EventKind::REFUSED. */
#define DATP_REJECT_REASON_PROVIDER ((datp_reject_reason)(2))

/* An object of the plugin's, which only the plugin looks into. */
typedef void *datp_ctx;

/* A range of local registered memory. Only host::SpanTable makes one, from memory that is registered. */
struct datp_segment {
    uint64_t addr;
    uint32_t len;
    uint32_t lkey;
};

/* One request: a send, write or read, each in its variants. */
struct datp_request {
    /* Comes back in the completion. */
    uint64_t token;
    const struct datp_segment *segs;
    uint32_t nsegs;
    /* What to do. */
    datp_opcode opcode;
    /* How. */
    datp_post_flag flags;
    /* Sum of the segments' lengths. */
    uint64_t total;
    /* Write and read: first byte at the peer. */
    uint64_t remote_addr;
    /* Write and read: key the peer gave out. */
    uint32_t rkey;
    /* Read: bytes to read, at most total. Write: 0. */
    uint32_t remote_len;
    /* Immediate value, for the opcodes that carry one; the receiver sees the same number. */
    uint32_t imm;
    uint32_t reserved;
};

/* One atomic operation on an aligned 64-bit word at the peer. */
struct datp_atomic_request {
    /* Comes back in the completion. */
    uint64_t token;
    /* Opcode::FETCH_ADD or Opcode::CMP_SWAP. */
    datp_opcode opcode;
    /* How. */
    datp_post_flag flags;
    /* Key the peer gave out, with Access::REMOTE_ATOMIC. */
    uint32_t rkey;
    /* The word at the peer, aligned to 8 bytes. */
    uint64_t remote_addr;
    /* What to add, or what the word is expected to be. */
    uint64_t operand;
    /* What the word becomes when it is as expected. */
    uint64_t swap;
    /* Eight bytes that receive the old value, in this host's byte order. */
    struct datp_segment sink;
};

/* Binding of a memory window, a request like others: it completes in order, with an event. */
struct datp_bind_request {
    /* Comes back in the completion. */
    uint64_t token;
    /* What Device::open_window gave. */
    uint64_t window;
    uint64_t addr;
    uint32_t len;
    uint32_t lkey;
    /* Remote rights of the window; none when it is unbound. */
    datp_access access;
    /* How. */
    datp_post_flag flags;
    uint16_t reserved;
};

/* One receive. */
struct datp_recv_request {
    /* Comes back in the completion. */
    uint64_t token;
    const struct datp_segment *segs;
    uint32_t nsegs;
    /* Only PostFlag::POISON means something here. */
    datp_post_flag flags;
    uint16_t reserved;
    /* Sum of the segments' lengths. */
    uint64_t total;
};

/* One finished request or receive. */
struct datp_completion {
    /* The token of the post. */
    uint64_t token;
    /* The number given for this channel and direction when the channel was opened. */
    uint64_t user;
    /* How it ended. */
    datp_completion_status status;
    /* Bytes transferred. */
    uint32_t length;
    /* Marks. */
    datp_completion_flag flags;
    /* Immediate value or key, as flags says; else 0. */
    uint32_t imm;
};

/* An internet address, with a port where one is meant. */
struct datp_sock_addr {
    /* 4, 6, or 0 for none. */
    uint16_t family;
    /* Host order; 0 where none is meant. */
    uint16_t port;
    /* Scope of a link-local IPv6 address. */
    uint32_t scope;
    /* Network order; an IPv4 address takes the first four bytes. */
    uint8_t bytes[16];
};

/* Something that happened on a device. */
struct datp_event {
    /* What. */
    datp_event_kind kind;
    /* Request: the quality of service the peer asked for. */
    uint32_t qos;
    /* The listener's or channel's number. */
    uint64_t user;
    /* Request: its name, for accept and reject. */
    uint64_t request;
    /* Request: the port that was asked for. */
    uint64_t port;
    /* Request: the peer's port. */
    uint64_t peer_port;
    /* Request: the peer's address. */
    struct datp_sock_addr peer;
    /* Bytes of private data in data. */
    uint32_t data_len;
    /* Private data. */
    uint8_t data[DATP_MAX_PRIVATE_DATA];
};

/* What a device can do. Counts are objects, sizes bytes. */
struct datp_device_attr {
    /* Optional features. */
    datp_caps caps;
    /* The device's own address; peers connect to it. */
    struct datp_sock_addr address;
    /* Channels open at one time. */
    uint32_t max_channels;
    /* Completion queues open at one time. */
    uint32_t max_queues;
    /* Completions that one queue holds. */
    uint32_t max_queue_depth;
    /* Registrations at one time. */
    uint32_t max_regions;
    /* Requests outstanding on one channel. */
    uint32_t max_requests_per_channel;
    /* Receives outstanding on one channel. */
    uint32_t max_recvs_per_channel;
    /* Segments of a send or receive. */
    uint32_t max_segments;
    /* Local segments of an RDMA read. */
    uint32_t max_read_segments;
    /* Local segments of an RDMA write. */
    uint32_t max_write_segments;
    /* Reads a channel may have under way, as initiator and as target. */
    uint32_t max_reads_per_channel;
    /* Bytes of one message. */
    uint64_t max_message;
    /* Bytes of one RDMA write or read. */
    uint64_t max_rdma;
    /* Bytes of one registration. */
    uint64_t max_region;
    /* At request, accept and reject; at most MAX_PRIVATE_DATA. */
    uint32_t max_private_data;
    /* OR of the quality of service values offered, as DAT numbers them. */
    uint32_t qos;
    /* Advice for buffers. */
    uint32_t alignment;
    /* Shared receive queues open at one time; 0 without Caps::SRQ. */
    uint32_t max_srqs;
    /* Receives in one shared queue. */
    uint32_t max_srq_depth;
    /* Segments of a receive of a shared queue. */
    uint32_t max_srq_segments;
    /* Memory windows open at one time; 0 without Caps::WINDOWS. */
    uint32_t max_windows;
    /* Must be 0. */
    uint32_t reserved;
};

/* What a channel is to be able to do. */
struct datp_channel_attr {
    /* Comes back in the channel's events. */
    uint64_t user;
    /* Comes back in the completions of requests. */
    uint64_t send_user;
    /* Comes back in the completions of receives. */
    uint64_t recv_user;
    /* Remote access through this channel is limited to registrations of this protection domain. */
    uint32_t domain;
    /* Requests outstanding. */
    uint32_t max_requests;
    /* Receives outstanding. */
    uint32_t max_recvs;
    /* Segments of a request. */
    uint32_t max_request_segments;
    /* Segments of a receive. */
    uint32_t max_recv_segments;
    /* RDMA reads that the channel issues at one time. */
    uint32_t max_reads_out;
    /* RDMA reads of the peer at one time. */
    uint32_t max_reads_in;
    /* Bits of ChannelFlag for a device that has Caps::CHANNEL_FLAGS, else 0. Bits it does not know mean nothing to it. */
    uint32_t reserved;
    /* Bytes of one message. */
    uint64_t max_message;
};

/* What a shared receive queue is to be able to do. */
struct datp_srq_attr {
    /* Comes back in EventKind::SRQ_LIMIT. */
    uint64_t user;
    /* Most receives in it. */
    uint32_t depth;
    /* Most segments of a receive. */
    uint32_t max_segments;
    /* Protection domain of the receives' memory. */
    uint32_t domain;
    /* Must be 0. */
    uint32_t reserved;
};

/* Keys of a registration. */
struct datp_keys {
    /* For local segments. */
    uint32_t lkey;
    /* For peers; 0 when no remote right was asked for. */
    uint32_t rkey;
};

/* Memory a provider allocated. */
struct datp_block {
    /* Address of the first byte, aligned to a page. */
    uint64_t addr;
    /* Length in bytes, at least what was asked for. */
    uint64_t len;
    /* Names the block when it is freed. */
    uint64_t handle;
};

/* Borrowed text, UTF-8. */
struct datp_str {
    /* First byte; not read when len is 0. */
    const uint8_t *ptr;
    /* Bytes. */
    size_t len;
};

/* A buffer of the caller's for a sentence. */
struct datp_message {
    /* Where to write. */
    uint8_t *ptr;
    /* How much fits, in bytes. */
    size_t capacity;
    /* How much was written. */
    size_t len;
};

/* One parameter of a configuration. */
struct datp_param {
    /* Name. */
    struct datp_str key;
    /* Value as text. */
    struct datp_str value;
};

/* A configuration as it crosses the boundary. */
struct datp_config {
    /* The IA name. */
    struct datp_str ia_name;
    /* First of the parameters; not read when count is 0. */
    const struct datp_param *params;
    /* How many. */
    size_t count;
};

/* A connect as it crosses the boundary. */
struct datp_connect {
    struct datp_sock_addr addr;
    uint64_t port;
    const uint8_t *data;
    uint32_t data_len;
    uint32_t qos;
};

/* Where a plugin's log goes. Given by the host, versioned like everything else. */
struct datp_host_ops {
    /* Size of this table in bytes. */
    uint32_t size;
    /* ABI_MINOR of the host. */
    uint32_t minor;
    /* Takes one log record: level (1 error … 5 trace), target, text. */
    void (*log)(uint32_t level, struct datp_str target, struct datp_str text);
};

/* Takes the candidates of a probe. */
struct datp_probe_sink {
    /* Handed to push. */
    void *list;
    /* Takes one candidate. */
    void (*push)(void *list, struct datp_str candidate, uint32_t usable, struct datp_str reason);
};

/* Entry points of the plugin. */
struct datp_provider_ops {
    /* Size of this table in bytes. */
    uint32_t size;
    /* Must be 0. */
    uint32_t reserved;
    /* Called once before anything else; level is the most verbose log level wanted (0 off … 5 trace). */
    datp_status (*init)(const struct datp_host_ops *host, uint32_t level);
    /* Opens an interface adapter. */
    datp_status (*open)(const struct datp_config *config, datp_ctx *out, struct datp_message *message);
};

/* The methods of Device. */
struct datp_device_ops {
    /* Size of this table in bytes. */
    uint32_t size;
    /* Must be 0. */
    uint32_t reserved;
    /* Hands out events and does all progress that must not wait for the application. Never blocks. */
    size_t (*poll_events)(datp_ctx ctx, struct datp_event *out, size_t capacity);
    /* Readable when Device::poll_events has something to do; -1 when it never has. */
    int32_t (*event_fd)(datp_ctx ctx);
    /* What the device can do. Constant while it is open. */
    datp_status (*attr)(datp_ctx ctx, struct datp_device_attr *out);
    /* Opens a completion queue for at least depth completions. */
    datp_status (*open_queue)(datp_ctx ctx, uint32_t depth, datp_ctx *out, struct datp_message *message);
    /* Opens a channel, unconnected. A direction without a queue is never posted to. srq is null for
     * Device::open_channel. */
    datp_status (*open_channel)(datp_ctx ctx, const struct datp_channel_attr *attr, datp_ctx send, datp_ctx recv,
        datp_ctx srq, datp_ctx *out, struct datp_message *message);
    /* Listens on port, or with 0 on a free one of at least 1024. Requests arrive as events with user. */
    datp_status (*listen)(datp_ctx ctx, uint64_t port, uint64_t user, datp_ctx *out, struct datp_message *message);
    /* Registers len bytes at addr for access in protection domain domain. */
    datp_status (*register_)(datp_ctx ctx, uint64_t addr, uint64_t len, datp_access access, uint32_t domain,
        struct datp_keys *out, struct datp_message *message);
    /* Registers len bytes at offset of a dma-buf, as memory at addr: posts name it so. Only with Caps::DMABUF. */
    datp_status (*register_dmabuf)(datp_ctx ctx, int32_t fd, uint64_t offset, uint64_t len, uint64_t addr,
        datp_access access, uint32_t domain, struct datp_keys *out, struct datp_message *message);
    /* Ends a registration. No remote access through it begins or goes on after the call returned. */
    datp_status (*deregister)(datp_ctx ctx, struct datp_keys keys);
    /* Allocates zeroed memory that peers reach in the fastest way. Only with Caps::ALLOC. */
    datp_status (*alloc)(datp_ctx ctx, uint64_t len, struct datp_block *out, struct datp_message *message);
    /* Frees what Device::alloc gave; every registration in it has ended. */
    datp_status (*free)(datp_ctx ctx, struct datp_block block);
    /* Refuses a connection request. */
    datp_status (*reject)(datp_ctx ctx, uint64_t request, datp_reject_reason reason, const uint8_t *data,
        size_t len);
    /* Opens a shared receive queue. Only with Caps::SRQ. */
    datp_status (*open_srq)(datp_ctx ctx, const struct datp_srq_attr *attr, datp_ctx *out,
        struct datp_message *message);
    /* Opens a memory window of protection domain domain, not bound. Only with Caps::WINDOWS. */
    datp_status (*open_window)(datp_ctx ctx, uint32_t domain, uint64_t *out, struct datp_message *message);
    /* Closes a memory window; what it was bound to can no longer be reached through it. */
    datp_status (*close_window)(datp_ctx ctx, uint64_t window);
    /* One line for people: what this device is made of. */
    datp_status (*describe)(datp_ctx ctx, struct datp_message *message);
    /* The device is closed: all its other objects are closed already. */
    void (*close)(datp_ctx ctx);
};

/* The methods of Channel. */
struct datp_channel_ops {
    /* Size of this table in bytes. */
    uint32_t size;
    /* Must be 0. */
    uint32_t reserved;
    /* Posts a request. Status::NOT_CONNECTED: not accepted, the channel has stopped. */
    datp_status (*post)(datp_ctx ctx, const struct datp_request *request);
    /* Posts a receive, before or while connected. */
    datp_status (*post_recv)(datp_ctx ctx, const struct datp_recv_request *request);
    /* Posts requests in order, up to the first that is not accepted: how many were, and why no more. Posts count
     * requests; posted is how many were accepted. */
    datp_status (*post_list)(datp_ctx ctx, const struct datp_request *requests, size_t count, size_t *posted);
    /* As Channel::post_list, of receives. */
    datp_status (*post_recv_list)(datp_ctx ctx, const struct datp_recv_request *requests, size_t count,
        size_t *posted);
    /* Completes unsignalled requests: adds a completion for the last unsignalled success (PostFlag::UNSIGNALLED), unless a
     * later completion covers it. The provider also does this before the channel stops. */
    void (*settle)(datp_ctx ctx);
    /* Posts an atomic operation. Only with Caps::ATOMICS. */
    datp_status (*post_atomic)(datp_ctx ctx, const struct datp_atomic_request *request);
    /* Posts the binding of a window and gives its new key, 0 when it is unbound. The key may be sent to the peer with
     * the next message; the key before it is of no use once the binding completed. Only with Caps::WINDOWS. */
    datp_status (*bind)(datp_ctx ctx, const struct datp_bind_request *request, uint32_t *rkey);
    /* Starts to connect. The outcome arrives as an event; the engine keeps the time and disconnects when it is up. */
    datp_status (*connect)(datp_ctx ctx, const struct datp_connect *param, struct datp_message *message);
    /* Accepts a request. The outcome arrives as an event, also when the peer has gone since. */
    datp_status (*accept)(datp_ctx ctx, uint64_t request, const uint8_t *data, size_t len,
        struct datp_message *message);
    /* Ends the connection or the attempt at once, also for the peer. Never waits for the device. Status::OK: stopped, and no
     * event follows. Status::PENDING: the device still holds work; an event of kind EventKind::DISCONNECTED follows when it
     * has let go of all buffers. */
    datp_status (*disconnect)(datp_ctx ctx);
    /* The local port, defined once connect or accept was called. */
    uint64_t (*local_port)(datp_ctx ctx);
    /* One line for people: the path taken and why. */
    datp_status (*describe)(datp_ctx ctx, struct datp_message *message);
    /* The channel is closed: stopped if it was not. The device holds no buffer when this returns. No event follows. */
    void (*close)(datp_ctx ctx);
};

/* The methods of Queue. */
struct datp_queue_ops {
    /* Size of this table in bytes. */
    uint32_t size;
    /* Must be 0. */
    uint32_t reserved;
    /* Takes completions, oldest first for each channel and direction. Fewer than fit does not say that there are no
     * more; none does. */
    size_t (*poll)(datp_ctx ctx, struct datp_completion *out, size_t capacity);
    /* Makes Queue::fd readable on the next completion. false: there is one already, poll again. 1 armed, 0 poll again. */
    uint32_t (*arm)(datp_ctx ctx);
    /* Takes back an arm, and clears the descriptor. */
    void (*disarm)(datp_ctx ctx);
    /* Readable after a completion arrived while armed. */
    int32_t (*fd)(datp_ctx ctx);
    /* The queue is closed: no channel uses it any more. */
    void (*close)(datp_ctx ctx);
};

/* The methods of Listener. */
struct datp_listener_ops {
    /* Size of this table in bytes. */
    uint32_t size;
    /* Must be 0. */
    uint32_t reserved;
    /* The port it listens on. */
    uint64_t (*port)(datp_ctx ctx);
    /* Stops listening. Requests already handed out live on. */
    void (*close)(datp_ctx ctx);
};

/* The methods of Srq. */
struct datp_srq_ops {
    /* Size of this table in bytes. */
    uint32_t size;
    /* Must be 0. */
    uint32_t reserved;
    /* Posts a receive. */
    datp_status (*post_recv)(datp_ctx ctx, const struct datp_recv_request *request);
    /* From now on, once: an event of kind EventKind::SRQ_LIMIT when fewer than limit receives are left, also when they
     * are few already. 0 takes it back. */
    datp_status (*arm)(datp_ctx ctx, uint32_t limit);
    /* Changes the most receives it holds; not below what it holds. */
    datp_status (*resize)(datp_ctx ctx, uint32_t depth);
    /* The queue is closed: no channel uses it any more. */
    void (*close)(datp_ctx ctx);
};

/* Probing, in the interface since 1.1. */
struct datp_probe_ops {
    /* Size of this table in bytes. */
    uint32_t size;
    /* Must be 0. */
    uint32_t reserved;
    /* Says what it would use with this configuration and why not the rest, without opening anything for good. */
    datp_status (*probe)(const struct datp_config *config, const struct datp_probe_sink *sink);
};

/* The root of a plugin in C, which const struct datp_module *dat_plugin_c_root(void) returns: what PluginModule is for
 * plugins in Rust. */
struct datp_module {
    /* Size of this table in bytes. */
    uint32_t size;
    /* ABI_MAJOR the plugin was built with; the same as in its note. */
    uint32_t abi_major;
    /* ABI_MINOR the plugin was built with; the same as in its note. */
    uint32_t abi_minor;
    /* Must be 0. */
    uint32_t reserved;
    /* Short name. */
    struct datp_str name;
    /* Version of the plugin. */
    struct datp_str version;
    /* One line for people. */
    struct datp_str description;
    /* Entry points. */
    const struct datp_provider_ops *provider;
    /* Devices. */
    const struct datp_device_ops *device;
    /* Channels. */
    const struct datp_channel_ops *channel;
    /* Queues. */
    const struct datp_queue_ops *queue;
    /* Shared receive queues; without Caps::SRQ none of its functions is called, yet none is null. */
    const struct datp_srq_ops *srq;
    /* Listeners. */
    const struct datp_listener_ops *listener;
    /* Probing; may be null. */
    const struct datp_probe_ops *probe;
};

/* Content of the section .note.dat.plugin. */
struct datp_note {
    uint32_t namesz;
    uint32_t descsz;
    uint32_t kind;
    uint8_t owner[4];
    uint32_t abi_major;
    uint32_t abi_minor;
    char name[32];
    char version[32];
    uint32_t said;
    uint32_t reserved;
    /* Low half first, so that the note needs no alignment above 4. */
    uint32_t caps[2];
};

/* The one symbol a plugin exports. The module and all it leads to are constant and live as long as the process. */
const struct datp_module *dat_plugin_c_root(void);

/*
 * Says what the file is, readable without running any of it. Once in a plugin, at file level; `name_` and `version_` are
 * string literals of at most 31 bytes, `caps_` the capabilities its devices can have at most.
 */
#define DATP_NOTE(name_, version_, caps_)                                                      \
    __attribute__((section(".note.dat.plugin"), used, aligned(4)))                             \
    static const struct datp_note datp_note_of_plugin = {                                      \
        4, (uint32_t)(sizeof(struct datp_note) - 16), 1, { 'D', 'A', 'T', 0 },                 \
        DATP_ABI_MAJOR, DATP_ABI_MINOR, name_, version_, 1, 0,                                 \
        { (uint32_t)((caps_) & 0xFFFFFFFFu), (uint32_t)((uint64_t)(caps_) >> 32) },            \
    }

#ifdef __cplusplus
}
#endif

#endif
