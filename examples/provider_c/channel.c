/* One end of a connection, and the moving of bytes: requests are executed in order, by the thread that posts the missing part. */
#include <stdlib.h>
#include <string.h>

#include "provider.h"

/* ---- what is posted ---- */

static bool fifo_make(struct fifo *fifo, uint32_t capacity, uint32_t most_segments)
{
    fifo->capacity = capacity;
    fifo->most_segments = most_segments;
    fifo->work = calloc(capacity > 0 ? capacity : 1, sizeof *fifo->work);
    fifo->segments = calloc((size_t)capacity * most_segments + 1, sizeof *fifo->segments);
    return fifo->work != NULL && fifo->segments != NULL;
}

static void fifo_free(struct fifo *fifo)
{
    free(fifo->work);
    free(fifo->segments);
}

static void fifo_push(struct fifo *fifo, const struct work *work, const struct datp_segment *segments)
{
    uint32_t at = (fifo->first + fifo->count) % fifo->capacity;
    fifo->work[at] = *work;
    if (work->segments > 0)
        memcpy(fifo->segments + (size_t)at * fifo->most_segments, segments, work->segments * sizeof *segments);
    fifo->count++;
}

static const struct datp_segment *fifo_segments(const struct fifo *fifo)
{
    return fifo->segments + (size_t)fifo->first * fifo->most_segments;
}

static void fifo_pop(struct fifo *fifo)
{
    fifo->first = (fifo->first + 1) % fifo->capacity;
    fifo->count--;
}

/* ---- completions, events and endings, all under the network's lock ---- */

static bool complete(struct queue *queue, uint64_t user, uint64_t token, datp_completion_status status, uint64_t length,
    datp_completion_flag flags)
{
    struct datp_completion completion = {
        .token = token, .user = user, .status = status, .length = (uint32_t)length, .flags = flags,
    };
    return queue_push(queue, &completion);
}

static bool complete_request(struct channel *channel, uint64_t token, datp_completion_status status, uint64_t length)
{
    channel->silent = false;
    return complete(channel->send, channel->attr.send_user, token, status, length, 0);
}

/* Completes the last unsignalled success, so that no completion is lost. */
static void settle_channel(struct channel *channel)
{
    if (channel->silent)
        complete_request(channel, channel->silent_token, DATP_COMPLETION_STATUS_SUCCESS, channel->silent_length);
}

static void send_event(struct channel *channel, struct pending_event *place, datp_event_kind kind, const uint8_t *data,
    size_t len)
{
    memset(&place->event, 0, sizeof place->event);
    place->event.kind = kind;
    place->event.user = channel->attr.user;
    place->event.data_len = (uint32_t)len;
    if (len > 0)
        memcpy(place->event.data, data, len);
    device_send_event(channel->device, place);
}

static void stop(struct channel *channel)
{
    settle_channel(channel);
    channel->phase = STOPPED;
    channel->peer = NULL;
    channel->requests.count = 0;
    channel->recvs.count = 0;
}

void channel_fail_connect(struct channel *channel, datp_event_kind kind, const uint8_t *data, size_t len)
{
    stop(channel);
    send_event(channel, &channel->outcome, kind, data, len);
}

/* On the channel's own wish: the peer learns of it, the channel itself gets no event any more. */
static void leave(struct channel *channel)
{
    struct channel *peer = channel->peer;
    struct knock *knock;
    for (knock = net_knocks; knock != NULL; knock = knock->next)
        if (knock->from == channel)
            knock->from = NULL;
    stop(channel);
    if (peer != NULL) {
        stop(peer);
        send_event(peer, &peer->end, DATP_EVENT_KIND_DISCONNECTED, NULL, 0);
    }
    device_take_back(channel->device, &channel->outcome);
    device_take_back(channel->device, &channel->end);
}

static void break_connection(struct channel *channel)
{
    struct channel *peer = channel->peer;
    stop(channel);
    send_event(channel, &channel->end, DATP_EVENT_KIND_BROKEN, NULL, 0);
    if (peer != NULL) {
        stop(peer);
        send_event(peer, &peer->end, DATP_EVENT_KIND_BROKEN, NULL, 0);
    }
}

/* ---- moving bytes ---- */

