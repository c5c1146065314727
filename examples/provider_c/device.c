/* Devices, their events, and listeners. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "provider.h"

#define FIRST_FREE_PORT 1024

/* Takes one parameter, a text, if it has this name. */
static bool is_text(struct datp_str text, const char *name)
{
    return text.len == strlen(name) && memcmp(text.ptr, name, text.len) == 0;
}

static bool copy_text(struct datp_str text, char *out, size_t room)
{
    if (text.len >= room)
        return false;
    memcpy(out, text.ptr, text.len);
    out[text.len] = 0;
    return true;
}

static bool read_address(const char *text, struct datp_sock_addr *out)
{
    memset(out, 0, sizeof *out);
    out->family = 4;
    if (inet_pton(AF_INET, text, out->bytes) == 1)
        return true;
    out->family = 6;
    return inet_pton(AF_INET6, text, out->bytes) == 1;
}

/* Parameters: `domain` (default), the network it belongs to; `address` (127.0.0.1), its own. */
static datp_status read_config(const struct datp_config *config, struct device *device, struct datp_message *message)
{
    char address[64] = "127.0.0.1";
    size_t at;
    strcpy(device->world, "default");
    if (!copy_text(config->ia_name, device->name, sizeof device->name))
        strcpy(device->name, PROVIDER_NAME);
    for (at = 0; at < config->count; at++) {
        struct datp_str key = config->params[at].key, value = config->params[at].value;
        bool known = is_text(key, "domain"), fits;
        if (!known && !is_text(key, "address"))
            return fail(message, DATP_STATUS_BAD_CONFIG, "%s: unknown parameter \"%.*s\"; known are: address, domain",
                device->name, (int)key.len, (const char *)key.ptr);
        fits = known ? copy_text(value, device->world, sizeof device->world)
                     : copy_text(value, address, sizeof address);
        if (!fits)
            return fail(message, DATP_STATUS_BAD_CONFIG, "%s: the parameter %.*s is longer than 63 bytes", device->name,
                (int)key.len, (const char *)key.ptr);
    }
    if (!read_address(address, &device->address))
        return fail(message, DATP_STATUS_BAD_CONFIG, "%s: address = \"%s\" is no IP address", device->name, address);
    return DATP_STATUS_OK;
}

datp_status device_open(const struct datp_config *config, datp_ctx *out, struct datp_message *message)
{
    struct device *device = calloc(1, sizeof *device);
    datp_status status;
    if (device == NULL)
        return fail(message, DATP_STATUS_NO_RESOURCE, "new device: not enough memory");
    status = read_config(config, device, message);
    if (status != DATP_STATUS_OK) {
        free(device);
        return status;
    }
    device->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (device->fd < 0) {
        status = fail(message, DATP_STATUS_IO, "%s: no descriptor for events", device->name);
        free(device);
        return status;
    }
    pthread_mutex_lock(&net_lock);
    device->generation = net_generation;
    device->next = net_devices;
    net_devices = device;
    pthread_mutex_unlock(&net_lock);
    log_line(4, "%s: device of network \"%s\" opened", device->name, device->world);
    *out = device;
    return DATP_STATUS_OK;
}

datp_status device_probe(const struct datp_config *config, const struct datp_probe_sink *sink)
{
    struct device trial = { .fd = -1 };
    uint8_t text[256];
    struct datp_message message = { text, sizeof text, 0 };
    struct datp_str candidate = { (const uint8_t *)"in-process", 10 }, reason;
    datp_status status = read_config(config, &trial, &message);
    if (status == DATP_STATUS_OK)
        say(&message, "needs nothing; network \"%s\" of this process", trial.world);
    reason.ptr = text;
    reason.len = message.len;
    sink->push(sink->list, candidate, status == DATP_STATUS_OK, reason);
    return DATP_STATUS_OK;
}

static datp_status attr(datp_ctx ctx, struct datp_device_attr *out)
{
    struct device *device = ctx;
    memset(out, 0, sizeof *out);
    out->caps = CAPS;
    out->address = device->address;
    out->max_channels = MOST_CHANNELS;
    out->max_queues = UINT32_MAX;
    out->max_queue_depth = MOST_DEPTH;
    out->max_regions = MOST_REGIONS;
    out->max_requests_per_channel = MOST_POSTS;
    out->max_recvs_per_channel = MOST_POSTS;
    out->max_segments = MOST_SEGMENTS;
    out->max_read_segments = MOST_SEGMENTS;
    out->max_write_segments = MOST_SEGMENTS;
    out->max_reads_per_channel = MOST_POSTS;
    out->max_message = MOST_BYTES;
    out->max_rdma = MOST_BYTES;
    out->max_region = 1ull << 40;
    out->max_private_data = MOST_PRIVATE_DATA;
    out->alignment = 64;
    return DATP_STATUS_OK;
}

