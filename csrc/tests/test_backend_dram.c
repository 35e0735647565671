#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "backend_dram.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "fake_root.h"
#include "huge_pool.h"
#include "pages.h"
#include "refuse_call.h"

static const uint64_t MIB2 = (uint64_t)2 << 20;

static const kvreg_backend *dram = &kvreg_backend_dram;

static kvreg_backend_request ask(uint64_t bytes, uint64_t metadata, kvreg_memory_options options)
{
    CHECK(bytes % 4 == 0);
    return (kvreg_backend_request){
        .slots = 4,
        .block_bytes = bytes / 4,
        .metadata_bytes = metadata,
        .options = options,
    };
}

/* -- Whether there is enough ----------------------------------------------------------------- */

static kvreg_status check(uint64_t bytes, uint64_t metadata, kvreg_memory_options options,
                          kvreg_error *error)
{
    kvreg_backend_request request = ask(bytes, metadata, options);
    error->text[0] = '\0';
    return kvreg_backend_dram_check(root, &request, error);
}

static bool tells(const kvreg_error *error, const char *what)
{
    return strstr(error->text, what) != NULL;
}

static void blocks_and_metadata_have_to_fit_ordinary_memory(void)
{
    const kvreg_memory_options any = { 0 }, off = { .huge_pages = KVREG_HUGE_PAGES_OFF };
    kvreg_error error;
    new_root();
    put("/proc/meminfo", "MemAvailable:    1000 kB\n");
    CHECK(check(1000000, 24000, any, &error) == KVREG_OK);
    CHECK(check(1000000, 24001, any, &error) == KVREG_E_MEMORY);
    CHECK(tells(&error, "1000000") && tells(&error, "24001") && tells(&error, "1024000"));
    CHECK(tells(&error, "the machine's available memory"));
    CHECK(check(1024004, 0, off, &error) == KVREG_E_MEMORY);
    put("/proc/self/cgroup", "0::/a\n");
    put("/sys/fs/cgroup/a/memory.max", "900000\n");
    CHECK(check(1000000, 0, any, &error) == KVREG_E_MEMORY);
    CHECK(tells(&error, "memory.max of 900000"));
    remove_root();
}

static void blocks_on_one_node_have_to_fit_its_memory(void)
{
    const kvreg_memory_options on_1 = { .numa = KVREG_NUMA_NODE, .node = 1 };
    const kvreg_memory_options on_all = { .numa = KVREG_NUMA_INTERLEAVE };
    kvreg_error error;
    new_root();
    put("/proc/meminfo", "MemAvailable:    1000 kB\n");
    put("/sys/devices/system/node/has_memory", "0-1\n");
    put("/sys/devices/system/node/node1/meminfo", "Node 1 MemFree: 100 kB\n");
    CHECK(check(102400, 900000, on_1, &error) == KVREG_OK);
    CHECK(check(102404, 0, on_1, &error) == KVREG_E_MEMORY);
    CHECK(tells(&error, "102404") && tells(&error, "node 1") && tells(&error, "102400"));
    CHECK(check(102404, 0, on_all, &error) == KVREG_OK);
    CHECK(check(102400, 1000000, on_1, &error) == KVREG_E_MEMORY);
    remove_root();
}

