/*
 * A plugin in C that loads, opens and then lies: the parameter `lie` says how, and without one it does not. It connects
 * to nobody: a channel is established as soon as it asks, and a send completes as soon as it is posted.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <pthread.h>
#include <unistd.h>

#include "dat_plugin.h"

DATP_NOTE("test-hostile", "0.0.1", 0);

#define LIES(X) \
    X(NONE, "none") \
    /* when something is opened */ \
    X(NULL_DEVICE, "null_device") \
    X(NULL_QUEUE, "null_queue") \
    X(NULL_CHANNEL, "null_channel") \
    X(STRANGE_STATUS, "strange_status") \
    X(STRANGE_FAILURE, "strange_failure") \
    X(DEVICE_FD, "device_fd") \
    X(QUEUE_FD, "queue_fd") \
    X(PRIVATE_DATA, "private_data") \
    X(NO_SEGMENTS, "no_segments") \
    X(NULL_BLOCK, "null_block") \
    X(SHORT_BLOCK, "short_block") \
    X(LONG_MESSAGE, "long_message") \
    X(ABORTS, "aborts") \
    X(CRASHES, "crashes") \
    /* when something is posted */ \
    X(STRANGE_POST, "strange_post") \
    X(TWICE, "twice") \
    X(UNKNOWN_TOKEN, "unknown_token") \
    X(UNKNOWN_CHANNEL, "unknown_channel") \
    X(STRANGE_COMPLETION, "strange_completion") \
    X(AFTER_THE_END, "after_the_end") \
    /* when it is polled */ \
    X(OVERRUN, "overrun") \
    X(FLOOD, "flood") \
    X(FLOOD_OF_ONE, "flood_of_one") \
    X(STRANGE_EVENT, "strange_event") \
    X(UNKNOWN_EVENTS, "unknown_events") \
    X(EVENT_OVERRUN, "event_overrun") \
    X(EVENT_FLOOD, "event_flood") \
    /* when it is closed */ \
    X(THREAD, "thread")

#define AS_NUMBER(number, name) number,
#define AS_NAME(number, name) name,
enum { LIES(AS_NUMBER) LIE_COUNT };
static const char *const lies[] = { LIES(AS_NAME) };

struct device {
    int lie, fd;
    pthread_mutex_t lock;
    struct datp_event events[8];
    size_t count;
};

struct queue {
    struct device *device;
    int fd;
    bool armed;
    struct datp_completion done[256];
    size_t count;
    uint64_t last_user;
};

struct channel {
    struct device *device;
    struct queue *send;
    uint64_t user, send_user;
    bool up;
};

static void say(struct datp_message *message, const char *text)
{
    if (!message)
        return;
    message->len = strlen(text) < message->capacity ? strlen(text) : message->capacity;
    memcpy(message->ptr, text, message->len);
}

static void signal_fd(int fd)
{
    const uint64_t one = 1;
    if (write(fd, &one, sizeof one) < 0) { /* readable already */ }
}

static void clear_fd(int fd)
{
    uint64_t many;
    if (read(fd, &many, sizeof many) < 0) { /* nothing in it */ }
}

static void tell(struct device *device, datp_event_kind kind, uint64_t user)
{
    struct datp_event *event;
    if (device->count == sizeof device->events / sizeof *device->events)
        return;
    event = &device->events[device->count++];
    memset(event, 0, sizeof *event);
    event->kind = kind;
    event->user = user;
    signal_fd(device->fd);
}

static void complete(struct queue *queue, uint64_t user, uint64_t token)
{
    struct datp_completion *done;
    if (!queue || queue->count == sizeof queue->done / sizeof *queue->done)
        return;
    done = &queue->done[queue->count++];
    memset(done, 0, sizeof *done);
    done->user = user;
    done->token = token;
    if (queue->device->lie == STRANGE_COMPLETION) {
        done->status = 0x9c;
        done->length = done->flags = done->imm = 0xffffffff;
    }
    if (queue->armed)
        signal_fd(queue->fd);
    queue->armed = false;
}

/* Provider */

static datp_status init(const struct datp_host_ops *host, uint32_t level)
{
    (void)host, (void)level;
    return DATP_STATUS_OK;
}

