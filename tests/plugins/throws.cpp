/*
 * A plugin in C++ whose functions throw: the parameter `throws` says which, and without one none does. No exception may
 * leave a function of the plugin; `caught` shows what to do about that. Opens a device and nothing else.
 */
#include <algorithm>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>

#include "dat_plugin.h"

DATP_NOTE("test-throws", "0.0.1", 0);

namespace {

[[noreturn]] void fail(const char *where)
{
    throw std::runtime_error(std::string("thrown in ") + where);
}

/* Nothing thrown by `work` gets further than here. */
template <typename Work> datp_status guarded(datp_message *message, Work work) noexcept
{
    try {
        return work();
    } catch (const std::exception &error) {
        if (message) {
            message->len = std::min(std::strlen(error.what()), message->capacity);
            std::memcpy(message->ptr, error.what(), message->len);
        }
    } catch (...) {
    }
    return DATP_STATUS_IO;
}

struct Device {
    std::string throws;
};

bool throws(datp_ctx ctx, std::string_view where)
{
    return static_cast<const Device *>(ctx)->throws == where;
}

datp_status init(const datp_host_ops *, uint32_t)
{
#ifdef THROWS_IN_INIT
    fail("init");
#endif
    return DATP_STATUS_OK;
}

datp_status open_device(const datp_config *config, datp_ctx *out, datp_message *message)
{
    auto device = new Device;
    for (size_t at = 0; at < config->count; at++)
        device->throws.assign(reinterpret_cast<const char *>(config->params[at].value.ptr), config->params[at].value.len);
    if (throws(device, "open"))
        fail("open");
    if (throws(device, "caught")) {
        delete device;
        return guarded(message, []() -> datp_status { fail("open, and caught"); });
    }
    *out = device;
    return DATP_STATUS_OK;
}

size_t poll_events(datp_ctx ctx, datp_event *, size_t)
{
    if (throws(ctx, "poll_events"))
        fail("poll_events");
    return 0;
}

datp_status attr(datp_ctx, datp_device_attr *out)
{
    *out = datp_device_attr();
    out->address.family = 4;
    out->address.bytes[0] = 127;
    out->address.bytes[3] = 1;
    out->max_queues = out->max_channels = out->max_regions = 16;
    out->max_queue_depth = out->max_requests_per_channel = out->max_recvs_per_channel = 256;
    out->max_segments = out->max_read_segments = out->max_write_segments = 1;
    out->max_message = out->max_rdma = out->max_region = 4096;
    out->max_private_data = 64;
    return DATP_STATUS_OK;
}

datp_status open_queue(datp_ctx ctx, uint32_t, datp_ctx *, datp_message *)
{
    if (throws(ctx, "open_queue"))
        fail("open_queue");
    return DATP_STATUS_NO_RESOURCE;
}

void close_device(datp_ctx ctx)
{
    delete static_cast<const Device *>(ctx);
}

/* What this plugin does not have. Functions without arguments of their own stand for all. */
datp_status no()
{
    return DATP_STATUS_NOT_SUPPORTED;
}


template <typename Table> Table without_functions()
{
    union {
        Table table;
        datp_status (*entries[sizeof(Table) / sizeof(void (*)())])();
    } all;
    for (auto &entry : all.entries)
        entry = no;
    all.table.size = sizeof(Table);
    all.table.reserved = 0;
    return all.table;
}

template <typename Text> datp_str text(const Text &literal)
{
    return { reinterpret_cast<const uint8_t *>(literal), sizeof(literal) - 1 };
}

} // namespace

extern "C" __attribute__((visibility("default"))) const datp_module *dat_plugin_c_root(void)
{
    static const datp_provider_ops provider = { sizeof(provider), 0, init, open_device };
    static const datp_device_ops device = [] {
        auto table = without_functions<datp_device_ops>();
        table.poll_events = poll_events;
        table.event_fd = [](datp_ctx) -> int32_t { return -1; };
        table.attr = attr;
        table.open_queue = open_queue;
        table.close = close_device;
        return table;
    }();
    static const auto channel = without_functions<datp_channel_ops>();
    static const auto queue = without_functions<datp_queue_ops>();
    static const auto srq = without_functions<datp_srq_ops>();
    static const auto listener = without_functions<datp_listener_ops>();
    static const datp_module module = { sizeof(module), DATP_ABI_MAJOR, DATP_ABI_MINOR, 0, text("test-throws"),
        text("0.0.1"), text("throws"), &provider, &device, &channel, &queue, &srq, &listener, nullptr };
    return &module;
}