/* Copies `len` bytes between lists of segments. Each list holds at least `len` bytes. */
static void copy(const struct datp_segment *from, const struct datp_segment *to, uint64_t len)
{
    uint64_t read = 0, written = 0;
    while (len > 0) {
        uint64_t some = from->len - read;
        if (some > to->len - written)
            some = to->len - written;
        if (some > len)
            some = len;
        memmove((void *)(uintptr_t)(to->addr + written), (const void *)(uintptr_t)(from->addr + read), some);
        len -= some;
        read += some;
        written += some;
        if (read == from->len) {
            from++;
            read = 0;
        }
        if (written == to->len) {
            to++;
            written = 0;
        }
    }
}

/* The receive a message meets completes; false: no memory for that. */
static bool complete_recv(struct channel *channel, datp_completion_status status, uint64_t length,
    datp_completion_flag flags)
{
    uint64_t token = channel->recvs.work[channel->recvs.first].token;
    fifo_pop(&channel->recvs);
    return complete(channel->recv, channel->attr.recv_user, token, status, length, flags);
}

/* Executes a message. Both sides get an error of the receive. */
static datp_completion_status message(struct channel *source, const struct work *work)
{
    struct channel *target = source->peer;
    const struct work *recv = &target->recvs.work[target->recvs.first];
    bool solicited = (work->flags & DATP_POST_FLAG_SOLICITED) != 0;
    if ((recv->flags & DATP_POST_FLAG_POISON) != 0) {
        complete_recv(target, DATP_COMPLETION_STATUS_LOCAL_ACCESS, 0, 0);
        return DATP_COMPLETION_STATUS_REMOTE_ERROR;
    }
    if (work->length > recv->length) {
        complete_recv(target, DATP_COMPLETION_STATUS_LOCAL_LENGTH, 0, 0);
        return DATP_COMPLETION_STATUS_REMOTE_ERROR;
    }
    copy(fifo_segments(&source->requests), fifo_segments(&target->recvs), work->length);
    if (!complete_recv(target, DATP_COMPLETION_STATUS_SUCCESS, work->length,
            solicited ? DATP_COMPLETION_FLAG_SOLICITED : 0))
        return DATP_COMPLETION_STATUS_REMOTE_ERROR;
    return DATP_COMPLETION_STATUS_SUCCESS;
}

/* Executes a write or read. Without bytes nothing is checked. */
static datp_completion_status one_sided(struct channel *source, const struct work *work)
{
    struct channel *target = source->peer;
    bool is_write = work->opcode == DATP_OPCODE_WRITE;
    datp_access right = is_write ? DATP_ACCESS_REMOTE_WRITE : DATP_ACCESS_REMOTE_READ;
    struct datp_segment remote = { work->remote_addr, (uint32_t)work->length, work->rkey };
    if (work->length == 0)
        return DATP_COMPLETION_STATUS_SUCCESS;
    if (!memory_may(target->device, work->rkey, work->remote_addr, work->length, right, target->attr.domain))
        return DATP_COMPLETION_STATUS_REMOTE_ACCESS;
    if (is_write)
        copy(fifo_segments(&source->requests), &remote, work->length);
    else
        copy(&remote, fifo_segments(&source->requests), work->length);
    return DATP_COMPLETION_STATUS_SUCCESS;
}

/* Executes what waits, up to the first message that finds no receive. */
static void progress(struct channel *channel)
{
    while (channel->phase == CONNECTED && channel->requests.count > 0) {
        struct work work = channel->requests.work[channel->requests.first];
        bool is_message = work.opcode == DATP_OPCODE_SEND, told = true;
        datp_completion_status status;
        if (is_message && channel->peer->recvs.count == 0)
            return;
        status = is_message ? message(channel, &work) : one_sided(channel, &work);
        fifo_pop(&channel->requests);
        if (status != DATP_COMPLETION_STATUS_SUCCESS) {
            told = complete_request(channel, work.token, status, 0);
        } else if ((work.flags & DATP_POST_FLAG_UNSIGNALLED) == 0) {
            told = complete_request(channel, work.token, status, work.length);
        } else {
            channel->silent = true;
            channel->silent_token = work.token;
            channel->silent_length = work.length;
        }
        /* Work whose completion could not be noted is flushed by the engine once the connection broke. */
        if (status != DATP_COMPLETION_STATUS_SUCCESS || !told)
            break_connection(channel);
    }
}

/* ---- the table ---- */

