// One-sided: a C++ program writes into memory of another endpoint and reads it back, with no help of the other side.
// Both endpoints are in this process, so that it runs alone.
//
//   put shm0
//
// Build: c++ -std=c++17 put.cpp -o put $(pkg-config --cflags --libs dat2)
#include <netinet/in.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <dat2/udat.h>

namespace {

constexpr DAT_TIMEOUT patience = 10000000; // microseconds

void must(const char *what, DAT_RETURN result)
{
    if (result == DAT_SUCCESS) return;
    const char *major = "?", *minor = "?";
    dat_strerror(result, &major, &minor);
    throw std::runtime_error(std::string(what) + ": " + major + " " + minor);
}

// An open interface adapter; everything made from it ends with it.
class Adapter {
public:
    explicit Adapter(std::string name)
    {
        DAT_EVD_HANDLE async = DAT_HANDLE_NULL;
        must("dat_ia_open", dat_ia_open(name.data(), 8, &async, &ia));
        must("dat_pz_create", dat_pz_create(ia, &pz));
    }
    Adapter(const Adapter &) = delete;
    Adapter &operator=(const Adapter &) = delete;
    ~Adapter() { dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG); }

    DAT_IA_HANDLE ia = DAT_HANDLE_NULL;
    DAT_PZ_HANDLE pz = DAT_HANDLE_NULL;
};

// An endpoint with a dispatcher for all its events, and memory that its peer may write and read.
class End {
public:
    End(const Adapter &adapter, std::size_t bytes) : memory(bytes)
    {
        must("dat_evd_create", dat_evd_create(adapter.ia, 64, DAT_HANDLE_NULL, DAT_EVD_FLAGS(0x70), &events));
        DAT_REGION_DESCRIPTION region;
        region.for_va = memory.data();
        DAT_LMR_HANDLE lmr;
        must("dat_lmr_create", dat_lmr_create(adapter.ia, DAT_MEM_TYPE_VIRTUAL, region, bytes, adapter.pz,
                                              DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA, &lmr, &local_key, &remote_key,
                                              nullptr, nullptr));
        DAT_EP_ATTR attr{};
        attr.service_type = DAT_SERVICE_TYPE_RC;
        attr.max_recv_dtos = attr.max_request_dtos = 8;
        attr.max_recv_iov = attr.max_request_iov = 1;
        attr.max_rdma_read_in = attr.max_rdma_read_out = 1;
        must("dat_ep_create", dat_ep_create(adapter.ia, adapter.pz, events, events, events, &attr, &ep));
    }

    DAT_EVENT expect(DAT_EVENT_NUMBER number) const
    {
        DAT_EVENT event;
        DAT_COUNT more;
        must("dat_evd_wait", dat_evd_wait(events, patience, 1, &event, &more));
        if (event.event_number != number) throw std::runtime_error("event " + std::to_string(event.event_number));
        return event;
    }

    void expect_completion() const
    {
        const DAT_EVENT event = expect(DAT_DTO_COMPLETION_EVENT);
        if (event.event_data.dto_completion_event_data.status != DAT_DTO_SUCCESS)
            throw std::runtime_error("a transfer failed");
    }

    DAT_LMR_TRIPLET local() const { return {address(), DAT_SEG_LENGTH(memory.size()), local_key}; }
    DAT_RMR_TRIPLET remote() const { return {address(), DAT_SEG_LENGTH(memory.size()), remote_key}; }

    std::vector<char> memory;
    DAT_EVD_HANDLE events = DAT_HANDLE_NULL;
    DAT_EP_HANDLE ep = DAT_HANDLE_NULL;

private:
    DAT_VADDR address() const { return reinterpret_cast<std::uintptr_t>(memory.data()); }
    DAT_LMR_CONTEXT local_key = 0;
    DAT_RMR_CONTEXT remote_key = 0;
};

void connect(const Adapter &adapter, End &active, End &passive)
{
    DAT_IA_ATTR attr;
    must("dat_ia_query", dat_ia_query(adapter.ia, nullptr, DAT_IA_FIELD_IA_ADDRESS_PTR, &attr, 0, nullptr));
    DAT_CONN_QUAL port;
    DAT_PSP_HANDLE psp;
    must("dat_psp_create_any",
         dat_psp_create_any(adapter.ia, &port, passive.events, DAT_PSP_CONSUMER_FLAG, &psp));
    must("dat_ep_connect", dat_ep_connect(active.ep, attr.ia_address_ptr, port, patience, 0, nullptr,
                                          DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG));
    const DAT_EVENT request = passive.expect(DAT_CONNECTION_REQUEST_EVENT);
    must("dat_cr_accept",
         dat_cr_accept(request.event_data.cr_arrival_event_data.cr_handle, passive.ep, 0, nullptr));
    passive.expect(DAT_CONNECTION_EVENT_ESTABLISHED);
    active.expect(DAT_CONNECTION_EVENT_ESTABLISHED);
    must("dat_psp_free", dat_psp_free(psp));
}

} // namespace

int main(int argc, char **argv)
try {
    const std::string name = argc > 1 ? argv[1] : "shm0";
    constexpr std::size_t bytes = 1 << 20;
    const Adapter adapter(name);
    End active(adapter, bytes), passive(adapter, bytes);
    connect(adapter, active, passive);

    for (std::size_t i = 0; i < bytes; i++) active.memory[i] = char(i * 31);
    const std::vector<char> original = active.memory;
    DAT_LMR_TRIPLET here = active.local();
    const DAT_RMR_TRIPLET there = passive.remote();
    DAT_DTO_COOKIE cookie{};
    must("dat_ep_post_rdma_write",
         dat_ep_post_rdma_write(active.ep, 1, &here, cookie, &there, DAT_COMPLETION_DEFAULT_FLAG));
    active.expect_completion();
    if (passive.memory != original) throw std::runtime_error("what was written is not what arrived");

    std::memset(active.memory.data(), 0, bytes);
    must("dat_ep_post_rdma_read",
         dat_ep_post_rdma_read(active.ep, 1, &here, cookie, &there, DAT_COMPLETION_DEFAULT_FLAG));
    active.expect_completion();
    if (active.memory != original) throw std::runtime_error("what was read is not what was written");
    std::printf("%zu bytes written and read back through %s\n", bytes, name.c_str());
} catch (const std::exception &error) {
    std::fprintf(stderr, "put: %s\n", error.what());
    return 1;
}
