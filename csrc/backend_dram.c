#include "backend_dram.h"

#include <inttypes.h>

#include "os.h"
#include "prefault.h"

/* Bytes of the huge pages that were asked for by their size; 0 where they were not. */
static size_t huge_page_bytes(const kvreg_memory_options *options)
{
    switch (options->huge_pages) {
    case KVREG_HUGE_PAGES_2MIB:
        return (size_t)2 << 20;
    case KVREG_HUGE_PAGES_1GIB:
        return (size_t)1 << 30;
    default:
        return 0;
    }
}

/* -- What there is ------------------------------------------------------------------------- */

static kvreg_status check_options(const char *root, const kvreg_memory_options *options,
                                  kvreg_error *error)
{
    kvreg_os_nodes nodes;
    char allowed[64];
    if ((unsigned)options->huge_pages > KVREG_HUGE_PAGES_1GIB)
        return kvreg_fail(error, KVREG_E_ARGUMENT, "huge_pages must be 0 to %d, not %u",
                          KVREG_HUGE_PAGES_1GIB, (unsigned)options->huge_pages);
    if ((unsigned)options->numa > KVREG_NUMA_INTERLEAVE)
        return kvreg_fail(error, KVREG_E_ARGUMENT, "numa must be 0 to %d, not %u",
                          KVREG_NUMA_INTERLEAVE, (unsigned)options->numa);
    if (options->numa != KVREG_NUMA_NODE)
        return KVREG_OK;
    kvreg_os_read_nodes(root, &nodes);
    if (kvreg_os_nodes_has(&nodes, options->node))
        return KVREG_OK;
    kvreg_os_nodes_text(&nodes, allowed, sizeof allowed);
    return kvreg_fail(error, KVREG_E_ARGUMENT,
                      "NUMA node %" PRIu32 " has no memory that this process may use; these nodes "
                      "have: %s",
                      options->node, allowed);
}

/* Whether ordinary memory has room for blocks and metadata. */
static kvreg_status check_ordinary(const kvreg_os_memory *memory, uint64_t data,
                                   uint64_t metadata, kvreg_error *error)
{
    if (memory->available >= data && memory->available - data >= metadata)
        return KVREG_OK;
    return kvreg_fail(error, KVREG_E_MEMORY,
                      "the tier needs %" PRIu64 " bytes of ordinary memory for blocks and %" PRIu64
                      " for metadata, and %s leaves %" PRIu64
                      "; what other tiers have not used yet is not counted, but under prefault",
                      data, metadata, memory->limit, memory->available);
}

/* Says in a text without an error what the check could not take into account, if anything. */
static kvreg_status passed(const kvreg_os_memory *memory, kvreg_error *error)
{
    if (memory->unread[0] == '\0')
        return KVREG_OK;
    return kvreg_fail(error, KVREG_OK,
                      "limits of memory may be passed over, as a file cannot be read: %s; %s leaves "
                      "%" PRIu64 " bytes",
                      memory->unread, memory->limit, memory->available);
}

static kvreg_status check_huge(const char *root, const kvreg_memory_options *options,
                               uint64_t data, kvreg_error *error)
{
    size_t page = huge_page_bytes(options);
    int node = options->numa == KVREG_NUMA_NODE ? (int)options->node : KVREG_OS_ANY_NODE;
    uint64_t needed = data / page + (data % page != 0);
    kvreg_os_memory memory;
    kvreg_os_read_huge_pages(root, page, node, &memory);
    if (memory.available / page >= needed)
        return passed(&memory, error);
    return kvreg_fail(error, KVREG_E_MEMORY,
                      "the tier needs %" PRIu64 " huge pages of %zu bytes for %" PRIu64
                      " bytes of blocks, and %s leaves %" PRIu64,
                      needed, page, data, memory.limit, memory.available / page);
}

