/* The system below kvreg: memory, processors, clocks, threads. os.c alone makes system calls. */
#ifndef KVREG_OS_H
#define KVREG_OS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvreg/error.h"

/* -- Memory -------------------------------------------------------------------------------- */

/* Bytes of the C library's heap, uninitialised or zero; NULL when there are none. */
void *kvreg_os_alloc(size_t bytes);
void *kvreg_os_alloc_zeroed(size_t bytes);
void kvreg_os_free(void *memory);

/* Private pages, zero until written, each taken from the machine when it is first touched;
 * NULL when the system refuses. `bytes` is rounded up to whole pages in both calls. A child made by
 * fork() does not get them, as it would hold on to the pages and have the parent copy each that it
 * writes to: there the addresses may be somebody else's, and are not to be unmapped. */
void *kvreg_os_map(size_t bytes);
void kvreg_os_unmap(void *memory, size_t bytes);

/* The same on huge pages of `page_bytes`, a power of two, out of those that the system holds in
 * reserve. `bytes` is a multiple of it. kvreg_os_unmap takes them too. */
void *kvreg_os_map_huge(size_t bytes, size_t page_bytes);

/* Asks for huge pages below a mapping of ordinary ones, or for none; a system that has none keeps
 * ordinary ones in either case. */
void kvreg_os_prefer_huge_pages(void *memory, size_t bytes);
void kvreg_os_avoid_huge_pages(void *memory, size_t bytes);

/* Takes the pages below part of a mapping from the machine, as a write to each page would, but
 * changes no byte, whatever other threads write there at the same time. `memory` and `bytes` are
 * multiples of the page. False: the system cannot. */
bool kvreg_os_populate(void *memory, size_t bytes);

/* What kvreg_os_populate does on Linux before 5.14: slower, a system call for every page. */
bool kvreg_os_populate_by_page(void *memory, size_t bytes);

/* `bytes` rounded up to whole pages. */
size_t kvreg_os_page_round(size_t bytes);

/* Memory that this process can still take. */
typedef struct kvreg_os_memory {
    uint64_t available; /* bytes, under the tightest of all limits */
    char limit[128];    /* which limit that is, for an error text */
    char unread[128];   /* a file that cannot be read, and why: it may hold a tighter limit; "": none */
} kvreg_os_memory;

/* Reads the machine's available memory and the limits of the process's cgroup and of those above
 * it (v1 and v2). Without /proc/meminfo only memory that is free counts as available. `root` goes
 * before the paths of /proc and /sys: "" but in tests. */
void kvreg_os_read_memory(const char *root, kvreg_os_memory *memory);

/* Reads the free memory of a NUMA node and what its page cache could give back. Without a cgroup's
 * limits: they know no nodes. `root` as above. */
void kvreg_os_read_node_memory(const char *root, uint32_t node, kvreg_os_memory *memory);

enum { KVREG_OS_ANY_NODE = -1 };

/* Reads what is left of the huge pages of `page_bytes`, 2 MiB or 1 GiB, that the system holds in
 * reserve: on one NUMA node or on KVREG_OS_ANY_NODE, and under the limits of cgroups on them.
 * `root` as above. */
void kvreg_os_read_huge_pages(const char *root, size_t page_bytes, int node,
                              kvreg_os_memory *memory);

/* -- NUMA nodes ---------------------------------------------------------------------------- */

/* The most that Linux can be built for. */
enum { KVREG_OS_NODES_MAX = 1024 };

/* A set of nodes, a bit each, as the kernel takes it. */
typedef struct kvreg_os_nodes {
    unsigned long words[KVREG_OS_NODES_MAX / (8 * sizeof(unsigned long))];
} kvreg_os_nodes;

/* Reads which nodes have memory that this process may use; node 0 where the system knows none.
 * `root` as above. */
void kvreg_os_read_nodes(const char *root, kvreg_os_nodes *nodes);

bool kvreg_os_nodes_has(const kvreg_os_nodes *nodes, uint32_t node);
void kvreg_os_nodes_add(kvreg_os_nodes *nodes, uint32_t node);

/* Writes the nodes as "0-3,6"; a longer text is cut. */
void kvreg_os_nodes_text(const kvreg_os_nodes *nodes, char *text, size_t bytes);

/* Has pages of a mapping that nobody has touched yet come from these nodes alone: in turn where
 * `interleave`, else from the nearest. */
kvreg_status kvreg_os_bind(void *memory, size_t bytes, const kvreg_os_nodes *nodes,
                           bool interleave, kvreg_error *error);

/* -- Processors ---------------------------------------------------------------------------- */

/* How many CPUs the calling thread may run on, by its affinity. At least 1. */
uint32_t kvreg_os_allowed_cpus(void);

/* How many CPUs this process may use at once: its affinity, less a cgroup's CPU quota. At least 1.
 * `root` as above. */
uint32_t kvreg_os_usable_cpus(const char *root);

/* Bytes of the first CPU's cache of that level, 2 or higher; 0 when there is none or the system
 * does not say. `root` as above. */
size_t kvreg_os_cache_bytes(const char *root, uint64_t level);

/* -- Clock and chance ---------------------------------------------------------------------- */

uint64_t kvreg_os_monotonic_ns(void);

/* Sleeps for as short a time as the system can, some 50 microseconds. */
void kvreg_os_sleep_briefly(void);

/* Fills memory, 256 bytes at most, with what an outsider cannot foresee. */
void kvreg_os_random(void *out, size_t bytes);

/* -- Threads ------------------------------------------------------------------------------- */

/* How often this process image came out of a fork() since the library was loaded. An object that
 * owns threads or locks notes the number when it is made and is unusable once it differs. */
uint32_t kvreg_os_fork_count(void);

typedef struct kvreg_os_thread {
    pthread_t handle;
} kvreg_os_thread;

/* Starts a thread that blocks every signal, so that the process's handlers run elsewhere, and that
 * the kernel schedules as a batch job: waking it does not push the waker off its CPU.
 * `name` shows in ps and debuggers, 15 characters of it. `cpu` < 0: not pinned. */
kvreg_status kvreg_os_thread_start(kvreg_os_thread *thread, const char *name, int cpu,
                                   void *(*run)(void *), void *argument, kvreg_error *error);
void kvreg_os_thread_join(kvreg_os_thread *thread);

/* Keeps one of several threads on a CPU of its own, of those that the process may use, where there
 * are so many. Where it is refused the thread runs anywhere. */
void kvreg_os_thread_spread(kvreg_os_thread *thread, uint32_t number);

/* A mutex that can live in memory shared between processes. */
typedef struct kvreg_os_mutex {
    pthread_mutex_t handle;
} kvreg_os_mutex;

void kvreg_os_mutex_init(kvreg_os_mutex *mutex);
void kvreg_os_mutex_destroy(kvreg_os_mutex *mutex);

static inline void kvreg_os_mutex_lock(kvreg_os_mutex *mutex)
{
    pthread_mutex_lock(&mutex->handle);
}

static inline void kvreg_os_mutex_unlock(kvreg_os_mutex *mutex)
{
    pthread_mutex_unlock(&mutex->handle);
}

typedef struct kvreg_os_condition {
    pthread_cond_t handle;
} kvreg_os_condition;

void kvreg_os_condition_init(kvreg_os_condition *condition);
void kvreg_os_condition_destroy(kvreg_os_condition *condition);
void kvreg_os_condition_wait(kvreg_os_condition *condition, kvreg_os_mutex *mutex);
void kvreg_os_condition_wake_one(kvreg_os_condition *condition);
void kvreg_os_condition_wake_all(kvreg_os_condition *condition);

#endif
