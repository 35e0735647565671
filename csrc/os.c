#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "os.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

/* Newer than the headers of some systems that the library is built on. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MAP_HUGE_SHIFT
#define MAP_HUGE_SHIFT 26
#endif

/* -- Memory -------------------------------------------------------------------------------- */

void *kvreg_os_alloc(size_t bytes)
{
    return malloc(bytes);
}

void *kvreg_os_alloc_zeroed(size_t bytes)
{
    return calloc(1, bytes);
}

void kvreg_os_free(void *memory)
{
    free(memory);
}

size_t kvreg_os_page_round(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

/* Maps private pages; NULL when the system refuses. */
static void *map_for_this_process(size_t bytes, int flags)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    /* Where it is refused, a child costs memory, and nothing else changes. */
    madvise(memory, bytes, MADV_DONTFORK);
    return memory;
}

void *kvreg_os_map(size_t bytes)
{
    return map_for_this_process(kvreg_os_page_round(bytes), 0);
}

void *kvreg_os_map_huge(size_t bytes, size_t page_bytes)
{
    int size = __builtin_ctzll(page_bytes) << MAP_HUGE_SHIFT;
    return map_for_this_process(bytes, MAP_HUGETLB | size);
}

void kvreg_os_unmap(void *memory, size_t bytes)
{
    munmap(memory, kvreg_os_page_round(bytes));
}

void kvreg_os_prefer_huge_pages(void *memory, size_t bytes)
{
    madvise(memory, kvreg_os_page_round(bytes), MADV_HUGEPAGE);
}

void kvreg_os_avoid_huge_pages(void *memory, size_t bytes)
{
    madvise(memory, kvreg_os_page_round(bytes), MADV_NOHUGEPAGE);
}

bool kvreg_os_populate(void *memory, size_t bytes)
{
    if (madvise(memory, bytes, MADV_POPULATE_WRITE) == 0)
        return true;
    return errno == EINVAL && kvreg_os_populate_by_page(memory, bytes);
}

bool kvreg_os_populate_by_page(void *memory, size_t bytes)
{
    /* The kernel ORs 0 into the first word of each page, atomically: a write like any other, but
     * one that keeps what a thread stores there meanwhile. Done in C it would be a data race with
     * that store, and a compiler may turn it into a mere load. Nobody waits on these words. */
    const int or_nothing = FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_EQ, 0);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t done = 0; done < bytes; done += page) {
        void *word = (char *)memory + done;
        if (syscall(SYS_futex, word, FUTEX_WAKE_OP_PRIVATE, 0, NULL, word, or_nothing) < 0)
            return false;
    }
    return true;
}

/* -- Files of /proc and /sys --------------------------------------------------------------- */

/* Opens `root` + `path`; NULL, and errno says why, when it cannot be read. errno is 0 afterwards
 * where it can: whoever finds nothing in the file can tell that from a failure. */
static FILE *open_text(const char *root, const char *path)
{
    char full[PATH_MAX];
    int length = snprintf(full, sizeof full, "%s%s", root, path);
    if (length < 0 || (size_t)length >= sizeof full) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    FILE *file = fopen(full, "re");
    if (file != NULL)
        errno = 0;
    return file;
}

/* Reads the number that a file holds; false when it has none, as in "max". */
static bool read_number(const char *root, const char *path, uint64_t *number)
{
    FILE *file = open_text(root, path);
    unsigned long long value;
    if (file == NULL)
        return false;
    bool found = fscanf(file, "%llu", &value) == 1;
    fclose(file);
    *number = value;
    return found;
}

/* Reads the number after `name` at the start of a line, as in meminfo and memory.stat. */
static bool read_named_number(const char *root, const char *path, const char *name,
                              uint64_t *number)
{
    FILE *file = open_text(root, path);
    char line[256];
    unsigned long long value;
    bool found = false;
    size_t length = strlen(name);
    if (file == NULL)
        return false;
    while (!found && fgets(line, sizeof line, file) != NULL)
        found = strncmp(line, name, length) == 0 && sscanf(line + length, "%llu", &value) == 1;
    fclose(file);
    if (found)
        *number = value;
    return found;
}