static datp_status open_device(const struct datp_config *config, datp_ctx *out, struct datp_message *message)
{
    struct device *device;
    size_t at;
    int lie = NONE, known;
    for (at = 0; at < config->count; at++) {
        const struct datp_param *param = &config->params[at];
        for (known = 0; known < LIE_COUNT; known++)
            if (param->key.len == 3 && !memcmp(param->key.ptr, "lie", 3) && param->value.len == strlen(lies[known])
                && !memcmp(param->value.ptr, lies[known], param->value.len))
                break;
        if (known == LIE_COUNT) {
            say(message, "the one parameter is lie, and one of those in hostile.c");
            return DATP_STATUS_BAD_CONFIG;
        }
        lie = known;
    }
    if (lie == ABORTS)
        abort();
    if (lie == NULL_DEVICE)
        return DATP_STATUS_OK;
    device = calloc(1, sizeof *device);
    if (!device)
        return DATP_STATUS_NO_RESOURCE;
    device->lie = lie;
    pthread_mutex_init(&device->lock, NULL);
    device->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (lie == EVENT_OVERRUN || lie == EVENT_FLOOD)
        signal_fd(device->fd);
    *out = device;
    return DATP_STATUS_OK;
}

/* Device */

static size_t poll_events(datp_ctx ctx, struct datp_event *out, size_t capacity)
{
    struct device *device = (struct device *)ctx;
    size_t n;
    if (device->lie == EVENT_OVERRUN)
        return (size_t)1 << 40;
    if (device->lie == EVENT_FLOOD) {
        for (n = 0; n < capacity; n++)
            out[n].kind = 99;
        return capacity;
    }
    pthread_mutex_lock(&device->lock);
    clear_fd(device->fd);
    n = device->count < capacity ? device->count : capacity;
    memcpy(out, device->events, n * sizeof *out);
    device->count -= n;
    memmove(device->events, device->events + n, device->count * sizeof *out);
    if (device->count)
        signal_fd(device->fd);
    pthread_mutex_unlock(&device->lock);
    return n;
}

static int32_t event_fd(datp_ctx ctx)
{
    struct device *device = (struct device *)ctx;
    return device->lie == DEVICE_FD ? 987654 : device->fd;
}

static datp_status attr(datp_ctx ctx, struct datp_device_attr *out)
{
    struct device *device = (struct device *)ctx;
    memset(out, 0, sizeof *out);
    if (device->lie == NULL_BLOCK || device->lie == SHORT_BLOCK)
        out->caps = DATP_CAPS_ALLOC;
    out->address.family = 4;
    out->address.bytes[0] = 127;
    out->address.bytes[3] = 1;
    out->max_channels = out->max_queues = out->max_regions = 1024;
    out->max_queue_depth = 4096;
    out->max_requests_per_channel = out->max_recvs_per_channel = 128;
    out->max_segments = out->max_read_segments = out->max_write_segments = device->lie == NO_SEGMENTS ? 0 : 4;
    out->max_reads_per_channel = 16;
    out->max_message = out->max_rdma = out->max_region = 1 << 30;
    out->max_private_data = device->lie == PRIVATE_DATA ? 4096 : 64;
    out->qos = 1;
    out->alignment = 64;
    return DATP_STATUS_OK;
}

static datp_status open_queue(datp_ctx ctx, uint32_t depth, datp_ctx *out, struct datp_message *message)
{
    struct device *device = (struct device *)ctx;
    struct queue *queue;
    (void)depth;
    if (device->lie == STRANGE_STATUS)
        return 77;
    if (device->lie == STRANGE_FAILURE)
        return -7777;
    if (device->lie == LONG_MESSAGE) {
        say(message, "no");
        message->len = (size_t)1 << 40;
        return DATP_STATUS_NO_RESOURCE;
    }
    if (device->lie == CRASHES)
        *(volatile int *)NULL = 1;
    if (device->lie == NULL_QUEUE)
        return DATP_STATUS_OK;
    queue = calloc(1, sizeof *queue);
    queue->device = device;
    queue->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    *out = queue;
    return DATP_STATUS_OK;
}

