#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "os.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_root.h"
#include "huge_pool.h"
#include "pages.h"
#include "refuse_call.h"

/* -- Limits ---------------------------------------------------------------------------------- */

static kvreg_os_memory read_memory(void)
{
    kvreg_os_memory memory;
    kvreg_os_read_memory(root, &memory);
    return memory;
}

static void memory_is_the_machines_where_no_cgroup_limits_it(void)
{
    new_root();
    put("/proc/meminfo", "MemTotal:  9 kB\nMemFree:  5 kB\nMemAvailable:    1000 kB\n");
    put("/proc/self/cgroup", "0::/a\n");
    put("/sys/fs/cgroup/a/memory.max", "max\n");
    kvreg_os_memory memory = read_memory();
    CHECK(memory.available == 1000 * 1024);
    CHECK(strstr(memory.limit, "machine") != NULL);
    remove_root();
}

static void memory_is_bounded_by_a_v2_cgroup_above(void)
{
    new_root();
    put("/proc/meminfo", "MemAvailable:    1000 kB\n");
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b/memory.max", "900000\n");
    put("/sys/fs/cgroup/a/b/memory.current", "100000\n");
    put("/sys/fs/cgroup/a/memory.max", "500000\n");
    put("/sys/fs/cgroup/a/memory.current", "200000\n");
    put("/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 50000\n");
    kvreg_os_memory memory = read_memory();
    CHECK(memory.available == 500000 - (200000 - 50000));
    CHECK(strstr(memory.limit, "memory.max of 500000") != NULL);
    remove_root();
}