/* -- Control groups ------------------------------------------------------------------------ */

/* Whether `name` is an item of the comma-separated `list`. */
static bool list_has(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *item = list; item != NULL; item = strchr(item, ',')) {
        item += *item == ',';
        if (strncmp(item, name, length) == 0 && (item[length] == ',' || item[length] == '\0'))
            return true;
    }
    return false;
}

/* Finds the process's folder below a cgroup mount: of the unified hierarchy for `controller` "",
 * else of the v1 hierarchy of that controller. A line of /proc/self/cgroup reads
 * "number:controllers:/folder". */
static bool find_cgroup(const char *root, const char *controller, char *folder, size_t bytes)
{
    FILE *file = open_text(root, "/proc/self/cgroup");
    char line[PATH_MAX];
    bool found = false;
    if (file == NULL)
        return false;
    while (!found && fgets(line, sizeof line, file) != NULL) {
        char *controllers = strchr(line, ':');
        char *path = controllers == NULL ? NULL : strchr(controllers + 1, ':');
        if (path == NULL)
            continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        controllers++;
        found = controller[0] == '\0' ? controllers[0] == '\0' : list_has(controllers, controller);
        if (found)
            found = (size_t)snprintf(folder, bytes, "%s", path) < bytes;
    }
    fclose(file);
    return found;
}

/* Shortens `folder` to the one above it; false when it was the root. */
static bool go_up(char *folder)
{
    char *slash = strrchr(folder, '/');
    if (slash == NULL || folder[1] == '\0')
        return false;
    slash[slash == folder] = '\0';
    return true;
}

/* Where a cgroup of one of the two versions says how much of a kind of memory it leaves. */
typedef struct cgroup_files {
    const char *controller, *mount, *limit, *usage;
    const char *reclaimable; /* of what counts as used, in memory.stat; NULL: nothing */
} cgroup_files;

