/* The system below kvreg: memory, processors, clocks, threads. os.c alone makes system calls. */
#ifndef KVREG_OS_H
#define KVREG_OS_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvreg/error.h"

/* -- Memory -------------------------------------------------------------------------------- */

/* Uninitialised bytes for small, short-lived objects; NULL when there are none. */
void *kvreg_os_alloc(size_t bytes);
void kvreg_os_free(void *memory);

/* Private pages, zero until written, each taken from the machine when it is first touched;
 * NULL when the system refuses. `bytes` is rounded up to whole pages in both calls. */
void *kvreg_os_map(size_t bytes);
void kvreg_os_unmap(void *memory, size_t bytes);

/* Asks for huge pages below a mapping; a system that has none keeps ordinary ones. */
void kvreg_os_prefer_huge_pages(void *memory, size_t bytes);

/* `bytes` rounded up to whole pages. */
size_t kvreg_os_page_round(size_t bytes);

/* Memory that this process can still take. */
typedef struct kvreg_os_memory {
    uint64_t available; /* bytes, under the tightest of all limits */
    char limit[128];    /* which limit that is, for an error text */
} kvreg_os_memory;

/* Reads the machine's available memory and the limits of the process's cgroup and of those above
 * it (v1 and v2). `root` goes before the paths of /proc and /sys: "" but in tests. */
void kvreg_os_read_memory(const char *root, kvreg_os_memory *memory);

/* -- Processors ---------------------------------------------------------------------------- */

/* How many CPUs this process may use at once: its affinity, less a cgroup's CPU quota. At least 1.
 * `root` as above. */
uint32_t kvreg_os_usable_cpus(const char *root);

/* Bytes of the first CPU's cache of that level, 2 or higher; 0 when there is none or the system
 * does not say. `root` as above. */
size_t kvreg_os_cache_bytes(const char *root, uint64_t level);

/* -- Clock and chance ---------------------------------------------------------------------- */

uint64_t kvreg_os_monotonic_ns(void);

/* 64 bits that an outsider cannot foresee. */
uint64_t kvreg_os_random(void);

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
