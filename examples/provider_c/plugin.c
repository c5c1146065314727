/*
 * A provider in plain C: messages and one-sided reads and writes between the devices of one process. It has what every
 * provider must have and claims nothing more; docs/plugin-authors.md tells what the functions have to do.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "provider.h"

DATP_NOTE(PROVIDER_NAME, PROVIDER_VERSION, CAPS);

pthread_mutex_t net_lock = PTHREAD_MUTEX_INITIALIZER;
unsigned net_generation;
struct device *net_devices;
struct channel *net_channels;
struct listener *net_listeners;
struct knock *net_knocks;
const struct datp_host_ops *net_host;

static uint32_t log_level;

/*
 * In a child of fork the lock may be held by a thread that is not there, and everything belongs to the parent. The child
 * begins anew; what it inherited answers DATP_STATUS_FORKED, by its generation.
 */
static void in_child(void)
{
    pthread_mutex_init(&net_lock, NULL);
    net_generation++;
    net_devices = NULL;
    net_channels = NULL;
    net_listeners = NULL;
    net_knocks = NULL;
}

static datp_status init(const struct datp_host_ops *host, uint32_t level)
{
    static bool watching;
    net_host = host;
    log_level = level;
    if (!watching && pthread_atfork(NULL, NULL, in_child) != 0)
        return DATP_STATUS_NO_RESOURCE;
    watching = true;
    return DATP_STATUS_OK;
}

static void vsay(struct datp_message *message, const char *format, va_list arguments)
{
    char text[512];
    int written = vsnprintf(text, sizeof text, format, arguments);
    size_t len, room;
    if (message == NULL || written < 0)
        return;
    len = (size_t)written < sizeof text ? (size_t)written : sizeof text - 1;
    room = message->capacity - message->len;
    if (len > room)
        len = room;
    memcpy(message->ptr + message->len, text, len);
    message->len += len;
}

void say(struct datp_message *message, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsay(message, format, arguments);
    va_end(arguments);
}

datp_status fail(struct datp_message *message, datp_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsay(message, format, arguments);
    va_end(arguments);
    return status;
}

void log_line(uint32_t level, const char *format, ...)
{
    static const char target[] = PROVIDER_NAME;
    struct datp_str to = { (const uint8_t *)target, sizeof target - 1 }, text;
    char line[256];
    va_list arguments;
    if (level > log_level || net_host == NULL)
        return;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    text.ptr = (const uint8_t *)line;
    text.len = strlen(line);
    net_host->log(level, to, text);
}

/* Shared receive queues are not among this provider's capabilities, so that these are never called. */
static datp_status srq_post_recv(datp_ctx ctx, const struct datp_recv_request *request)
{
    (void)ctx, (void)request;
    return DATP_STATUS_NOT_SUPPORTED;
}

static datp_status srq_number(datp_ctx ctx, uint32_t number)
{
    (void)ctx, (void)number;
    return DATP_STATUS_NOT_SUPPORTED;
}

static void srq_close(datp_ctx ctx)
{
    (void)ctx;
}

static const struct datp_srq_ops srq_ops = {
    .size = sizeof srq_ops,
    .post_recv = srq_post_recv,
    .arm = srq_number,
    .resize = srq_number,
    .close = srq_close,
};

static const struct datp_provider_ops provider_ops = {
    .size = sizeof provider_ops,
    .init = init,
    .open = device_open,
};

static const struct datp_probe_ops probe_ops = {
    .size = sizeof probe_ops,
    .probe = device_probe,
};

#define TEXT(literal) { (const uint8_t *)(literal), sizeof(literal) - 1 }

static const struct datp_module module = {
    .size = sizeof module,
    .abi_major = DATP_ABI_MAJOR,
    .abi_minor = DATP_ABI_MINOR,
    .name = TEXT(PROVIDER_NAME),
    .version = TEXT(PROVIDER_VERSION),
    .description = TEXT("devices of one process, in plain C"),
    .provider = &provider_ops,
    .device = &device_ops,
    .channel = &channel_ops,
    .queue = &queue_ops,
    .srq = &srq_ops,
    .listener = &listener_ops,
    .probe = &probe_ops,
};

__attribute__((visibility("default"))) const struct datp_module *dat_plugin_c_root(void)
{
    return &module;
}