static const cgroup_files memory_files[] = {
    { "", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file" },
    { "memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
      "total_inactive_file" },
};

/* Notes, once, that a file was not read. One that does not exist holds no limit. */
static void note_unread(kvreg_os_memory *memory, const char *path, int reason)
{
    if (reason != 0 && reason != ENOENT && memory->unread[0] == '\0')
        snprintf(memory->unread, sizeof memory->unread, "%.80s: %.40s", path, strerror(reason));
}

/* Lowers *memory to what the cgroup in `folder` leaves, if it has a limit. */
static void apply_cgroup_memory(const char *root, const cgroup_files *files, const char *folder,
                                kvreg_os_memory *memory)
{
    char path[2 * PATH_MAX];
    uint64_t limit, usage = 0, reclaimable = 0;
    snprintf(path, sizeof path, "%s%s/%s", files->mount, folder, files->limit);
    if (!read_number(root, path, &limit)) {
        note_unread(memory, path, errno);
        return;
    }
    snprintf(path, sizeof path, "%s%s/%s", files->mount, folder, files->usage);
    if (!read_number(root, path, &usage))
        note_unread(memory, path, errno);
    if (files->reclaimable != NULL) {
        snprintf(path, sizeof path, "%s%s/memory.stat", files->mount, folder);
        read_named_number(root, path, files->reclaimable, &reclaimable);
    }
    usage -= reclaimable < usage ? reclaimable : usage;
    uint64_t left = limit > usage ? limit - usage : 0;
    if (left < memory->available) {
        memory->available = left;
        snprintf(memory->limit, sizeof memory->limit, "the cgroup limit %s of %llu bytes",
                 files->limit, (unsigned long long)limit);
    }
}

/* Lowers *memory to what the process's cgroup and those above it leave. */
static void apply_cgroups(const char *root, const cgroup_files *files, kvreg_os_memory *memory)
{
    char folder[PATH_MAX];
    if (!find_cgroup(root, files->controller, folder, sizeof folder)) {
        note_unread(memory, "/proc/self/cgroup", errno);
        return;
    }
    do
        apply_cgroup_memory(root, files, folder, memory);
    while (go_up(folder));
}

/* What is free by a call that needs no file; it does not know what the page cache could give. */
static uint64_t free_memory(void)
{
    struct sysinfo info;
    return sysinfo(&info) == 0 ? ((uint64_t)info.freeram + info.bufferram) * info.mem_unit : 0;
}

/* Linux always has the file, wherever /proc is mounted. */
static void read_machine_memory(const char *root, kvreg_os_memory *memory)
{
    static const char path[] = "/proc/meminfo";
    uint64_t kib;
    if (read_named_number(root, path, "MemAvailable:", &kib)) {
        memory->available = kib * 1024;
        snprintf(memory->limit, sizeof memory->limit, "the machine's available memory");
        return;
    }
    snprintf(memory->unread, sizeof memory->unread, "%s: %.40s", path,
             errno == 0 ? "no MemAvailable" : strerror(errno));
    memory->available = free_memory();
    snprintf(memory->limit, sizeof memory->limit, "the machine's free memory");
}

void kvreg_os_read_memory(const char *root, kvreg_os_memory *memory)
{
    memory->unread[0] = '\0';
    read_machine_memory(root, memory);
    for (size_t i = 0; i < sizeof memory_files / sizeof memory_files[0]; i++)
        apply_cgroups(root, &memory_files[i], memory);
}

/* -- Huge pages ---------------------------------------------------------------------------- */

/* A size of huge pages, and what the kernel calls it. */
typedef struct huge_page {
    size_t bytes;
    const char *name, *folder;
    /* Of each version: pages in use, and pages reserved for mappings. */
    cgroup_files files[4];
} huge_page;

static const huge_page huge_pages[] = {
    { (size_t)2 << 20, "2MiB", "hugepages-2048kB",
      { { "", "/sys/fs/cgroup", "hugetlb.2MB.max", "hugetlb.2MB.current", NULL },
        { "", "/sys/fs/cgroup", "hugetlb.2MB.rsvd.max", "hugetlb.2MB.rsvd.current", NULL },
        { "hugetlb", "/sys/fs/cgroup/hugetlb", "hugetlb.2MB.limit_in_bytes",
          "hugetlb.2MB.usage_in_bytes", NULL },
        { "hugetlb", "/sys/fs/cgroup/hugetlb", "hugetlb.2MB.rsvd.limit_in_bytes",
          "hugetlb.2MB.rsvd.usage_in_bytes", NULL } } },
    { (size_t)1 << 30, "1GiB", "hugepages-1048576kB",
      { { "", "/sys/fs/cgroup", "hugetlb.1GB.max", "hugetlb.1GB.current", NULL },
        { "", "/sys/fs/cgroup", "hugetlb.1GB.rsvd.max", "hugetlb.1GB.rsvd.current", NULL },
        { "hugetlb", "/sys/fs/cgroup/hugetlb", "hugetlb.1GB.limit_in_bytes",
          "hugetlb.1GB.usage_in_bytes", NULL },
        { "hugetlb", "/sys/fs/cgroup/hugetlb", "hugetlb.1GB.rsvd.limit_in_bytes",
          "hugetlb.1GB.rsvd.usage_in_bytes", NULL } } },
};

/* Free pages of the whole machine less those that are promised to mappings already; false when
 * the kernel has none of that size. */
static bool read_machine_huge_pages(const char *root, const huge_page *size, uint64_t *pages)
{
    char path[PATH_MAX];
    uint64_t promised = 0;
    snprintf(path, sizeof path, "/sys/kernel/mm/hugepages/%s/free_hugepages", size->folder);
    if (!read_number(root, path, pages))
        return false;
    snprintf(path, sizeof path, "/sys/kernel/mm/hugepages/%s/resv_hugepages", size->folder);
    read_number(root, path, &promised);
    *pages -= promised < *pages ? promised : *pages;
    return true;
}

/* Lowers *memory to the free pages of a node, which says nothing of promises. */
static void apply_node_huge_pages(const char *root, const huge_page *size, int node,
                                  kvreg_os_memory *memory)
{
    char path[PATH_MAX];
    uint64_t pages = 0;
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/hugepages/%s/free_hugepages",
             node, size->folder);
    read_number(root, path, &pages);
    if (pages * size->bytes < memory->available) {
        memory->available = pages * size->bytes;
        snprintf(memory->limit, sizeof memory->limit, "node %d's pool of free %s huge pages",
                 node, size->name);
    }
}

