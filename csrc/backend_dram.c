#include "backend_dram.h"

#include "os.h"

static kvreg_status dram_check(const kvreg_backend_request *request, kvreg_error *error)
{
    uint64_t data = request->slots * request->block_bytes;
    kvreg_os_memory memory;
    kvreg_os_read_memory("", &memory);
    if (memory.available >= data && memory.available - data >= request->metadata_bytes)
        return KVREG_OK;
    return kvreg_fail(error, KVREG_E_MEMORY,
                      "the tier needs %llu bytes for blocks and %llu for metadata, and %s leaves "
                      "%llu",
                      (unsigned long long)data, (unsigned long long)request->metadata_bytes,
                      memory.limit, (unsigned long long)memory.available);
}

static kvreg_status dram_open(const kvreg_backend_request *request,
                              kvreg_backend_memory *memory, kvreg_error *error)
{
    size_t bytes = (size_t)(request->slots * request->block_bytes);
    void *base = kvreg_os_map(bytes);
    if (base == NULL)
        return kvreg_fail(error, KVREG_E_MEMORY, "the system refused to map %zu bytes for blocks",
                          bytes);
    kvreg_os_prefer_huge_pages(base, bytes);
    *memory = (kvreg_backend_memory){
        .base = base,
        .stride = (size_t)request->block_bytes,
        .bytes = kvreg_os_page_round(bytes),
    };
    return KVREG_OK;
}

static void dram_close(kvreg_backend_memory *memory)
{
    kvreg_os_unmap(memory->base, (size_t)memory->bytes);
}

const kvreg_backend kvreg_backend_dram = {
    .version = KVREG_BACKEND_VERSION,
    .name = "dram",
    .check = dram_check,
    .open = dram_open,
    .close = dram_close,
};