static datp_status open_channel(datp_ctx ctx, const struct datp_channel_attr *wanted, datp_ctx send, datp_ctx recv,
    datp_ctx srq, datp_ctx *out, struct datp_message *message)
{
    struct device *device = (struct device *)ctx;
    struct channel *channel;
    (void)recv, (void)srq, (void)message;
    if (device->lie == NULL_CHANNEL)
        return DATP_STATUS_OK;
    channel = calloc(1, sizeof *channel);
    channel->device = device;
    channel->send = (struct queue *)send;
    channel->user = wanted->user;
    channel->send_user = wanted->send_user;
    *out = channel;
    return DATP_STATUS_OK;
}

static datp_status listen_on(datp_ctx ctx, uint64_t port, uint64_t user, datp_ctx *out, struct datp_message *message)
{
    (void)port, (void)user, (void)message;
    *out = ctx;
    return DATP_STATUS_OK;
}

static datp_status register_memory(datp_ctx ctx, uint64_t addr, uint64_t len, datp_access access, uint32_t domain,
    struct datp_keys *out, struct datp_message *message)
{
    (void)ctx, (void)addr, (void)len, (void)access, (void)domain, (void)message;
    out->lkey = out->rkey = 1;
    return DATP_STATUS_OK;
}

static datp_status register_dmabuf(datp_ctx ctx, int32_t fd, uint64_t offset, uint64_t len, uint64_t addr,
    datp_access access, uint32_t domain, struct datp_keys *out, struct datp_message *message)
{
    (void)ctx, (void)fd, (void)offset, (void)len, (void)addr, (void)access, (void)domain, (void)out, (void)message;
    return DATP_STATUS_NOT_SUPPORTED;
}

static datp_status deregister(datp_ctx ctx, struct datp_keys keys)
{
    (void)ctx, (void)keys;
    return DATP_STATUS_OK;
}

static datp_status alloc_block(datp_ctx ctx, uint64_t len, struct datp_block *out, struct datp_message *message)
{
    struct device *device = (struct device *)ctx;
    (void)message;
    out->addr = device->lie == NULL_BLOCK ? 0 : (uint64_t)(uintptr_t)aligned_alloc(4096, 4096);
    out->len = device->lie == SHORT_BLOCK ? len / 2 : len;
    return DATP_STATUS_OK;
}

static datp_status free_block(datp_ctx ctx, struct datp_block block)
{
    (void)ctx;
    free((void *)(uintptr_t)block.addr);
    return DATP_STATUS_OK;
}

static datp_status reject(datp_ctx ctx, uint64_t request, datp_reject_reason reason, const uint8_t *data, size_t len)
{
    (void)ctx, (void)request, (void)reason, (void)data, (void)len;
    return DATP_STATUS_GONE;
}

static datp_status open_srq(datp_ctx ctx, const struct datp_srq_attr *wanted, datp_ctx *out,
    struct datp_message *message)
{
    (void)ctx, (void)wanted, (void)out, (void)message;
    return DATP_STATUS_NOT_SUPPORTED;
}

static datp_status open_window(datp_ctx ctx, uint32_t domain, uint64_t *out, struct datp_message *message)
{
    (void)ctx, (void)domain, (void)out, (void)message;
    return DATP_STATUS_NOT_SUPPORTED;
}

static datp_status close_window(datp_ctx ctx, uint64_t window)
{
    (void)ctx, (void)window;
    return DATP_STATUS_NOT_SUPPORTED;
}

static datp_status describe(datp_ctx ctx, struct datp_message *message)
{
    (void)ctx;
    say(message, "lies");
    return DATP_STATUS_OK;
}

static void *linger(void *unused)
{
    while (!unused)
        pause();
    return unused;
}

static void close_device(datp_ctx ctx)
{
    struct device *device = (struct device *)ctx;
    pthread_t thread;
    if (device->lie == THREAD)
        pthread_create(&thread, NULL, linger, NULL);
    close(device->fd);
    free(device);
}

/* Channel */