void kvreg_os_read_huge_pages(const char *root, size_t page_bytes, int node,
                              kvreg_os_memory *memory)
{
    const huge_page *size = &huge_pages[page_bytes == huge_pages[1].bytes];
    uint64_t pages;
    memory->unread[0] = '\0';
    if (!read_machine_huge_pages(root, size, &pages)) {
        int reason = errno;
        memory->available = 0;
        if (reason == ENOENT)
            snprintf(memory->limit, sizeof memory->limit,
                     "a kernel without huge pages of that size");
        else
            snprintf(memory->limit, sizeof memory->limit,
                     "the machine's pool of them, which cannot be read (%.40s),",
                     strerror(reason));
        return;
    }
    memory->available = pages * size->bytes;
    snprintf(memory->limit, sizeof memory->limit, "the machine's pool of free %s huge pages",
             size->name);
    if (node != KVREG_OS_ANY_NODE)
        apply_node_huge_pages(root, size, node, memory);
    for (size_t i = 0; i < sizeof size->files / sizeof size->files[0]; i++)
        apply_cgroups(root, &size->files[i], memory);
}

/* -- NUMA nodes ---------------------------------------------------------------------------- */

enum { WORD_BITS = 8 * sizeof(unsigned long) };

bool kvreg_os_nodes_has(const kvreg_os_nodes *nodes, uint32_t node)
{
    return node < KVREG_OS_NODES_MAX && (nodes->words[node / WORD_BITS] >> node % WORD_BITS & 1);
}

void kvreg_os_nodes_add(kvreg_os_nodes *nodes, uint32_t node)
{
    if (node < KVREG_OS_NODES_MAX)
        nodes->words[node / WORD_BITS] |= 1ul << node % WORD_BITS;
}

/* Reads the list, such as "0-3,6", after `name` at the start of a line; false without the line. */
static bool read_nodes(const char *root, const char *path, const char *name, kvreg_os_nodes *nodes)
{
    FILE *file = open_text(root, path);
    char line[PATH_MAX];
    bool found = false;
    *nodes = (kvreg_os_nodes){ { 0 } };
    if (file == NULL)
        return false;
    while (!found && fgets(line, sizeof line, file) != NULL)
        found = strncmp(line, name, strlen(name)) == 0;
    fclose(file);
    if (!found)
        return false;
    char *item = line + strlen(name), *end;
    for (;; item = end + (*end == ',')) {
        unsigned long node = strtoul(item, &end, 10), last = node;
        if (end == item)
            return true;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        for (; node <= last && node < KVREG_OS_NODES_MAX; node++)
            kvreg_os_nodes_add(nodes, (uint32_t)node);
    }
}

void kvreg_os_read_nodes(const char *root, kvreg_os_nodes *nodes)
{
    kvreg_os_nodes allowed;
    if (!read_nodes(root, "/sys/devices/system/node/has_memory", "", nodes))
        kvreg_os_nodes_add(nodes, 0);
    if (!read_nodes(root, "/proc/self/status", "Mems_allowed_list:", &allowed))
        return;
    for (size_t i = 0; i < sizeof nodes->words / sizeof nodes->words[0]; i++)
        nodes->words[i] &= allowed.words[i];
}