static void blocks_on_huge_pages_have_to_fit_the_free_ones(void)
{
    const kvreg_memory_options huge = { .huge_pages = KVREG_HUGE_PAGES_2MIB };
    const kvreg_memory_options huger = { .huge_pages = KVREG_HUGE_PAGES_1GIB };
    kvreg_error error;
    new_root();
    put("/proc/meminfo", "MemAvailable:    1000 kB\n");
    put("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "3\n");
    put("/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages", "0\n");
    CHECK(check(3 * MIB2, 1024000, huge, &error) == KVREG_OK);
    CHECK(check(3 * MIB2 + 4, 0, huge, &error) == KVREG_E_MEMORY);
    CHECK(tells(&error, "needs 4 huge pages of 2097152 bytes") && tells(&error, "6291460"));
    CHECK(tells(&error, "pool of free 2MiB huge pages leaves 3"));
    CHECK(check(4, 0, huger, &error) == KVREG_E_MEMORY);
    CHECK(tells(&error, "needs 1 huge pages of 1073741824") && tells(&error, "leaves 0"));
    CHECK(check(MIB2, 1024001, huge, &error) == KVREG_E_MEMORY);
    CHECK(tells(&error, "1024001 for metadata") && tells(&error, "1024000"));
    remove_root();
}

static void blocks_on_huge_pages_of_a_node_have_to_fit_its_free_ones(void)
{
    const kvreg_memory_options on_1 = {
        .huge_pages = KVREG_HUGE_PAGES_2MIB, .numa = KVREG_NUMA_NODE, .node = 1,
    };
    kvreg_error error;
    new_root();
    put("/proc/meminfo", "MemAvailable:    1000 kB\n");
    put("/sys/devices/system/node/has_memory", "0-1\n");
    put("/sys/devices/system/node/node1/meminfo", "Node 1 MemFree: 0 kB\n");
    put("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "9\n");
    put("/sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages", "2\n");
    CHECK(check(2 * MIB2, 0, on_1, &error) == KVREG_OK);
    CHECK(check(2 * MIB2 + 4, 0, on_1, &error) == KVREG_E_MEMORY);
    CHECK(tells(&error, "node 1's pool of free 2MiB huge pages leaves 2"));
    remove_root();
}

static void a_node_that_cannot_be_used_is_refused_with_those_that_can(void)
{
    const kvreg_memory_options on_4 = { .numa = KVREG_NUMA_NODE, .node = 4 };
    const kvreg_memory_options on_5 = { .numa = KVREG_NUMA_NODE, .node = 5 };
    const kvreg_memory_options far = { .numa = KVREG_NUMA_NODE, .node = UINT32_MAX };
    kvreg_error error;
    new_root();
    put("/sys/devices/system/node/has_memory", "0-3,5\n");
    put("/proc/self/status", "Mems_allowed_list:\t1-4\n");
    CHECK(check(4, 0, on_4, &error) == KVREG_E_ARGUMENT);
    CHECK(tells(&error, "node 4 ") && tells(&error, ": 1-3"));
    CHECK(check(4, 0, on_5, &error) == KVREG_E_ARGUMENT && tells(&error, "node 5 "));
    CHECK(check(4, 0, far, &error) == KVREG_E_ARGUMENT && tells(&error, "4294967295"));
    remove_root();
}

static void an_option_of_no_meaning_is_refused(void)
{
    const kvreg_memory_options pages = { .huge_pages = (kvreg_huge_pages)4 };
    const kvreg_memory_options nodes = { .numa = (kvreg_numa)3 };
    kvreg_error error;
    new_root();
    CHECK(check(4, 0, pages, &error) == KVREG_E_ARGUMENT && tells(&error, "0 to 3, not 4"));
    CHECK(check(4, 0, nodes, &error) == KVREG_E_ARGUMENT && tells(&error, "0 to 2, not 3"));
    remove_root();
}

/* -- What is mapped -------------------------------------------------------------------------- */

/* Whether the mapping at `address` carries a flag of smaps, such as "hg". */
static bool has_flag(void *address, const char *flag)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    unsigned long long start, end;
    char line[4096];
    bool inside = false, found = false;
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "%llx-%llx ", &start, &end) == 2)
            inside = (uintptr_t)address >= start && (uintptr_t)address < end;
        if (inside && strncmp(line, "VmFlags:", 8) == 0)
            found = strstr(line, flag) != NULL;
    }
    fclose(file);
    return found;
}

static bool has_transparent_huge_pages(void)
{
    return !emulated() && access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) == 0;
}

