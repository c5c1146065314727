/*
 * A plugin in C that opens nothing, with faults to choose when it is compiled: -DFAULT=n. Sound without.
 */
#include <stdlib.h>

#include "dat_plugin.h"

#ifndef FAULT
#define FAULT 0
#endif

enum { NONE, NULL_ROOT, SHORT_MODULE, OTHER_VERSION, NULL_TABLE, SHORT_TABLE, NULL_ENTRY, RESERVED, LONG_TEXT, CRASHES,
    HANGS, FAILS_INIT, OTHER_NAME, NEWER };

#if FAULT == 13
/* As a plugin of a later minor version: the module has grown. */
#undef DATP_ABI_MINOR
#define DATP_ABI_MINOR 9
#endif

DATP_NOTE("test-c", "1.2.3", DATP_CAPS_RECEIVER_WAITS | DATP_CAPS_INTER_HOST);

static datp_status init(const struct datp_host_ops *host, uint32_t level)
{
    (void)host, (void)level;
    if (FAULT == CRASHES)
        abort();
    while (FAULT == HANGS) { }
    return FAULT == FAILS_INIT ? DATP_STATUS_NO_DEVICE : DATP_STATUS_OK;
}

static datp_status open_none(const struct datp_config *config, datp_ctx *out, struct datp_message *message)
{
    (void)config, (void)out, (void)message;
    return DATP_STATUS_NO_DEVICE;
}

/* Never called: nothing opens. The host checks that every entry is there. */
static void never(void)
{
    abort();
}

static const struct datp_provider_ops provider = {
    .size = FAULT == SHORT_TABLE ? 8 : sizeof provider,
    .reserved = FAULT == RESERVED,
    .init = init,
    .open = FAULT == NULL_ENTRY ? NULL : open_none,
};

/* Tables as arrays of words: a size, and the same function in every entry. */
union table {
    struct datp_device_ops device;
    struct datp_channel_ops channel;
    struct datp_queue_ops queue;
    struct datp_srq_ops srq;
    struct datp_listener_ops listener;
    void (*entries[32])(void);
};

static union table device, channel, queue, srq, listener;
static struct {
    struct datp_module module;
    const void *later[2];
} grown;
#define module grown.module

static void fill(union table *table, uint32_t size)
{
    uint32_t at;
    for (at = 1; at < size / sizeof(void *); at++)
        table->entries[at] = never;
    table->device.size = size;
}

const struct datp_module *dat_plugin_c_root(void)
{
    static const uint8_t name[] = "test-c", other_name[] = "test-d", version[] = "1.2.3";
    fill(&device, sizeof device.device);
    fill(&channel, sizeof channel.channel);
    fill(&queue, sizeof queue.queue);
    fill(&srq, sizeof srq.srq);
    fill(&listener, sizeof listener.listener);
    module.size = FAULT == SHORT_MODULE ? 16 : FAULT == NEWER ? sizeof grown : sizeof module;
    module.abi_major = DATP_ABI_MAJOR;
    module.abi_minor = DATP_ABI_MINOR + (FAULT == OTHER_VERSION);
    module.name.ptr = FAULT == OTHER_NAME ? other_name : name;
    module.name.len = FAULT == LONG_TEXT ? (size_t)1 << 40 : sizeof name - 1;
    module.version.ptr = version;
    module.version.len = sizeof version - 1;
    module.provider = &provider;
    module.device = &device.device;
    module.channel = &channel.channel;
    module.queue = FAULT == NULL_TABLE ? NULL : &queue.queue;
    module.srq = &srq.srq;
    module.listener = &listener.listener;
    return FAULT == NULL_ROOT ? NULL : &module;
}