void kvreg_os_nodes_text(const kvreg_os_nodes *nodes, char *text, size_t bytes)
{
    size_t length = 0;
    text[0] = '\0';
    for (uint32_t node = 0; node < KVREG_OS_NODES_MAX && length < bytes; node++) {
        uint32_t first = node;
        if (!kvreg_os_nodes_has(nodes, node))
            continue;
        while (kvreg_os_nodes_has(nodes, node + 1))
            node++;
        length += (size_t)snprintf(text + length, bytes - length,
                                   first == node ? "%s%u" : "%s%u-%u", length == 0 ? "" : ",",
                                   first, node);
    }
}

void kvreg_os_read_node_memory(const char *root, uint32_t node, kvreg_os_memory *memory)
{
    static const char *const counted[] = { "MemFree:", "Active(file):", "Inactive(file):" };
    char path[PATH_MAX], name[64];
    uint64_t kib, total = 0;
    memory->available = UINT64_MAX;
    snprintf(memory->limit, sizeof memory->limit, "no known limit");
    memory->unread[0] = '\0';
    snprintf(path, sizeof path, "/sys/devices/system/node/node%u/meminfo", node);
    for (size_t i = 0; i < sizeof counted / sizeof counted[0]; i++) {
        snprintf(name, sizeof name, "Node %u %s", node, counted[i]);
        if (!read_named_number(root, path, name, &kib)) {
            note_unread(memory, path, errno);
            continue;
        }
        total += kib * 1024;
        memory->available = total;
        snprintf(memory->limit, sizeof memory->limit, "node %u's available memory", node);
    }
}

kvreg_status kvreg_os_bind(void *memory, size_t bytes, const kvreg_os_nodes *nodes,
                           bool interleave, kvreg_error *error)
{
    /* The kernel takes one bit less than it is told. */
    if (syscall(SYS_mbind, memory, kvreg_os_page_round(bytes),
                interleave ? MPOL_INTERLEAVE : MPOL_BIND, nodes->words, KVREG_OS_NODES_MAX + 1,
                0) == 0)
        return KVREG_OK;
    int reason = errno;
    char text[64];
    kvreg_os_nodes_text(nodes, text, sizeof text);
    return kvreg_fail(error, KVREG_E_SYSTEM, "cannot place memory on NUMA nodes %s: %s", text,
                      strerror(reason));
}

/* -- Processors ---------------------------------------------------------------------------- */

/* Calls `use` with the calling thread's affinity; -1 where the system does not tell it. */
static int with_affinity(int (*use)(const cpu_set_t *set, size_t bytes, int argument), int argument)
{
    /* The kernel's own mask may be wider than the fixed cpu_set_t: grow until it fits. */
    for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        size_t bytes = CPU_ALLOC_SIZE(cpus);
        if (set == NULL)
            return -1;
        int failed = sched_getaffinity(0, bytes, set);
        int result = failed ? -1 : use(set, bytes, argument);
        CPU_FREE(set);
        if (!failed || errno != EINVAL)
            return result;
    }
    return -1;
}

static int count_cpus(const cpu_set_t *set, size_t bytes, int unused)
{
    (void)unused;
    return CPU_COUNT_S(bytes, set);
}

/* The n-th CPU of a set, counted round; -1 where it has none. */
static int nth_cpu(const cpu_set_t *set, size_t bytes, int n)
{
    int count = CPU_COUNT_S(bytes, set), cpu = 0;
    if (count == 0)
        return -1;
    for (n %= count; !CPU_ISSET_S(cpu, bytes, set) || n-- > 0;)
        cpu++;
    return cpu;
}

uint32_t kvreg_os_allowed_cpus(void)
{
    int count = with_affinity(count_cpus, 0);
    return count > 0 ? (uint32_t)count : 1;
}