/* Under the network's lock. */
void device_send_event(struct device *device, struct pending_event *event)
{
    struct pending_event **end = &device->events;
    const uint64_t one = 1;
    while (*end != NULL)
        end = &(*end)->next;
    event->next = NULL;
    *end = event;
    if (write(device->fd, &one, sizeof one) < 0) { } /* full is readable */
}

/* Under the network's lock. False: it was handed out, or never sent. */
bool device_take_back(struct device *device, struct pending_event *event)
{
    struct pending_event **at = &device->events;
    while (*at != NULL && *at != event)
        at = &(*at)->next;
    if (*at == NULL)
        return false;
    *at = event->next;
    return true;
}

static size_t poll_events(datp_ctx ctx, struct datp_event *out, size_t capacity)
{
    struct device *device = ctx;
    uint64_t count;
    size_t taken;
    if (device->generation != net_generation)
        return 0;
    pthread_mutex_lock(&net_lock);
    for (taken = 0; taken < capacity && device->events != NULL; taken++) {
        struct pending_event *event = device->events;
        out[taken] = event->event;
        device->events = event->next;
    }
    if (device->events == NULL && read(device->fd, &count, sizeof count) < 0) { } /* was not readable */
    pthread_mutex_unlock(&net_lock);
    return taken;
}

static int32_t event_fd(datp_ctx ctx)
{
    return ((struct device *)ctx)->fd;
}

static datp_status reject(datp_ctx ctx, uint64_t request, datp_reject_reason reason, const uint8_t *data, size_t len)
{
    struct device *device = ctx;
    struct knock **at = &net_knocks, *knock;
    datp_status status = DATP_STATUS_INVALID;
    if (device->generation != net_generation)
        return DATP_STATUS_FORKED;
    if (len > MOST_PRIVATE_DATA || (reason != DATP_REJECT_REASON_CONSUMER && reason != DATP_REJECT_REASON_PROVIDER))
        return DATP_STATUS_INVALID;
    pthread_mutex_lock(&net_lock);
    while (*at != NULL && ((*at)->id != request || (*at)->at != device))
        at = &(*at)->next;
    if (*at != NULL) {
        knock = *at;
        *at = knock->next;
        status = DATP_STATUS_GONE;
        if (knock->from != NULL) {
            channel_fail_connect(knock->from,
                reason == DATP_REJECT_REASON_CONSUMER ? DATP_EVENT_KIND_REJECTED : DATP_EVENT_KIND_REFUSED, data, len);
            status = DATP_STATUS_OK;
        }
        device_take_back(device, &knock->event);
        free(knock);
    }
    pthread_mutex_unlock(&net_lock);
    return status;
}

/* Under the network's lock: refuses requests without a listener. With `port` 0 all of the device's. */
static void turn_away(struct device *device, uint64_t port)
{
    struct knock **at = &net_knocks;
    while (*at != NULL) {
        struct knock *knock = *at;
        if (knock->at != device || (port != 0 && knock->port != port)) {
            at = &knock->next;
            continue;
        }
        /* One whose event was handed out lives on when only its listener goes. */
        if (!device_take_back(device, &knock->event) && port != 0) {
            at = &knock->next;
            continue;
        }
        *at = knock->next;
        if (knock->from != NULL)
            channel_fail_connect(knock->from, DATP_EVENT_KIND_REFUSED, NULL, 0);
        free(knock);
    }
}

struct listener *net_listener(const char *world, uint64_t port)
{
    struct listener *listener = net_listeners;
    while (listener != NULL && (listener->port != port || strcmp(listener->device->world, world) != 0))
        listener = listener->next;
    return listener;
}

uint64_t net_free_port(const char *world)
{
    static uint64_t next = FIRST_FREE_PORT;
    while (net_listener(world, next) != NULL)
        next++;
    return next++;
}

