/* Registered memory, and the check every access of a peer's has to pass. */
#include <stdlib.h>
#include <sys/random.h>

#include "provider.h"

#define REMOTE (DATP_ACCESS_REMOTE_READ | DATP_ACCESS_REMOTE_WRITE)

/* A key for this place: bits from the operating system above the place's number, which counts from 1. */
static bool new_key(size_t at, uint32_t *key)
{
    uint16_t secret;
    if (getrandom(&secret, sizeof secret, 0) != sizeof secret)
        return false;
    *key = (uint32_t)secret << 16 | (uint32_t)(at + 1);
    return true;
}

datp_status memory_register(datp_ctx ctx, uint64_t addr, uint64_t len, datp_access access, uint32_t domain,
    struct datp_keys *out, struct datp_message *message)
{
    struct device *device = ctx;
    struct region region = { .used = true, .addr = addr, .len = len, .access = access, .domain = domain };
    size_t at;
    if (device->generation != net_generation)
        return fail(message, DATP_STATUS_FORKED, "%s: opened before a fork", device->name);
    if (len == 0 || addr == 0 || addr + len < addr)
        return fail(message, DATP_STATUS_INVALID, "%s: no range of memory", device->name);
    pthread_mutex_lock(&net_lock);
    for (at = 0; at < device->region_count && device->regions[at].used; at++) { }
    if (at == device->region_count) {
        struct region *more;
        if (at == MOST_REGIONS || (more = realloc(device->regions, (at + 1) * sizeof *more)) == NULL) {
            pthread_mutex_unlock(&net_lock);
            return fail(message, DATP_STATUS_NO_RESOURCE, "%s: no room for another registration", device->name);
        }
        device->regions = more;
        device->regions[at].used = false;
        device->region_count++;
    }
    if (!new_key(at, &region.keys.lkey) || ((access & REMOTE) != 0 && !new_key(at, &region.keys.rkey))) {
        pthread_mutex_unlock(&net_lock);
        return fail(message, DATP_STATUS_IO, "%s: getrandom gave no key", device->name);
    }
    device->regions[at] = region;
    pthread_mutex_unlock(&net_lock);
    *out = region.keys;
    return DATP_STATUS_OK;
}

datp_status memory_register_dmabuf(datp_ctx ctx, int32_t fd, uint64_t offset, uint64_t len, uint64_t addr,
    datp_access access, uint32_t domain, struct datp_keys *out, struct datp_message *message)
{
    const struct device *device = ctx;
    (void)fd, (void)offset, (void)len, (void)addr, (void)access, (void)domain, (void)out;
    return fail(message, DATP_STATUS_NOT_SUPPORTED, "%s: no memory of other devices", device->name);
}

datp_status memory_deregister(datp_ctx ctx, struct datp_keys keys)
{
    struct device *device = ctx;
    size_t at = (keys.lkey & 0xFFFF) - 1u;
    datp_status status = DATP_STATUS_INVALID;
    if (device->generation != net_generation)
        return DATP_STATUS_FORKED;
    pthread_mutex_lock(&net_lock);
    /* Accesses are made under the lock: none is under way. */
    if (at < device->region_count && device->regions[at].used && device->regions[at].keys.lkey == keys.lkey) {
        device->regions[at].used = false;
        status = DATP_STATUS_OK;
    }
    pthread_mutex_unlock(&net_lock);
    return status;
}

bool memory_may(const struct device *device, uint32_t rkey, uint64_t addr, uint64_t len, datp_access access,
    uint32_t domain)
{
    size_t at = (rkey & 0xFFFF) - 1u;
    const struct region *region = device->regions + at;
    if (rkey == 0 || at >= device->region_count || !region->used || region->keys.rkey != rkey)
        return false;
    if (region->domain != domain || (region->access & access) != access)
        return false;
    return addr >= region->addr && addr - region->addr <= region->len && len <= region->len - (addr - region->addr);
}