/* CPUs that a quota allows per period, rounded up. */
static uint32_t quota_cpus(uint64_t quota, uint64_t period)
{
    if (period == 0)
        return UINT32_MAX;
    uint64_t cpus = quota / period + (quota % period != 0);
    return cpus == 0 ? 1 : cpus > UINT32_MAX ? UINT32_MAX : (uint32_t)cpus;
}

/* cpu.max of v2 reads "quota period" or "max period". */
static uint32_t cgroup_v2_cpus(const char *root, const char *folder)
{
    char path[2 * PATH_MAX];
    unsigned long long quota, period;
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/cpu.max", folder);
    FILE *file = open_text(root, path);
    if (file == NULL)
        return UINT32_MAX;
    bool limited = fscanf(file, "%llu %llu", &quota, &period) == 2;
    fclose(file);
    return limited ? quota_cpus(quota, period) : UINT32_MAX;
}

/* cpu.cfs_quota_us of v1 is -1 where there is no limit. */
static uint32_t cgroup_v1_cpus(const char *root, const char *folder)
{
    char path[2 * PATH_MAX];
    uint64_t quota, period;
    snprintf(path, sizeof path, "/sys/fs/cgroup/cpu%s/cpu.cfs_quota_us", folder);
    if (!read_number(root, path, &quota) || quota > INT64_MAX)
        return UINT32_MAX;
    snprintf(path, sizeof path, "/sys/fs/cgroup/cpu%s/cpu.cfs_period_us", folder);
    return read_number(root, path, &period) ? quota_cpus(quota, period) : UINT32_MAX;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

uint32_t kvreg_os_usable_cpus(const char *root)
{
    char folder[PATH_MAX];
    uint32_t cpus = kvreg_os_allowed_cpus();
    if (find_cgroup(root, "", folder, sizeof folder)) {
        do
            cpus = least(cpus, cgroup_v2_cpus(root, folder));
        while (go_up(folder));
    }
    if (find_cgroup(root, "cpu", folder, sizeof folder)) {
        do
            cpus = least(cpus, cgroup_v1_cpus(root, folder));
        while (go_up(folder));
    }
    return cpus;
}

size_t kvreg_os_cache_bytes(const char *root, uint64_t level)
{
    char path[PATH_MAX];
    uint64_t found, kib;
    for (int i = 0;; i++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/level", i);
        if (!read_number(root, path, &found))
            return 0;
        /* The size reads "2048K". */
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        if (found == level && read_number(root, path, &kib))
            return (size_t)kib * 1024;
    }
}

/* -- Clock and chance ---------------------------------------------------------------------- */

uint64_t kvreg_os_monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void kvreg_os_sleep_briefly(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = 1 }, NULL);
}

/* The next number of a sequence: SplitMix64 (G. L. Steele, D. Lea, C. H. Flood, OOPSLA 2014). */
static uint64_t next_number(uint64_t *state)
{
    uint64_t number = *state += 0x9e3779b97f4a7c15u;
    number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9u;
    number = (number ^ number >> 27) * 0x94d049bb133111ebu;
    return number ^ number >> 31;
}

void kvreg_os_random(void *out, size_t bytes)
{
    if (getrandom(out, bytes, GRND_NONBLOCK) == (ssize_t)bytes)
        return;
    /* Early at boot, or under an old seccomp filter: harder to foresee than a constant. */
    uint64_t state = kvreg_os_monotonic_ns() ^ (uint64_t)(uintptr_t)&state;
    for (size_t done = 0; done < bytes; done += sizeof state) {
        uint64_t number = next_number(&state);
        size_t left = bytes - done;
        memcpy((uint8_t *)out + done, &number, left < sizeof number ? left : sizeof number);
    }
}

/* -- Threads ------------------------------------------------------------------------------- */

/* Relaxed throughout: it only changes in a child that has a single thread. */
static _Atomic uint32_t fork_count;