static void memory_is_bounded_by_a_v1_cgroup(void)
{
    new_root();
    put("/proc/meminfo", "MemAvailable:    1000 kB\n");
    put("/proc/self/cgroup", "9:cpu,cpuacct:/x\n4:hugetlb,memory:/a\n0::/\n");
    put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000\n");
    put("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "2000\n");
    kvreg_os_memory memory = read_memory();
    CHECK(memory.available == 0);
    CHECK(strstr(memory.limit, "memory.limit_in_bytes of 1000") != NULL);
    remove_root();
}

static void memory_is_what_is_free_where_nothing_can_be_read(void)
{
    new_root();
    kvreg_os_memory memory = read_memory(), real;
    remove_root();
    kvreg_os_read_memory("", &real);
    CHECK(memory.available > 0 && memory.available < 2 * real.available);
    CHECK(strstr(memory.limit, "free memory") != NULL);
    CHECK(strstr(memory.unread, "/proc/meminfo: No such file") == memory.unread);
    CHECK(real.unread[0] == '\0');
}

/* A folder in place of a file: it opens, and cannot be read. */
static void a_limit_that_cannot_be_read_is_told(void)
{
    new_root();
    put("/proc/meminfo", "MemAvailable:    1000 kB\n");
    CHECK(read_memory().unread[0] == '\0');
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/memory.max", "500000\n");
    CHECK(read_memory().unread[0] == '\0');
    put("/sys/fs/cgroup/a/b/memory.max/file", "");
    kvreg_os_memory memory = read_memory();
    CHECK(memory.available == 500000);
    CHECK(strcmp(memory.unread, "/sys/fs/cgroup/a/b/memory.max: Is a directory") == 0);
    remove_root();
}

static void memory_of_a_node_is_what_is_free_or_holds_files(void)
{
    kvreg_os_memory memory;
    new_root();
    put("/sys/devices/system/node/node1/meminfo",
        "Node 1 MemTotal:  9000 kB\nNode 1 MemFree:   500 kB\nNode 1 Active(anon): 7 kB\n"
        "Node 1 Active(file):   30 kB\nNode 1 Inactive(file):  20 kB\n");
    kvreg_os_read_node_memory(root, 1, &memory);
    CHECK(memory.available == 550 * 1024 && strstr(memory.limit, "node 1") != NULL);
    kvreg_os_read_node_memory(root, 0, &memory);
    CHECK(memory.available == UINT64_MAX);
    remove_root();
}

/* -- Huge pages ------------------------------------------------------------------------------ */

#define POOL_OF_2MIB "/sys/kernel/mm/hugepages/hugepages-2048kB"
#define NODE_POOL "/hugepages/hugepages-2048kB/free_hugepages"

static const size_t MIB2 = (size_t)2 << 20, GIB1 = (size_t)1 << 30;

static kvreg_os_memory read_huge(size_t page_bytes, int node)
{
    kvreg_os_memory memory;
    kvreg_os_read_huge_pages(root, page_bytes, node, &memory);
    return memory;
}

static void huge_pages_are_the_free_ones_that_no_mapping_was_promised(void)
{
    new_root();
    put(POOL_OF_2MIB "/nr_hugepages", "100\n");
    put(POOL_OF_2MIB "/free_hugepages", "10\n");
    put(POOL_OF_2MIB "/resv_hugepages", "3\n");
    put("/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages", "2\n");
    CHECK(read_huge(MIB2, KVREG_OS_ANY_NODE).available == 7 * MIB2);
    CHECK(strstr(read_huge(MIB2, KVREG_OS_ANY_NODE).limit, "2MiB") != NULL);
    CHECK(read_huge(GIB1, KVREG_OS_ANY_NODE).available == 2 * GIB1);
    CHECK(strstr(read_huge(GIB1, KVREG_OS_ANY_NODE).limit, "1GiB") != NULL);
    remove_root();
}

static void huge_pages_of_a_node_are_its_free_ones(void)
{
    new_root();
    put(POOL_OF_2MIB "/free_hugepages", "10\n");
    put(POOL_OF_2MIB "/resv_hugepages", "4\n");
    put("/sys/devices/system/node/node0" NODE_POOL, "8\n");
    put("/sys/devices/system/node/node1" NODE_POOL, "2\n");
    CHECK(read_huge(MIB2, 1).available == 2 * MIB2);
    CHECK(strstr(read_huge(MIB2, 1).limit, "node 1") != NULL);
    /* Of node 0's at least two are promised: the other node has only two to give. */
    CHECK(read_huge(MIB2, 0).available == 6 * MIB2);
    CHECK(strstr(read_huge(MIB2, 0).limit, "machine") != NULL);
    CHECK(read_huge(MIB2, 2).available == 0);
    remove_root();
}

static void huge_pages_are_bounded_by_a_cgroup_of_either_version(void)
{
    new_root();
    put(POOL_OF_2MIB "/free_hugepages", "10\n");
    put("/proc/self/cgroup", "3:hugetlb:/x\n0::/a/b\n");
    put("/sys/fs/cgroup/a/b/hugetlb.2MB.max", "max\n");
    put("/sys/fs/cgroup/a/hugetlb.2MB.max", "10485760\n");
    put("/sys/fs/cgroup/a/hugetlb.2MB.current", "2097152\n");
    CHECK(read_huge(MIB2, KVREG_OS_ANY_NODE).available == 4 * MIB2);
    CHECK(strstr(read_huge(MIB2, KVREG_OS_ANY_NODE).limit, "hugetlb.2MB.max of 10485760"));
    put("/sys/fs/cgroup/a/b/hugetlb.2MB.rsvd.max", "6291456\n");
    CHECK(read_huge(MIB2, KVREG_OS_ANY_NODE).available == 3 * MIB2);
    put("/sys/fs/cgroup/hugetlb/x/hugetlb.2MB.limit_in_bytes", "2097152\n");
    put("/sys/fs/cgroup/hugetlb/x/hugetlb.2MB.usage_in_bytes", "0\n");
    CHECK(read_huge(MIB2, KVREG_OS_ANY_NODE).available == MIB2);
    put("/sys/fs/cgroup/hugetlb/x/hugetlb.2MB.rsvd.limit_in_bytes", "0\n");
    CHECK(read_huge(MIB2, KVREG_OS_ANY_NODE).available == 0);
    remove_root();
}

static void a_kernel_without_that_size_has_no_huge_pages(void)
{
    new_root();
    put(POOL_OF_2MIB "/free_hugepages", "10\n");
    CHECK(read_huge(GIB1, KVREG_OS_ANY_NODE).available == 0);
    CHECK(strstr(read_huge(GIB1, KVREG_OS_ANY_NODE).limit, "without") != NULL);
    remove_root();
}

/* The kernel takes the pages out of the pool's count when they are mapped, or maps nothing. */
static void a_mapping_of_huge_pages_holds_as_many(void)
{
    bool grown = !emulated() && grow_pool(2);
    long left = read_pool("free_hugepages") - read_pool("resv_hugepages");
    uint8_t *memory = kvreg_os_map_huge(2 * MIB2, MIB2);
    CHECK(!grown || memory != NULL);
    if (memory != NULL) {
        CHECK((uintptr_t)memory % MIB2 == 0);
        CHECK(read_pool("free_hugepages") - read_pool("resv_hugepages") == left - 2);
        memory[2 * MIB2 - 1] = 1;
        CHECK(memory[0] == 0);
        kvreg_os_unmap(memory, 2 * MIB2);
    }
    CHECK(read_pool("free_hugepages") - read_pool("resv_hugepages") == left);
    CHECK(kvreg_os_map_huge(((size_t)left + 1) * MIB2, MIB2) == NULL);
    shrink_pool();
}

/* -- NUMA nodes ------------------------------------------------------------------------------ */

static const char *nodes_of_root(void)
{
    static char text[64];
    kvreg_os_nodes nodes;
    kvreg_os_read_nodes(root, &nodes);
    kvreg_os_nodes_text(&nodes, text, sizeof text);
    return text;
}

static void nodes_are_those_with_memory_that_the_process_may_use(void)
{
    new_root();
    CHECK(strcmp(nodes_of_root(), "0") == 0);
    put("/sys/devices/system/node/has_memory", "0-3,6,1020-1030\n");
    CHECK(strcmp(nodes_of_root(), "0-3,6,1020-1023") == 0);
    put("/proc/self/status", "Name:\tx\nMems_allowed:\t7e\nMems_allowed_list:\t1-6\n");
    CHECK(strcmp(nodes_of_root(), "1-3,6") == 0);
    put("/proc/self/status", "Mems_allowed_list:\t5\n");
    CHECK(strcmp(nodes_of_root(), "") == 0);
    remove_root();
}

static void a_long_list_of_nodes_is_cut(void)
{
    kvreg_os_nodes nodes = { { 0 } };
    char text[8];
    for (uint32_t node = 0; node < 2000; node += 2)
        kvreg_os_nodes_add(&nodes, node);
    CHECK(kvreg_os_nodes_has(&nodes, 1022) && !kvreg_os_nodes_has(&nodes, 1024));
    kvreg_os_nodes_text(&nodes, text, sizeof text);
    CHECK(strcmp(text, "0,2,4,6") == 0);
}

/* An emulator or a sandbox may have no such call; then the error says so. */
static void a_mapping_lies_on_the_nodes_it_is_bound_to(void)
{
    static const int modes[] = { MPOL_BIND, MPOL_INTERLEAVE };
    size_t bytes = 3 * kvreg_os_page_round(1);
    kvreg_os_nodes nodes;
    kvreg_error error;
    kvreg_os_read_nodes("", &nodes);
    for (int interleave = 0; interleave < 2; interleave++) {
        uint8_t *memory = kvreg_os_map(bytes);
        if (kvreg_os_bind(memory, bytes, &nodes, interleave, &error) == KVREG_OK) {
            CHECK(placed(memory, modes[interleave], &nodes));
            CHECK(placed(memory + bytes - 1, modes[interleave], &nodes));
            memory[0] = 1;
        } else {
            CHECK(error.status == KVREG_E_SYSTEM);
            CHECK(strstr(error.text, strerror(ENOSYS)) || strstr(error.text, strerror(EPERM)));
        }
        kvreg_os_unmap(memory, bytes);
    }
}

static void a_node_that_is_not_there_is_an_error_of_binding(void)
{
    uint8_t *memory = kvreg_os_map(1);
    kvreg_os_nodes nodes = { { 0 } };
    kvreg_error error;
    kvreg_os_nodes_add(&nodes, KVREG_OS_NODES_MAX - 1);
    CHECK(kvreg_os_bind(memory, 1, &nodes, false, &error) == KVREG_E_SYSTEM);
    CHECK(strstr(error.text, "1023") != NULL);
    kvreg_os_unmap(memory, 1);
}

/* -- Processors ------------------------------------------------------------------------------ */

static uint32_t affinity(void)
{
    cpu_set_t set;
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    return (uint32_t)CPU_COUNT(&set);
}

static void cpus_are_those_of_the_affinity_where_there_is_no_quota(void)
{
    new_root();
    put("/proc/self/cgroup", "3:cpu:/\n0::/\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/cpu.max", "max 100000\n");
    CHECK(kvreg_os_usable_cpus(root) == affinity());
    remove_root();
}

static void cpus_are_bounded_by_a_quota_of_either_version(void)
{
    new_root();
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/cpu.max", "50000 100000\n");
    CHECK(kvreg_os_usable_cpus(root) == 1);
    put("/proc/self/cgroup", "2:cpuacct,cpu:/c\n");
    put("/sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "100000\n");
    put("/sys/fs/cgroup/cpu/c/cpu.cfs_period_us", "100000\n");
    CHECK(kvreg_os_usable_cpus(root) == 1);
    /* It says nothing of which they are. */
    CHECK(kvreg_os_allowed_cpus() == affinity());
    remove_root();
}

/* -- Memory and threads ---------------------------------------------------------------------- */

static void a_mapping_is_zero_and_writable(void)
{
    size_t bytes = kvreg_os_page_round(1) + 1;
    uint8_t *memory = kvreg_os_map(bytes);
    CHECK(memory != NULL && memory[0] == 0 && memory[bytes - 1] == 0);
    kvreg_os_prefer_huge_pages(memory, bytes);
    memory[bytes - 1] = 1;
    kvreg_os_unmap(memory, bytes);
    CHECK(kvreg_os_map(SIZE_MAX / 2) == NULL);
}

enum { PAGES = 40, POPULATE_WRITE = 23 };

/* Runs `populate` on all pages but the first and the last, some of which have content. */
static void populate_between(bool (*populate)(void *memory, size_t bytes))
{
    size_t page = kvreg_os_page_round(1);
    uint8_t *memory = kvreg_os_map(PAGES * page);
    kvreg_os_avoid_huge_pages(memory, PAGES * page);
    memory[7 * page] = 7;
    memory[9 * page - 1] = 9;
    CHECK(populate(memory + page, (PAGES - 2) * page));
    CHECK(resident_pages(memory, PAGES * page) == PAGES - 2);
    CHECK(resident_pages(memory, page) == 0);
    for (size_t i = page; i < (PAGES - 1) * page; i++)
        CHECK(memory[i] == (i == 7 * page ? 7 : i == 9 * page - 1 ? 9 : 0));
    CHECK(faults_of_writing(memory + page, (PAGES - 2) * page) < PAGES / 4);
    kvreg_os_unmap(memory, PAGES * page);
    CHECK(!populate(memory, PAGES * page));
}

static void populated_pages_are_there_and_keep_their_content(void)
{
    if (!emulated())
        populate_between(kvreg_os_populate);
    populate_between(kvreg_os_populate_by_page);
}

static void an_old_kernel_populates_too(void)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        if (!refuse_call_with(SYS_madvise, 2, POPULATE_WRITE, EINVAL))
            _exit(!emulated());
        populate_between(kvreg_os_populate);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* 27 bytes: whole numbers and a part of one. In 64 draws each is other than 0 at least once. */
static void draw_bytes_at_random(void)
{
    uint8_t all[27] = { 0 }, drawn[sizeof all + 1] = { 0 }, before[sizeof all + 1];
    for (int i = 0; i < 64; i++) {
        memcpy(before, drawn, sizeof drawn);
        kvreg_os_random(drawn, sizeof all);
        CHECK(memcmp(before, drawn, sizeof all) != 0 && drawn[sizeof all] == 0);
        for (size_t j = 0; j < sizeof all; j++)
            all[j] |= drawn[j];
    }
    CHECK(memchr(all, 0, sizeof all) == NULL);
}

static void every_byte_is_drawn_at_random(void)
{
    int status;
    draw_bytes_at_random();
    pid_t child = fork();
    if (child == 0) {
        if (!refuse_call(SYS_getrandom, EAGAIN))
            _exit(!emulated());
        draw_bytes_at_random();
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static uint8_t *contended;
static _Atomic bool written;

static void *count_up(void *argument)
{
    size_t page = kvreg_os_page_round(1);
    for (int round = 1; round <= 20000; round++)
        for (size_t i = 0; i < 4; i++) {
            uint32_t *word = (uint32_t *)(contended + i * page);
            CHECK(*word == (uint32_t)round - 1);
            *word = (uint32_t)round;
        }
    atomic_store(&written, true);
    return argument;
}

static void populating_keeps_what_another_thread_writes(void)
{
    size_t bytes = 4 * kvreg_os_page_round(1);
    kvreg_os_thread thread;
    kvreg_error error;
    contended = kvreg_os_map(bytes);
    CHECK(kvreg_os_thread_start(&thread, "writer", -1, count_up, NULL, &error) == KVREG_OK);
    while (!atomic_load(&written)) {
        CHECK(kvreg_os_populate_by_page(contended, bytes));
        CHECK(kvreg_os_populate(contended, bytes));
    }
    kvreg_os_thread_join(&thread);
    kvreg_os_unmap(contended, bytes);
}

static sigset_t mask_inside;

static void *look_around(void *argument)
{
    char name[16] = "";
    pthread_sigmask(SIG_SETMASK, NULL, &mask_inside);
    /* The starter does these after the thread began. */
    while (strcmp(name, "a-rather-long-n") != 0 || sched_getscheduler(0) != SCHED_BATCH)
        pthread_getname_np(pthread_self(), name, sizeof name);
    return argument;
}

static void a_thread_blocks_signals_has_its_name_and_is_a_batch_job(void)
{
    kvreg_os_thread thread;
    kvreg_error error;
    sigset_t mask;
    CHECK(kvreg_os_thread_start(&thread, "a-rather-long-name", 0, look_around, NULL, &error) ==
          KVREG_OK);
    kvreg_os_thread_join(&thread);
    CHECK(sigismember(&mask_inside, SIGINT) == 1 && sigismember(&mask_inside, SIGTERM) == 1);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    CHECK(sigismember(&mask, SIGINT) == 0);
}

static void a_thread_on_a_cpu_that_is_not_there_is_an_error(void)
{
    kvreg_os_thread thread;
    kvreg_error error;
    CHECK(kvreg_os_thread_start(&thread, "worker", 1 << 19, look_around, NULL, &error) ==
          KVREG_E_SYSTEM);
    CHECK(strstr(error.text, "worker") != NULL && strstr(error.text, "524288") != NULL);
}

static void a_fork_is_counted_in_the_child_alone(void)
{
    uint32_t before = kvreg_os_fork_count();
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(kvreg_os_fork_count() == before + 1 ? 0 : 1);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(kvreg_os_fork_count() == before);
}

static void a_caches_size_is_found_by_its_level(void)
{
    new_root();
    CHECK(kvreg_os_cache_bytes(root, 2) == 0);
    put("/sys/devices/system/cpu/cpu0/cache/index0/level", "1\n");
    put("/sys/devices/system/cpu/cpu0/cache/index0/size", "48K\n");
    put("/sys/devices/system/cpu/cpu0/cache/index1/level", "2\n");
    put("/sys/devices/system/cpu/cpu0/cache/index1/size", "2048K\n");
    put("/sys/devices/system/cpu/cpu0/cache/index2/level", "3\n");
    CHECK(kvreg_os_cache_bytes(root, 2) == 2 << 20);
    CHECK(kvreg_os_cache_bytes(root, 3) == 0);
    CHECK(kvreg_os_cache_bytes(root, 4) == 0);
    put("/sys/devices/system/cpu/cpu0/cache/index2/size", "307200K\n");
    CHECK(kvreg_os_cache_bytes(root, 3) == (size_t)300 << 20);
    remove_root();
}

int main(void)
{
    RUN(memory_is_the_machines_where_no_cgroup_limits_it);
    RUN(memory_is_bounded_by_a_v2_cgroup_above);
    RUN(memory_is_bounded_by_a_v1_cgroup);
    RUN(memory_is_what_is_free_where_nothing_can_be_read);
    RUN(a_limit_that_cannot_be_read_is_told);
    RUN(memory_of_a_node_is_what_is_free_or_holds_files);
    RUN(huge_pages_are_the_free_ones_that_no_mapping_was_promised);
    RUN(huge_pages_of_a_node_are_its_free_ones);
    RUN(huge_pages_are_bounded_by_a_cgroup_of_either_version);
    RUN(a_kernel_without_that_size_has_no_huge_pages);
    RUN(a_mapping_of_huge_pages_holds_as_many);
    RUN(nodes_are_those_with_memory_that_the_process_may_use);
    RUN(a_long_list_of_nodes_is_cut);
    RUN(a_mapping_lies_on_the_nodes_it_is_bound_to);
    RUN(a_node_that_is_not_there_is_an_error_of_binding);
    RUN(cpus_are_those_of_the_affinity_where_there_is_no_quota);
    RUN(cpus_are_bounded_by_a_quota_of_either_version);
    RUN(a_mapping_is_zero_and_writable);
    RUN(populated_pages_are_there_and_keep_their_content);
    RUN(an_old_kernel_populates_too);
    RUN(populating_keeps_what_another_thread_writes);
    RUN(every_byte_is_drawn_at_random);
    RUN(a_thread_blocks_signals_has_its_name_and_is_a_batch_job);
    RUN(a_thread_on_a_cpu_that_is_not_there_is_an_error);
    RUN(a_fork_is_counted_in_the_child_alone);
    RUN(a_caches_size_is_found_by_its_level);
    return check_end();
}