datp_status channel_open(datp_ctx ctx, const struct datp_channel_attr *attr, datp_ctx send, datp_ctx recv, datp_ctx srq,
    datp_ctx *out, struct datp_message *message)
{
    struct device *device = ctx;
    struct channel *channel;
    (void)srq; /* null: shared receive queues are not among the capabilities */
    if (device->generation != net_generation)
        return fail(message, DATP_STATUS_FORKED, "%s: opened before a fork", device->name);
    if (attr->max_requests > MOST_POSTS || attr->max_recvs > MOST_POSTS || attr->max_request_segments > MOST_SEGMENTS
        || attr->max_recv_segments > MOST_SEGMENTS || attr->max_message > MOST_BYTES)
        return fail(message, DATP_STATUS_INVALID, "%s: new channel: more is asked for than the attributes offer",
            device->name);
    channel = calloc(1, sizeof *channel);
    if (channel == NULL)
        return fail(message, DATP_STATUS_NO_RESOURCE, "%s: new channel: not enough memory", device->name);
    if (!fifo_make(&channel->requests, attr->max_requests, attr->max_request_segments)
        || !fifo_make(&channel->recvs, attr->max_recvs, attr->max_recv_segments)) {
        fifo_free(&channel->requests);
        fifo_free(&channel->recvs);
        free(channel);
        return fail(message, DATP_STATUS_NO_RESOURCE, "%s: new channel: not enough memory for its posts",
            device->name);
    }
    channel->device = device;
    channel->attr = *attr;
    channel->send = send;
    channel->recv = recv;
    pthread_mutex_lock(&net_lock);
    if (device->channels == MOST_CHANNELS) {
        pthread_mutex_unlock(&net_lock);
        fifo_free(&channel->requests);
        fifo_free(&channel->recvs);
        free(channel);
        return fail(message, DATP_STATUS_NO_RESOURCE, "%s: the device has %u channels; close one first", device->name,
            MOST_CHANNELS);
    }
    device->channels++;
    channel->next = net_channels;
    net_channels = channel;
    pthread_mutex_unlock(&net_lock);
    *out = channel;
    return DATP_STATUS_OK;
}

static bool is_loopback(const struct datp_sock_addr *address)
{
    static const uint8_t six[16] = { [15] = 1 };
    return (address->family == 4 && address->bytes[0] == 127)
        || (address->family == 6 && memcmp(address->bytes, six, sizeof six) == 0);
}

static bool has_address(const char *world, const struct datp_sock_addr *address)
{
    size_t len = address->family == 4 ? 4 : 16;
    const struct device *device;
    if (is_loopback(address))
        return true;
    for (device = net_devices; device != NULL; device = device->next)
        if (strcmp(device->world, world) == 0 && device->address.family == address->family
            && memcmp(device->address.bytes, address->bytes, len) == 0)
            return true;
    return false;
}

static datp_status connect_to(datp_ctx ctx, const struct datp_connect *param, struct datp_message *message)
{
    struct channel *channel = ctx;
    struct device *device = channel->device;
    const struct listener *listener;
    struct knock *knock, **end = &net_knocks;
    static uint64_t last_id;
    if (device->generation != net_generation)
        return fail(message, DATP_STATUS_FORKED, "%s: opened before a fork", device->name);
    if (param->data_len > MOST_PRIVATE_DATA)
        return fail(message, DATP_STATUS_INVALID, "%s: connect: %u bytes of private data; the most is %u",
            device->name, param->data_len, MOST_PRIVATE_DATA);
    if (param->addr.family != 4 && param->addr.family != 6)
        return fail(message, DATP_STATUS_BAD_ADDRESS, "%s: connect: the address is neither IPv4 nor IPv6",
            device->name);
    knock = calloc(1, sizeof *knock);
    if (knock == NULL)
        return fail(message, DATP_STATUS_NO_RESOURCE, "%s: connect: not enough memory", device->name);
    pthread_mutex_lock(&net_lock);
    if (channel->phase != IDLE || !has_address(device->world, &param->addr)) {
        bool used = channel->phase != IDLE;
        pthread_mutex_unlock(&net_lock);
        free(knock);
        return used ? fail(message, DATP_STATUS_INVALID, "%s: connect: the channel was used before", device->name)
                    : fail(message, DATP_STATUS_UNREACHABLE, "%s: connect: no device of network \"%s\" has this address",
                          device->name, device->world);
    }
    channel->port = net_free_port(device->world);
    channel->phase = CONNECTING;
    listener = net_listener(device->world, param->port);
    if (listener == NULL) {
        channel_fail_connect(channel, DATP_EVENT_KIND_REFUSED, NULL, 0);
        pthread_mutex_unlock(&net_lock);
        free(knock);
        return DATP_STATUS_OK;
    }
    knock->id = ++last_id;
    knock->port = param->port;
    knock->at = listener->device;
    knock->from = channel;
    knock->event.event.kind = DATP_EVENT_KIND_REQUEST;
    knock->event.event.qos = param->qos;
    knock->event.event.user = listener->user;
    knock->event.event.request = knock->id;
    knock->event.event.port = param->port;
    knock->event.event.peer_port = channel->port;
    knock->event.event.peer = device->address;
    knock->event.event.data_len = param->data_len;
    if (param->data_len > 0)
        memcpy(knock->event.event.data, param->data, param->data_len);
    while (*end != NULL)
        end = &(*end)->next;
    *end = knock;
    device_send_event(listener->device, &knock->event);
    pthread_mutex_unlock(&net_lock);
    return DATP_STATUS_OK;
}