static void count_fork(void)
{
    atomic_fetch_add_explicit(&fork_count, 1, memory_order_relaxed);
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, count_fork);
}

uint32_t kvreg_os_fork_count(void)
{
    return atomic_load_explicit(&fork_count, memory_order_relaxed);
}

/* Pins threads made with `attributes` to `cpu`. */
static int pin(pthread_attr_t *attributes, int cpu)
{
    cpu_set_t *set = CPU_ALLOC(cpu + 1);
    size_t bytes = CPU_ALLOC_SIZE(cpu + 1);
    if (set == NULL)
        return ENOMEM;
    CPU_ZERO_S(bytes, set);
    CPU_SET_S(cpu, bytes, set);
    int failed = pthread_attr_setaffinity_np(attributes, bytes, set);
    CPU_FREE(set);
    return failed;
}

kvreg_status kvreg_os_thread_start(kvreg_os_thread *thread, const char *name, int cpu,
                                   void *(*run)(void *), void *argument, kvreg_error *error)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    char short_name[16];
    int failed = pthread_attr_init(&attributes);
    if (failed)
        return kvreg_fail(error, KVREG_E_SYSTEM, "cannot start thread %s: %s", name,
                          strerror(failed));
    if (cpu >= 0)
        failed = pin(&attributes, cpu);
    if (!failed) {
        /* A new thread inherits the mask; setting it inside the thread would leave a gap. */
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        failed = pthread_create(&thread->handle, &attributes, run, argument);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    pthread_attr_destroy(&attributes);
    if (failed && cpu >= 0)
        return kvreg_fail(error, KVREG_E_SYSTEM, "cannot start thread %s on CPU %d: %s", name,
                          cpu, strerror(failed));
    if (failed)
        return kvreg_fail(error, KVREG_E_SYSTEM, "cannot start thread %s: %s", name,
                          strerror(failed));
    snprintf(short_name, sizeof short_name, "%s", name);
    pthread_setname_np(thread->handle, short_name);
    /* Where this is refused the thread is an ordinary one. */
    pthread_setschedparam(thread->handle, SCHED_BATCH, &(struct sched_param){ 0 });
    return KVREG_OK;
}

void kvreg_os_thread_spread(kvreg_os_thread *thread, uint32_t number)
{
    int cpu = with_affinity(nth_cpu, (int)(number & INT_MAX));
    if (cpu < 0)
        return;
    cpu_set_t *set = CPU_ALLOC(cpu + 1);
    size_t bytes = CPU_ALLOC_SIZE(cpu + 1);
    if (set == NULL)
        return;
    CPU_ZERO_S(bytes, set);
    CPU_SET_S(cpu, bytes, set);
    pthread_setaffinity_np(thread->handle, bytes, set);
    CPU_FREE(set);
}

void kvreg_os_thread_join(kvreg_os_thread *thread)
{
    pthread_join(thread->handle, NULL);
}

void kvreg_os_mutex_init(kvreg_os_mutex *mutex)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&mutex->handle, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

void kvreg_os_mutex_destroy(kvreg_os_mutex *mutex)
{
    pthread_mutex_destroy(&mutex->handle);
}

void kvreg_os_condition_init(kvreg_os_condition *condition)
{
    pthread_cond_init(&condition->handle, NULL);
}

void kvreg_os_condition_destroy(kvreg_os_condition *condition)
{
    pthread_cond_destroy(&condition->handle);
}

void kvreg_os_condition_wait(kvreg_os_condition *condition, kvreg_os_mutex *mutex)
{
    pthread_cond_wait(&condition->handle, &mutex->handle);
}

void kvreg_os_condition_wake_one(kvreg_os_condition *condition)
{
    pthread_cond_signal(&condition->handle);
}

void kvreg_os_condition_wake_all(kvreg_os_condition *condition)
{
    pthread_cond_broadcast(&condition->handle);
}
