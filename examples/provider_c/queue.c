/* Where completions are taken from. */
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "provider.h"

datp_status queue_open(datp_ctx ctx, uint32_t depth, datp_ctx *out, struct datp_message *message)
{
    struct queue *queue;
    (void)ctx;
    if (depth > MOST_DEPTH)
        return fail(message, DATP_STATUS_NO_RESOURCE, "queue of %u completions: the most is %u", depth, MOST_DEPTH);
    queue = calloc(1, sizeof *queue);
    if (queue == NULL)
        return fail(message, DATP_STATUS_NO_RESOURCE, "new queue: not enough memory");
    queue->capacity = depth > 0 ? depth : 1;
    queue->ring = calloc(queue->capacity, sizeof *queue->ring);
    queue->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (queue->ring == NULL || queue->fd < 0) {
        if (queue->fd >= 0)
            close(queue->fd);
        free(queue->ring);
        free(queue);
        return fail(message, DATP_STATUS_NO_RESOURCE, "new queue: not enough memory or descriptors");
    }
    pthread_mutex_init(&queue->lock, NULL);
    *out = queue;
    return DATP_STATUS_OK;
}

static bool grow(struct queue *queue)
{
    size_t capacity = queue->capacity * 2, at;
    struct datp_completion *ring = calloc(capacity, sizeof *ring);
    if (ring == NULL)
        return false;
    for (at = 0; at < queue->count; at++)
        ring[at] = queue->ring[(queue->first + at) % queue->capacity];
    free(queue->ring);
    queue->ring = ring;
    queue->capacity = capacity;
    queue->first = 0;
    return true;
}

/* False: no memory, and the completion is lost. The caller breaks the connection, so that its work is flushed. */
bool queue_push(struct queue *queue, const struct datp_completion *completion)
{
    const uint64_t one = 1;
    bool there;
    pthread_mutex_lock(&queue->lock);
    there = queue->count < queue->capacity || grow(queue);
    if (there) {
        queue->ring[(queue->first + queue->count) % queue->capacity] = *completion;
        queue->count++;
        if (queue->armed) {
            queue->armed = false;
            /* It can only fail when the counter is full, and then it is readable already. */
            if (write(queue->fd, &one, sizeof one) < 0) { }
        }
    }
    pthread_mutex_unlock(&queue->lock);
    return there;
}

static size_t poll_queue(datp_ctx ctx, struct datp_completion *out, size_t capacity)
{
    struct queue *queue = ctx;
    size_t count;
    pthread_mutex_lock(&queue->lock);
    for (count = 0; count < capacity && queue->count > 0; count++) {
        out[count] = queue->ring[queue->first];
        queue->first = (queue->first + 1) % queue->capacity;
        queue->count--;
    }
    pthread_mutex_unlock(&queue->lock);
    return count;
}

static uint32_t arm(datp_ctx ctx)
{
    struct queue *queue = ctx;
    uint32_t armed;
    pthread_mutex_lock(&queue->lock);
    queue->armed = queue->count == 0;
    armed = queue->armed;
    pthread_mutex_unlock(&queue->lock);
    return armed;
}

static void disarm(datp_ctx ctx)
{
    struct queue *queue = ctx;
    uint64_t count;
    pthread_mutex_lock(&queue->lock);
    queue->armed = false;
    if (read(queue->fd, &count, sizeof count) < 0) { } /* nothing to take back */
    pthread_mutex_unlock(&queue->lock);
}

static int32_t fd(datp_ctx ctx)
{
    return ((struct queue *)ctx)->fd;
}

static void close_queue(datp_ctx ctx)
{
    struct queue *queue = ctx;
    close(queue->fd);
    pthread_mutex_destroy(&queue->lock);
    free(queue->ring);
    free(queue);
}

const struct datp_queue_ops queue_ops = {
    .size = sizeof queue_ops,
    .poll = poll_queue,
    .arm = arm,
    .disarm = disarm,
    .fd = fd,
    .close = close_queue,
};