static datp_status accept_from(datp_ctx ctx, uint64_t request, const uint8_t *data, size_t len,
    struct datp_message *message)
{
    struct channel *channel = ctx, *from;
    struct device *device = channel->device;
    struct knock **at = &net_knocks, *knock;
    if (device->generation != net_generation)
        return fail(message, DATP_STATUS_FORKED, "%s: opened before a fork", device->name);
    if (len > MOST_PRIVATE_DATA)
        return fail(message, DATP_STATUS_INVALID, "%s: accept: %zu bytes of private data; the most is %u",
            device->name, len, MOST_PRIVATE_DATA);
    pthread_mutex_lock(&net_lock);
    while (*at != NULL && ((*at)->id != request || (*at)->at != device))
        at = &(*at)->next;
    knock = *at;
    if (knock == NULL || channel->phase != IDLE) {
        pthread_mutex_unlock(&net_lock);
        return fail(message, DATP_STATUS_INVALID, "%s: accept: there is no unanswered request %llu, or the channel was "
                                                  "used before",
            device->name, (unsigned long long)request);
    }
    *at = knock->next;
    device_take_back(device, &knock->event);
    channel->port = knock->port;
    from = knock->from;
    free(knock);
    if (from == NULL) {
        channel_fail_connect(channel, DATP_EVENT_KIND_ACCEPT_FAILED, NULL, 0);
    } else {
        channel->phase = from->phase = CONNECTED;
        channel->peer = from;
        from->peer = channel;
        send_event(from, &from->outcome, DATP_EVENT_KIND_ESTABLISHED, data, len);
        send_event(channel, &channel->outcome, DATP_EVENT_KIND_ESTABLISHED, NULL, 0);
    }
    pthread_mutex_unlock(&net_lock);
    return DATP_STATUS_OK;
}

static datp_status disconnect(datp_ctx ctx)
{
    struct channel *channel = ctx;
    if (channel->device->generation != net_generation)
        return DATP_STATUS_FORKED;
    pthread_mutex_lock(&net_lock);
    leave(channel);
    pthread_mutex_unlock(&net_lock);
    return DATP_STATUS_OK;
}

/* Whether number and length of the segments match the post. */
static bool well_formed(const struct datp_segment *segments, uint32_t count, uint32_t most, uint64_t total)
{
    uint64_t sum = 0;
    uint32_t at;
    if (count > most || total > MOST_BYTES)
        return false;
    for (at = 0; at < count; at++)
        sum += segments[at].len;
    return sum == total;
}

static datp_status post(datp_ctx ctx, const struct datp_request *request)
{
    struct channel *channel = ctx;
    struct work work = {
        .token = request->token,
        .length = request->opcode == DATP_OPCODE_READ ? request->remote_len : request->total,
        .remote_addr = request->remote_addr,
        .rkey = request->rkey,
        .segments = request->nsegs,
        .opcode = request->opcode,
        .flags = request->flags,
    };
    datp_status status = DATP_STATUS_OK;
    /* Immediate values, invalidation and atomics are not among the capabilities. */
    if (request->opcode > DATP_OPCODE_READ || channel->send == NULL || work.length > request->total
        || !well_formed(request->segs, request->nsegs, channel->requests.most_segments, request->total))
        return DATP_STATUS_INVALID;
    if (channel->device->generation != net_generation)
        return DATP_STATUS_FORKED;
    pthread_mutex_lock(&net_lock);
    if (channel->phase != CONNECTED) {
        status = DATP_STATUS_NOT_CONNECTED;
    } else if (channel->requests.count == channel->requests.capacity) {
        status = DATP_STATUS_NO_RESOURCE;
    } else {
        fifo_push(&channel->requests, &work, request->segs);
        /* Later requests wait for the first, and the first waits for a receive. */
        if (channel->requests.count == 1)
            progress(channel);
    }
    pthread_mutex_unlock(&net_lock);
    return status;
}