static datp_status post(datp_ctx ctx, const struct datp_request *request)
{
    struct channel *channel = (struct channel *)ctx;
    struct device *device = channel->device;
    if (device->lie == STRANGE_POST)
        return -7777;
    pthread_mutex_lock(&device->lock);
    if (device->lie == UNKNOWN_CHANNEL)
        complete(channel->send, 0x1234567800000000, request->token);
    complete(channel->send, channel->send_user, request->token + (device->lie == UNKNOWN_TOKEN ? 1000 : 0));
    if (device->lie == TWICE)
        complete(channel->send, channel->send_user, request->token);
    if (device->lie == STRANGE_EVENT) {
        tell(device, DATP_EVENT_KIND_DISCONNECTED, channel->user);
        device->events[device->count - 1].data_len = 0xffffffff;
    }
    if (device->lie == UNKNOWN_EVENTS)
        tell(device, DATP_EVENT_KIND_BROKEN, 0x1234567800000000), tell(device, 99, channel->user);
    if (channel->send)
        channel->send->last_user = channel->send_user;
    pthread_mutex_unlock(&device->lock);
    return DATP_STATUS_OK;
}

static datp_status post_recv(datp_ctx ctx, const struct datp_recv_request *request)
{
    (void)ctx, (void)request;
    return DATP_STATUS_OK;
}

static datp_status post_list(datp_ctx ctx, const struct datp_request *requests, size_t count, size_t *posted)
{
    for (*posted = 0; *posted < count; ++*posted)
        post(ctx, &requests[*posted]);
    return DATP_STATUS_OK;
}

static datp_status post_recv_list(datp_ctx ctx, const struct datp_recv_request *requests, size_t count, size_t *posted)
{
    (void)ctx, (void)requests;
    *posted = count;
    return DATP_STATUS_OK;
}

static void settle(datp_ctx ctx)
{
    (void)ctx;
}

static datp_status post_atomic(datp_ctx ctx, const struct datp_atomic_request *request)
{
    (void)ctx, (void)request;
    return DATP_STATUS_NOT_SUPPORTED;
}

static datp_status bind_window(datp_ctx ctx, const struct datp_bind_request *request, uint32_t *rkey)
{
    (void)ctx, (void)request, (void)rkey;
    return DATP_STATUS_NOT_SUPPORTED;
}

static datp_status connect_to(datp_ctx ctx, const struct datp_connect *param, struct datp_message *message)
{
    struct channel *channel = (struct channel *)ctx;
    (void)param, (void)message;
    pthread_mutex_lock(&channel->device->lock);
    channel->up = true;
    tell(channel->device, DATP_EVENT_KIND_ESTABLISHED, channel->user);
    pthread_mutex_unlock(&channel->device->lock);
    return DATP_STATUS_OK;
}

static datp_status accept_request(datp_ctx ctx, uint64_t request, const uint8_t *data, size_t len,
    struct datp_message *message)
{
    (void)ctx, (void)request, (void)data, (void)len, (void)message;
    return DATP_STATUS_GONE;
}

static datp_status disconnect(datp_ctx ctx)
{
    struct channel *channel = (struct channel *)ctx;
    pthread_mutex_lock(&channel->device->lock);
    if (channel->device->lie == AFTER_THE_END && channel->up) {
        complete(channel->send, channel->send_user, 0);
        tell(channel->device, DATP_EVENT_KIND_ESTABLISHED, channel->user);
    }
    channel->up = false;
    pthread_mutex_unlock(&channel->device->lock);
    return DATP_STATUS_OK;
}

static uint64_t local_port(datp_ctx ctx)
{
    (void)ctx;
    return 1024;
}

static void close_object(datp_ctx ctx)
{
    free(ctx);
}

/* Queue */

static size_t poll_queue(datp_ctx ctx, struct datp_completion *out, size_t capacity)
{
    struct queue *queue = (struct queue *)ctx;
    size_t n;
    if (queue->device->lie == OVERRUN)
        return (size_t)1 << 40;
    pthread_mutex_lock(&queue->device->lock);
    if (queue->device->lie == FLOOD || (queue->device->lie == FLOOD_OF_ONE && queue->last_user)) {
        memset(out, 0, capacity * sizeof *out);
        for (n = 0; n < capacity; n++)
            out[n].user = queue->device->lie == FLOOD ? 0x1234567800000000 : queue->last_user;
        pthread_mutex_unlock(&queue->device->lock);
        return capacity;
    }
    n = queue->count < capacity ? queue->count : capacity;
    memcpy(out, queue->done, n * sizeof *out);
    queue->count -= n;
    memmove(queue->done, queue->done + n, queue->count * sizeof *out);
    pthread_mutex_unlock(&queue->device->lock);
    return n;
}

