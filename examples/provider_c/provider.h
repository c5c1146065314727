/*
 * What the files of this provider share. All state is behind one lock, the network's; queues have one of their own,
 * which is taken last. A provider for speed would not do that; one to read does.
 */
#ifndef PROVIDER_H
#define PROVIDER_H

#include <pthread.h>
#include <stdbool.h>

#include "dat_plugin.h"

/* The Makefile says what the provider is called; this is for builds without it. */
#ifndef PROVIDER_NAME
#define PROVIDER_NAME "example_c"
#endif
#ifndef PROVIDER_VERSION
#define PROVIDER_VERSION "0.1.0"
#endif
#define CAPS (DATP_CAPS_RECEIVER_WAITS)

#define MOST_PRIVATE_DATA 256
#define MOST_SEGMENTS 8
#define MOST_POSTS 4096
#define MOST_CHANNELS 4096
#define MOST_REGIONS 65535
#define MOST_DEPTH (1u << 20)
#define MOST_BYTES (1ull << 31)

/* A completion queue: a ring that grows. */
struct queue {
    pthread_mutex_t lock;
    struct datp_completion *ring;
    size_t capacity, first, count;
    bool armed;
    int fd;
};

/* Registered memory. Its remote key is its place in the low half, and random bits in the high half. */
struct region {
    bool used;
    struct datp_keys keys;
    uint64_t addr, len;
    datp_access access;
    uint32_t domain;
};

/*
 * An event that was not handed out yet. It lives in the object it is about, so that none is ever lost for want of
 * memory.
 */
struct pending_event {
    struct pending_event *next;
    struct datp_event event;
};

struct device {
    struct device *next;
    unsigned generation;
    char name[64], world[64];
    struct datp_sock_addr address;
    struct pending_event *events;
    int fd;
    uint32_t channels, region_count;
    struct region *regions;
};

struct listener {
    struct listener *next;
    struct device *device;
    uint64_t port, user;
};

/* A connection request that was not answered yet. */
struct knock {
    struct knock *next;
    uint64_t id, port;
    struct device *at;
    struct channel *from; /* null once it gave up */
    struct pending_event event;
};

enum phase { IDLE, CONNECTING, CONNECTED, STOPPED };

/* A posted request or receive; its segments are in the fifo's array. */
struct work {
    uint64_t token, length, remote_addr;
    uint32_t rkey, segments;
    datp_opcode opcode;
    datp_post_flag flags;
};

struct fifo {
    struct work *work;
    struct datp_segment *segments;
    uint32_t capacity, most_segments, first, count;
};

struct channel {
    struct channel *next;
    struct device *device;
    struct datp_channel_attr attr;
    struct queue *send, *recv;
    struct fifo requests, recvs;
    enum phase phase;
    bool silent; /* the last success was not told yet */
    uint64_t silent_token, silent_length;
    struct channel *peer;
    uint64_t port;
    struct pending_event outcome; /* of connect or accept */
    struct pending_event end;     /* of the connection */
};

/* The network. */
extern pthread_mutex_t net_lock;
extern unsigned net_generation; /* counts forks */
extern struct device *net_devices;
extern struct channel *net_channels;
extern struct listener *net_listeners;
extern struct knock *net_knocks;
extern const struct datp_host_ops *net_host;
uint64_t net_free_port(const char *world);
struct listener *net_listener(const char *world, uint64_t port);

/* Sentences for people. */
datp_status fail(struct datp_message *message, datp_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void say(struct datp_message *message, const char *format, ...) __attribute__((format(printf, 2, 3)));
void log_line(uint32_t level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Device. */
datp_status device_open(const struct datp_config *config, datp_ctx *out, struct datp_message *message);
datp_status device_probe(const struct datp_config *config, const struct datp_probe_sink *sink);
void device_send_event(struct device *device, struct pending_event *event);
bool device_take_back(struct device *device, struct pending_event *event);

/* Memory. */
datp_status memory_register(datp_ctx ctx, uint64_t addr, uint64_t len, datp_access access, uint32_t domain,
    struct datp_keys *out, struct datp_message *message);
datp_status memory_register_dmabuf(datp_ctx ctx, int32_t fd, uint64_t offset, uint64_t len, uint64_t addr,
    datp_access access, uint32_t domain, struct datp_keys *out, struct datp_message *message);
datp_status memory_deregister(datp_ctx ctx, struct datp_keys keys);
bool memory_may(const struct device *device, uint32_t rkey, uint64_t addr, uint64_t len, datp_access access,
    uint32_t domain);

/* Queue. */
datp_status queue_open(datp_ctx ctx, uint32_t depth, datp_ctx *out, struct datp_message *message);
bool queue_push(struct queue *queue, const struct datp_completion *completion);

/* Channel. */
datp_status channel_open(datp_ctx ctx, const struct datp_channel_attr *attr, datp_ctx send, datp_ctx recv, datp_ctx srq,
    datp_ctx *out, struct datp_message *message);
void channel_fail_connect(struct channel *channel, datp_event_kind kind, const uint8_t *data, size_t len);

extern const struct datp_device_ops device_ops;
extern const struct datp_channel_ops channel_ops;
extern const struct datp_queue_ops queue_ops;
extern const struct datp_listener_ops listener_ops;

#endif