static datp_status post_recv(datp_ctx ctx, const struct datp_recv_request *request)
{
    struct channel *channel = ctx;
    struct work work = {
        .token = request->token, .length = request->total, .segments = request->nsegs, .flags = request->flags,
    };
    datp_status status = DATP_STATUS_OK;
    if (channel->recv == NULL
        || !well_formed(request->segs, request->nsegs, channel->recvs.most_segments, request->total))
        return DATP_STATUS_INVALID;
    if (channel->device->generation != net_generation)
        return DATP_STATUS_FORKED;
    pthread_mutex_lock(&net_lock);
    if (channel->phase == STOPPED) {
        status = DATP_STATUS_NOT_CONNECTED;
    } else if (channel->recvs.count == channel->recvs.capacity) {
        status = DATP_STATUS_NO_RESOURCE;
    } else {
        fifo_push(&channel->recvs, &work, request->segs);
        if (channel->peer != NULL)
            progress(channel->peer);
    }
    pthread_mutex_unlock(&net_lock);
    return status;
}

static datp_status post_list(datp_ctx ctx, const struct datp_request *requests, size_t count, size_t *posted)
{
    for (*posted = 0; *posted < count; ++*posted) {
        datp_status status = post(ctx, &requests[*posted]);
        if (status != DATP_STATUS_OK)
            return status;
    }
    return DATP_STATUS_OK;
}

static datp_status post_recv_list(datp_ctx ctx, const struct datp_recv_request *requests, size_t count, size_t *posted)
{
    for (*posted = 0; *posted < count; ++*posted) {
        datp_status status = post_recv(ctx, &requests[*posted]);
        if (status != DATP_STATUS_OK)
            return status;
    }
    return DATP_STATUS_OK;
}

static void settle(datp_ctx ctx)
{
    struct channel *channel = ctx;
    if (channel->device->generation != net_generation)
        return;
    pthread_mutex_lock(&net_lock);
    settle_channel(channel);
    pthread_mutex_unlock(&net_lock);
}

static datp_status no_atomic(datp_ctx ctx, const struct datp_atomic_request *request)
{
    (void)ctx, (void)request;
    return DATP_STATUS_NOT_SUPPORTED;
}

static datp_status no_bind(datp_ctx ctx, const struct datp_bind_request *request, uint32_t *rkey)
{
    (void)ctx, (void)request, (void)rkey;
    return DATP_STATUS_NOT_SUPPORTED;
}

static uint64_t local_port(datp_ctx ctx)
{
    return ((struct channel *)ctx)->port;
}

static datp_status describe(datp_ctx ctx, struct datp_message *message)
{
    struct channel *channel = ctx;
    say(message, "in-process, plain C, port %llu; one copy per message", (unsigned long long)channel->port);
    return DATP_STATUS_OK;
}

static void close_channel(datp_ctx ctx)
{
    struct channel *channel = ctx, **at = &net_channels;
    if (channel->device->generation == net_generation) {
        pthread_mutex_lock(&net_lock);
        leave(channel);
        while (*at != NULL && *at != channel)
            at = &(*at)->next;
        if (*at != NULL)
            *at = channel->next;
        channel->device->channels--;
        pthread_mutex_unlock(&net_lock);
    }
    fifo_free(&channel->requests);
    fifo_free(&channel->recvs);
    free(channel);
}

const struct datp_channel_ops channel_ops = {
    .size = sizeof channel_ops,
    .post = post,
    .post_recv = post_recv,
    .post_list = post_list,
    .post_recv_list = post_recv_list,
    .settle = settle,
    .post_atomic = no_atomic,
    .bind = no_bind,
    .connect = connect_to,
    .accept = accept_from,
    .disconnect = disconnect,
    .local_port = local_port,
    .describe = describe,
    .close = close_channel,
};