kvreg_status kvreg_backend_dram_check(const char *root, const kvreg_backend_request *request,
                                      kvreg_error *error)
{
    const kvreg_memory_options *options = &request->options;
    uint64_t data = request->slots * request->block_bytes;
    bool huge = huge_page_bytes(options) != 0;
    kvreg_os_memory memory;
    kvreg_status status = check_options(root, options, error);
    if (status != KVREG_OK)
        return status;
    kvreg_os_read_memory(root, &memory);
    status = check_ordinary(&memory, huge ? 0 : data, request->metadata_bytes, error);
    if (status == KVREG_OK)
        status = passed(&memory, error);
    if (status != KVREG_OK)
        return status;
    if (huge)
        return check_huge(root, options, data, error);
    if (options->numa != KVREG_NUMA_NODE)
        return KVREG_OK;
    kvreg_os_read_node_memory(root, options->node, &memory);
    status = check_ordinary(&memory, data, 0, error);
    return status == KVREG_OK ? passed(&memory, error) : status;
}

static kvreg_status dram_check(const kvreg_backend_request *request, kvreg_error *error)
{
    return kvreg_backend_dram_check("", request, error);
}

/* -- Mapping ------------------------------------------------------------------------------- */

/* Maps whole pages for the slots, of the kind that was asked for. */
static kvreg_status map_slots(const kvreg_backend_request *request, kvreg_backend_memory *memory,
                              kvreg_error *error)
{
    size_t data = (size_t)(request->slots * request->block_bytes);
    size_t huge = huge_page_bytes(&request->options);
    size_t bytes = huge == 0 ? kvreg_os_page_round(data) : (data + huge - 1) / huge * huge;
    void *base = huge == 0 ? kvreg_os_map(bytes) : kvreg_os_map_huge(bytes, huge);
    if (base == NULL && huge == 0)
        return kvreg_fail(error, KVREG_E_MEMORY, "the system refused to map %zu bytes for blocks",
                          bytes);
    if (base == NULL)
        return kvreg_fail(error, KVREG_E_MEMORY,
                          "the system refused to map %zu huge pages of %zu bytes for blocks",
                          bytes / huge, huge);
    if (request->options.huge_pages == KVREG_HUGE_PAGES_AUTO)
        kvreg_os_prefer_huge_pages(base, bytes);
    if (request->options.huge_pages == KVREG_HUGE_PAGES_OFF)
        kvreg_os_avoid_huge_pages(base, bytes);
    *memory = (kvreg_backend_memory){
        .base = base,
        .stride = (size_t)request->block_bytes,
        .bytes = bytes,
    };
    return KVREG_OK;
}

/* Says which nodes the pages come from; before any is touched. */
static kvreg_status place(const kvreg_memory_options *options, const kvreg_backend_memory *memory,
                          kvreg_error *error)
{
    bool interleave = options->numa == KVREG_NUMA_INTERLEAVE;
    kvreg_os_nodes nodes = { { 0 } };
    if (options->numa == KVREG_NUMA_DEFAULT)
        return KVREG_OK;
    if (interleave)
        kvreg_os_read_nodes("", &nodes);
    else
        kvreg_os_nodes_add(&nodes, options->node);
    return kvreg_os_bind(memory->base, (size_t)memory->bytes, &nodes, interleave, error);
}

static kvreg_status dram_open(const kvreg_backend_request *request,
                              kvreg_backend_memory *memory, kvreg_error *error)
{
    kvreg_prefault *prefault = NULL;
    kvreg_status status = map_slots(request, memory, error);
    if (status != KVREG_OK)
        return status;
    status = place(&request->options, memory, error);
    if (status == KVREG_OK && request->options.prefault)
        status = kvreg_prefault_start(memory->base, (size_t)memory->bytes, &prefault, error);
    if (status != KVREG_OK)
        kvreg_os_unmap(memory->base, (size_t)memory->bytes);
    memory->context = prefault;
    return status;
}

static void dram_close(kvreg_backend_memory *memory)
{
    if (memory->context != NULL)
        kvreg_prefault_stop(memory->context);
    kvreg_os_unmap(memory->base, (size_t)memory->bytes);
}

const kvreg_backend kvreg_backend_dram = {
    .version = KVREG_BACKEND_VERSION,
    .name = "dram",
    .check = dram_check,
    .open = dram_open,
    .close = dram_close,
};