static datp_status listen_on(datp_ctx ctx, uint64_t port, uint64_t user, datp_ctx *out, struct datp_message *message)
{
    struct device *device = ctx;
    struct listener *listener;
    if (device->generation != net_generation)
        return fail(message, DATP_STATUS_FORKED, "%s: opened before a fork", device->name);
    listener = calloc(1, sizeof *listener);
    if (listener == NULL)
        return fail(message, DATP_STATUS_NO_RESOURCE, "%s: listen: not enough memory", device->name);
    pthread_mutex_lock(&net_lock);
    if (port == 0)
        port = net_free_port(device->world);
    if (net_listener(device->world, port) != NULL) {
        pthread_mutex_unlock(&net_lock);
        free(listener);
        return fail(message, DATP_STATUS_IN_USE, "%s: port %llu already has a listener; choose another", device->name,
            (unsigned long long)port);
    }
    listener->device = device;
    listener->port = port;
    listener->user = user;
    listener->next = net_listeners;
    net_listeners = listener;
    pthread_mutex_unlock(&net_lock);
    *out = listener;
    return DATP_STATUS_OK;
}

static uint64_t port(datp_ctx ctx)
{
    return ((struct listener *)ctx)->port;
}

static void close_listener(datp_ctx ctx)
{
    struct listener *listener = ctx, **at = &net_listeners;
    if (listener->device->generation == net_generation) {
        pthread_mutex_lock(&net_lock);
        while (*at != NULL && *at != listener)
            at = &(*at)->next;
        if (*at != NULL)
            *at = listener->next;
        turn_away(listener->device, listener->port);
        pthread_mutex_unlock(&net_lock);
    }
    free(listener);
}

static datp_status describe(datp_ctx ctx, struct datp_message *message)
{
    struct device *device = ctx;
    say(message, "in-process, plain C, network \"%s\"", device->world);
    return DATP_STATUS_OK;
}

static void close_device(datp_ctx ctx)
{
    struct device *device = ctx, **at = &net_devices;
    if (device->generation == net_generation) {
        pthread_mutex_lock(&net_lock);
        while (*at != NULL && *at != device)
            at = &(*at)->next;
        if (*at != NULL)
            *at = device->next;
        turn_away(device, 0);
        pthread_mutex_unlock(&net_lock);
    }
    close(device->fd);
    free(device->regions);
    free(device);
}

/* What is not among the capabilities. */
static datp_status no_alloc(datp_ctx ctx, uint64_t len, struct datp_block *out, struct datp_message *message)
{
    (void)ctx, (void)len, (void)out;
    return fail(message, DATP_STATUS_NOT_SUPPORTED, "this provider does not allocate memory");
}

static datp_status no_free(datp_ctx ctx, struct datp_block block)
{
    (void)ctx, (void)block;
    return DATP_STATUS_NOT_SUPPORTED;
}

static datp_status no_srq(datp_ctx ctx, const struct datp_srq_attr *attr, datp_ctx *out, struct datp_message *message)
{
    (void)ctx, (void)attr, (void)out;
    return fail(message, DATP_STATUS_NOT_SUPPORTED, "this provider has no shared receive queues");
}

static datp_status no_window(datp_ctx ctx, uint32_t domain, uint64_t *out, struct datp_message *message)
{
    (void)ctx, (void)domain, (void)out;
    return fail(message, DATP_STATUS_NOT_SUPPORTED, "this provider has no memory windows");
}

static datp_status no_close_window(datp_ctx ctx, uint64_t window)
{
    (void)ctx, (void)window;
    return DATP_STATUS_NOT_SUPPORTED;
}

const struct datp_device_ops device_ops = {
    .size = sizeof device_ops,
    .poll_events = poll_events,
    .event_fd = event_fd,
    .attr = attr,
    .open_queue = queue_open,
    .open_channel = channel_open,
    .listen = listen_on,
    .register_ = memory_register,
    .register_dmabuf = memory_register_dmabuf,
    .deregister = memory_deregister,
    .alloc = no_alloc,
    .free = no_free,
    .reject = reject,
    .open_srq = no_srq,
    .open_window = no_window,
    .close_window = no_close_window,
    .describe = describe,
    .close = close_device,
};

const struct datp_listener_ops listener_ops = {
    .size = sizeof listener_ops,
    .port = port,
    .close = close_listener,
};