static void pages_are_of_the_kind_that_was_asked_for(void)
{
    static const char *const flags[] = { " hg", " nh" };
    kvreg_error error;
    for (int kind = KVREG_HUGE_PAGES_AUTO; kind <= KVREG_HUGE_PAGES_OFF; kind++) {
        kvreg_backend_request request =
            ask(100004, 0, (kvreg_memory_options){ .huge_pages = (kvreg_huge_pages)kind });
        kvreg_backend_memory memory;
        CHECK(dram->check(&request, &error) == KVREG_OK);
        CHECK(dram->open(&request, &memory, &error) == KVREG_OK);
        CHECK(memory.bytes == kvreg_os_page_round(100004) && memory.stride == 25001);
        CHECK((uintptr_t)memory.base % kvreg_os_page_round(1) == 0);
        memset(memory.base, 1, memory.bytes);
        CHECK(!has_transparent_huge_pages() || has_flag(memory.base, flags[kind]));
        CHECK(!has_flag(memory.base, flags[!kind]));
        dram->close(&memory);
    }
}

/* An emulator or a sandbox may have no such call; then the error says so. */
static void blocks_lie_on_the_nodes_that_were_asked_for(void)
{
    kvreg_os_nodes all, one = { { 0 } };
    uint32_t node = 0;
    kvreg_os_read_nodes("", &all);
    while (!kvreg_os_nodes_has(&all, node))
        node++;
    kvreg_os_nodes_add(&one, node);
    for (int numa = KVREG_NUMA_DEFAULT; numa <= KVREG_NUMA_INTERLEAVE; numa++) {
        kvreg_backend_request request = ask(
            MIB2, 0, (kvreg_memory_options){ .numa = (kvreg_numa)numa, .node = node });
        kvreg_backend_memory memory;
        kvreg_error error;
        CHECK(dram->check(&request, &error) == KVREG_OK);
        if (dram->open(&request, &memory, &error) != KVREG_OK) {
            CHECK(error.status == KVREG_E_SYSTEM && numa != KVREG_NUMA_DEFAULT);
            CHECK(tells(&error, strerror(ENOSYS)) || tells(&error, strerror(EPERM)));
            continue;
        }
        CHECK(numa != KVREG_NUMA_NODE || placed(memory.base, MPOL_BIND, &one));
        CHECK(numa != KVREG_NUMA_INTERLEAVE || placed(memory.base, MPOL_INTERLEAVE, &all));
        memset(memory.base, 1, memory.bytes);
        dram->close(&memory);
    }
}

static void huge_pages_are_taken_whole_and_given_back(void)
{
    const kvreg_memory_options huge = { .huge_pages = KVREG_HUGE_PAGES_2MIB };
    bool grown = !emulated() && grow_pool(3);
    long left = read_pool("free_hugepages") - read_pool("resv_hugepages");
    kvreg_backend_request fitting = ask(2 * MIB2 + 4, 0, huge);
    kvreg_backend_request beyond = ask((uint64_t)(left + 1) * MIB2, 0, huge);
    kvreg_backend_memory memory;
    kvreg_error error;
    CHECK(dram->check(&beyond, &error) == KVREG_E_MEMORY);
    CHECK(dram->open(&beyond, &memory, &error) == KVREG_E_MEMORY && tells(&error, "refused"));
    if (grown) {
        CHECK(dram->check(&fitting, &error) == KVREG_OK);
        CHECK(dram->open(&fitting, &memory, &error) == KVREG_OK);
        CHECK(memory.bytes == 3 * MIB2 && memory.stride == fitting.block_bytes);
        memset(memory.base, 1, memory.bytes);
        CHECK(read_pool("free_hugepages") == left - 3);
        dram->close(&memory);
    }
    CHECK(read_pool("free_hugepages") - read_pool("resv_hugepages") == left);
    shrink_pool();
}