static uint32_t arm(datp_ctx ctx)
{
    struct queue *queue = (struct queue *)ctx;
    uint32_t armed;
    pthread_mutex_lock(&queue->device->lock);
    armed = queue->armed = !queue->count;
    pthread_mutex_unlock(&queue->device->lock);
    return armed;
}

static void disarm(datp_ctx ctx)
{
    struct queue *queue = (struct queue *)ctx;
    pthread_mutex_lock(&queue->device->lock);
    queue->armed = false;
    clear_fd(queue->fd);
    pthread_mutex_unlock(&queue->device->lock);
}

static int32_t queue_fd(datp_ctx ctx)
{
    struct queue *queue = (struct queue *)ctx;
    return queue->device->lie == QUEUE_FD ? 987654 : queue->fd;
}

static void close_queue(datp_ctx ctx)
{
    struct queue *queue = (struct queue *)ctx;
    close(queue->fd);
    free(queue);
}

/* Listener: the device itself; nothing of it is kept. */

static uint64_t listener_port(datp_ctx ctx)
{
    (void)ctx;
    return 1024;
}

static void close_listener(datp_ctx ctx)
{
    (void)ctx;
}

static datp_status srq_post(datp_ctx ctx, const struct datp_recv_request *request)
{
    (void)ctx, (void)request;
    return DATP_STATUS_NOT_SUPPORTED;
}

static datp_status srq_number(datp_ctx ctx, uint32_t number)
{
    (void)ctx, (void)number;
    return DATP_STATUS_NOT_SUPPORTED;
}

static const struct datp_provider_ops provider = { .size = sizeof provider, .init = init, .open = open_device };

static const struct datp_device_ops device_ops = {
    .size = sizeof device_ops,
    .poll_events = poll_events,
    .event_fd = event_fd,
    .attr = attr,
    .open_queue = open_queue,
    .open_channel = open_channel,
    .listen = listen_on,
    .register_ = register_memory,
    .register_dmabuf = register_dmabuf,
    .deregister = deregister,
    .alloc = alloc_block,
    .free = free_block,
    .reject = reject,
    .open_srq = open_srq,
    .open_window = open_window,
    .close_window = close_window,
    .describe = describe,
    .close = close_device,
};

static const struct datp_channel_ops channel_ops = {
    .size = sizeof channel_ops,
    .post = post,
    .post_recv = post_recv,
    .post_list = post_list,
    .post_recv_list = post_recv_list,
    .settle = settle,
    .post_atomic = post_atomic,
    .bind = bind_window,
    .connect = connect_to,
    .accept = accept_request,
    .disconnect = disconnect,
    .local_port = local_port,
    .describe = describe,
    .close = close_object,
};

static const struct datp_queue_ops queue_ops = {
    .size = sizeof queue_ops, .poll = poll_queue, .arm = arm, .disarm = disarm, .fd = queue_fd, .close = close_queue,
};

static const struct datp_listener_ops listener_ops = {
    .size = sizeof listener_ops, .port = listener_port, .close = close_listener,
};

static const struct datp_srq_ops srq_ops = {
    .size = sizeof srq_ops, .post_recv = srq_post, .arm = srq_number, .resize = srq_number, .close = close_object,
};

#define TEXT(text) { (const uint8_t *)(text), sizeof(text) - 1 }

static const struct datp_module module = {
    .size = sizeof module,
    .abi_major = DATP_ABI_MAJOR,
    .abi_minor = DATP_ABI_MINOR,
    .name = TEXT("test-hostile"),
    .version = TEXT("0.0.1"),
    .description = TEXT("lies when asked to"),
    .provider = &provider,
    .device = &device_ops,
    .channel = &channel_ops,
    .queue = &queue_ops,
    .srq = &srq_ops,
    .listener = &listener_ops,
};

const struct datp_module *dat_plugin_c_root(void)
{
    return &module;
}