static void huge_pages_come_in_the_background(void)
{
    kvreg_backend_request request = ask(3 * MIB2, 0, (kvreg_memory_options){
        .huge_pages = KVREG_HUGE_PAGES_2MIB,
        .numa = KVREG_NUMA_INTERLEAVE,
        .prefault = true,
    });
    kvreg_backend_memory memory;
    kvreg_error error;
    if (emulated() || !grow_pool(3))
        return;
    long free_pages = read_pool("free_hugepages");
    CHECK(dram->open(&request, &memory, &error) == KVREG_OK);
    while (read_pool("free_hugepages") != free_pages - 3)
        sched_yield();
    dram->close(&memory);
    CHECK(read_pool("free_hugepages") == free_pages);
    shrink_pool();
}

static void memory_comes_in_the_background_where_it_was_asked_to(void)
{
    kvreg_backend_request request = ask(64 * MIB2, 0, (kvreg_memory_options){ .prefault = true });
    kvreg_backend_memory memory;
    kvreg_error error;
    CHECK(dram->open(&request, &memory, &error) == KVREG_OK);
    while (!emulated() &&
           resident_pages(memory.base, memory.bytes) < memory.bytes / kvreg_os_page_round(1))
        sched_yield();
    dram->close(&memory);
    request.options.prefault = false;
    CHECK(dram->open(&request, &memory, &error) == KVREG_OK);
    CHECK(memory.context == NULL && resident_pages(memory.base, memory.bytes) == 0);
    dram->close(&memory);
}

/* -- Failures -------------------------------------------------------------------------------- */

/* Pages of address space that this process has. */
static long mapped_pages(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    long pages = 0;
    CHECK(file != NULL && fscanf(file, "%ld", &pages) == 1);
    fclose(file);
    return pages;
}

/* Opens 2 GiB, which fails, and leaves none of it mapped; ends the child that it runs in. */
static void fail_to_open(kvreg_memory_options options, const char *reason)
{
    kvreg_backend_request request = ask(1024 * MIB2, 0, options);
    kvreg_backend_memory memory;
    kvreg_error error;
    long before = mapped_pages();
    CHECK(dram->open(&request, &memory, &error) == KVREG_E_SYSTEM);
    CHECK(tells(&error, reason));
    CHECK((uint64_t)(mapped_pages() - before) * kvreg_os_page_round(1) < 512 * MIB2);
    _exit(0);
}

static void await_success(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void nothing_stays_mapped_where_nodes_are_refused(void)
{
    pid_t child = fork();
    if (child == 0) {
        if (!refuse_call(SYS_mbind, EPERM))
            _exit(!emulated());
        fail_to_open((kvreg_memory_options){ .numa = KVREG_NUMA_INTERLEAVE }, strerror(EPERM));
    }
    await_success(child);
}

static void nothing_stays_mapped_where_no_thread_starts(void)
{
    pid_t child = fork();
    if (child == 0) {
        /* The second is how older C libraries start one. */
        if (!refuse_call(SYS_clone3, EAGAIN) || !refuse_call(SYS_clone, EAGAIN))
            _exit(!emulated());
        fail_to_open((kvreg_memory_options){ .prefault = true }, "kvreg-prefault");
    }
    await_success(child);
}

int main(void)
{
    RUN(blocks_and_metadata_have_to_fit_ordinary_memory);
    RUN(blocks_on_one_node_have_to_fit_its_memory);
    RUN(blocks_on_huge_pages_have_to_fit_the_free_ones);
    RUN(blocks_on_huge_pages_of_a_node_have_to_fit_its_free_ones);
    RUN(a_node_that_cannot_be_used_is_refused_with_those_that_can);
    RUN(an_option_of_no_meaning_is_refused);
    RUN(pages_are_of_the_kind_that_was_asked_for);
    RUN(huge_pages_are_taken_whole_and_given_back);
    RUN(blocks_lie_on_the_nodes_that_were_asked_for);
    RUN(huge_pages_come_in_the_background);
    RUN(memory_comes_in_the_background_where_it_was_asked_to);
    RUN(nothing_stays_mapped_where_nodes_are_refused);
    RUN(nothing_stays_mapped_where_no_thread_starts);
    return check_end();
}
