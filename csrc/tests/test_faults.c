/* A tier whose system fails it: every allocation, mapping, advice, thread start and file that it
 * asks for is refused in turn. The linker leads those calls here (--wrap in the Makefile). */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "backend_dram.h"
#include "check.h"
#include "copy_threads.h"
#include "tier.h"

/* -- Refusals ------------------------------------------------------------------------------ */

typedef enum call_kind {
    ALLOCATION,
    MAPPING,
    ADVICE,
    THREAD,
    THREAD_ATTRIBUTES,
    CPU_SET,
    FILE_OPENING,
    CALL_KINDS,
} call_kind;

/* Which calls to refuse; a plan that has refused none has been lived through. Atomic, since the
 * tier's threads ask too. */
static struct {
    _Atomic int kind; /* CALL_KINDS: refuse nothing */
    _Atomic size_t granted; /* calls to grant before */
    _Atomic bool for_good;  /* every later call as well */
    _Atomic size_t refused;
} plan = { .kind = CALL_KINDS };

/* What was taken and not given back. */
static _Atomic long allocations, mapped_bytes, threads;

static void refuse(call_kind kind, size_t granted, bool for_good)
{
    plan.granted = granted;
    plan.for_good = for_good;
    plan.refused = 0;
    plan.kind = kind;
}

static void refuse_nothing(void)
{
    plan.kind = CALL_KINDS;
}

static bool refused(call_kind kind)
{
    if (plan.kind != (int)kind)
        return false;
    size_t granted = plan.granted;
    while (granted > 0)
        if (atomic_compare_exchange_weak(&plan.granted, &granted, granted - 1))
            return false;
    return atomic_fetch_add(&plan.refused, 1) == 0 || plan.for_good;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void __real_free(void *memory);
void *__real_mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset);
int __real_munmap(void *address, size_t bytes);
int __real_madvise(void *address, size_t bytes, int advice);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*run)(void *), void *argument);
int __real_pthread_join(pthread_t thread, void **result);
int __real_pthread_attr_init(pthread_attr_t *attributes);
void *__real___sched_cpualloc(size_t cpus);
FILE *__real_fopen(const char *path, const char *mode);

void *__wrap_malloc(size_t bytes)
{
    void *memory = refused(ALLOCATION) ? NULL : __real_malloc(bytes);
    allocations += memory != NULL;
    return memory;
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    void *memory = refused(ALLOCATION) ? NULL : __real_calloc(n, bytes);
    allocations += memory != NULL;
    return memory;
}

void __wrap_free(void *memory)
{
    allocations -= memory != NULL;
    __real_free(memory);
}

void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int file, off_t offset)
{
    if (refused(MAPPING)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    void *memory = __real_mmap(address, bytes, protection, flags, file, offset);
    if (memory != MAP_FAILED)
        mapped_bytes += (long)bytes;
    return memory;
}

int __wrap_munmap(void *address, size_t bytes)
{
    mapped_bytes -= (long)bytes;
    return __real_munmap(address, bytes);
}

int __wrap_madvise(void *address, size_t bytes, int advice)
{
    if (!refused(ADVICE))
        return __real_madvise(address, bytes, advice);
    errno = EINVAL;
    return -1;
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*run)(void *), void *argument)
{
    int failed = refused(THREAD) ? EAGAIN
                                 : __real_pthread_create(thread, attributes, run, argument);
    threads += !failed;
    return failed;
}

int __wrap_pthread_join(pthread_t thread, void **result)
{
    threads--;
    return __real_pthread_join(thread, result);
}

int __wrap_pthread_attr_init(pthread_attr_t *attributes)
{
    return refused(THREAD_ATTRIBUTES) ? ENOMEM : __real_pthread_attr_init(attributes);
}

void *__wrap___sched_cpualloc(size_t cpus)
{
    return refused(CPU_SET) ? NULL : __real___sched_cpualloc(cpus);
}

FILE *__wrap_fopen(const char *path, const char *mode)
{
    if (!refused(FILE_OPENING))
        return __real_fopen(path, mode);
    errno = EMFILE;
    return NULL;
}

/* -- A tier's life ------------------------------------------------------------------------- */

enum { BLOCK_BYTES = 64 << 10, ROWS = 24, SLOTS = 12, KEYS = 24, WORKERS = 3 };

static uint8_t primary[ROWS][BLOCK_BYTES];

/* A life ends early where the tier cannot be opened. */
typedef struct life {
    kvreg_tier *tier;
    kvreg_status first_failure; /* KVREG_OK: none yet */
    char text[256];             /* of that failure */
    bool present[KEYS];         /* what the events taken so far tell */
    uint64_t next_job, results;
} life;

static void fill(uint8_t *row, uint32_t key)
{
    memset(row, (int)(key + 1), BLOCK_BYTES);
}

static bool filled(const uint8_t *row, uint32_t key)
{
    return row[0] == key + 1 && memcmp(row, row + 1, BLOCK_BYTES - 1) == 0;
}

static kvreg_tier_stats figures(kvreg_tier *tier)
{
    kvreg_tier_stats stats;
    kvreg_tier_read_stats(tier, &stats);
    return stats;
}

static bool same_state(const kvreg_tier_stats *a, const kvreg_tier_stats *b)
{
    return a->cache.evictions == b->cache.evictions && a->cache.absent == b->cache.absent &&
           a->cache.dropped_oversized == b->cache.dropped_oversized &&
           a->cache.dropped_promised == b->cache.dropped_promised &&
           a->cache.dropped_busy == b->cache.dropped_busy && a->cache.used == b->cache.used &&
           a->cache.pinned == b->cache.pinned && a->cache.promised == b->cache.promised &&
           a->stores_in_flight == b->stores_in_flight &&
           a->loads_in_flight == b->loads_in_flight && a->results == b->results;
}

static void note_failure(life *lived, const kvreg_error *error)
{
    CHECK(plan.refused > 0);
    CHECK(error->status != KVREG_OK && strlen(error->text) > 10);
    if (lived->first_failure == KVREG_OK) {
        lived->first_failure = error->status;
        memcpy(lived->text, error->text, sizeof lived->text);
    }
}

/* One call that may fail for want of memory. */
typedef kvreg_status fallible(life *lived, const void *arguments, kvreg_error *error);

/* Makes the call; one that fails changed nothing, and the next one succeeds. */
static void attempt(life *lived, fallible *call, const void *arguments)
{
    kvreg_error error = { .status = KVREG_OK };
    kvreg_tier_stats before = figures(lived->tier);
    kvreg_status status = call(lived, arguments, &error);
    if (status == KVREG_OK)
        return;
    CHECK(status == KVREG_E_MEMORY && error.status == status);
    CHECK(strncmp(error.text, "no memory ", 10) == 0);
    note_failure(lived, &error);
    kvreg_tier_stats after = figures(lived->tier);
    CHECK(same_state(&before, &after));
    refuse_nothing();
    CHECK(call(lived, arguments, &error) == KVREG_OK);
}

/* Keys first, first + 1, ... in rows that begin with `row`. */
typedef struct request {
    bool load;
    uint32_t first, n, row;
} request;

static kvreg_status submit(life *lived, const void *arguments, kvreg_error *error)
{
    const request *wanted = arguments;
    uint8_t names[KEYS];
    uint32_t rows[KEYS];
    kvreg_key keys[KEYS];
    for (uint32_t i = 0; i < wanted->n; i++) {
        names[i] = (uint8_t)(wanted->first + i);
        rows[i] = wanted->row + i;
        keys[i] = (kvreg_key){ .data = &names[i], .bytes = 1 };
    }
    kvreg_status status = (wanted->load ? kvreg_tier_load : kvreg_tier_store)(
        lived->tier, (int64_t)lived->next_job, keys, rows, wanted->n, &(kvreg_use){ 0 }, error);
    lived->next_job += status == KVREG_OK;
    return status;
}

static kvreg_status take_events(life *lived, const void *arguments, kvreg_error *error)
{
    kvreg_event *list;
    size_t count;
    (void)arguments;
    kvreg_status status = kvreg_tier_take_events(lived->tier, &list, &count, error);
    if (status != KVREG_OK)
        return status;
    for (size_t i = 0; i < count; i++) {
        /* What comes was not there, what goes was: each change is told once and in order. */
        CHECK(lived->present[list[i].key[0]] == list[i].removed);
        lived->present[list[i].key[0]] = !list[i].removed;
    }
    kvreg_os_free(list);
    return KVREG_OK;
}

static kvreg_status reset(life *lived, const void *arguments, kvreg_error *error)
{
    (void)arguments;
    return kvreg_tier_reset(lived->tier, error);
}

static void take_results(life *lived)
{
    kvreg_tier_result result;
    while (kvreg_tier_take_result(lived->tier, &result)) {
        CHECK(result.blocks + result.failed <= result.keys);
        lived->results++;
        kvreg_tier_free_result(&result);
    }
}

static void store(life *lived, uint32_t first, uint32_t n)
{
    request wanted = { false, first, n, 0 };
    for (uint32_t i = 0; i < n; i++)
        fill(primary[i], first + i);
    attempt(lived, submit, &wanted);
    /* With the job in flight: events then keep room for it when they are taken. */
    attempt(lived, take_events, NULL);
    kvreg_tier_drain(lived->tier);
    take_results(lived);
}

static void load(life *lived, uint32_t first, uint32_t n)
{
    request wanted = { true, first, n, 0 };
    memset(primary, 0, sizeof primary);
    attempt(lived, submit, &wanted);
    attempt(lived, take_events, NULL);
    kvreg_tier_drain(lived->tier);
    take_results(lived);
}

static void check_content(life *lived)
{
    attempt(lived, take_events, NULL);
    for (uint32_t i = 0; i < KEYS; i++) {
        uint8_t name = (uint8_t)i;
        kvreg_key key = { .data = &name, .bytes = 1 };
        CHECK(kvreg_tier_lookup(lived->tier, &key) ==
              (lived->present[i] ? KVREG_HIT : KVREG_MISS));
    }
    kvreg_tier_end_step(lived->tier);
}

static void use(life *lived)
{
    store(lived, 0, 8);
    store(lived, 6, 8);
    check_content(lived);
    load(lived, 6, 10);
    for (uint32_t i = 0; i < 10; i++)
        CHECK(i < 8 ? filled(primary[i], 6 + i) : primary[i][0] == 0);
    store(lived, 0, SLOTS + 4);
    check_content(lived);
    CHECK(figures(lived->tier).cache.used == SLOTS);
    attempt(lived, reset, NULL);
    check_content(lived);
    CHECK(figures(lived->tier).cache.used == 0);
    store(lived, 3, 4);
    load(lived, 3, 4);
    for (uint32_t i = 0; i < 4; i++)
        CHECK(filled(primary[i], 3 + i));
}

/* Ends a tier with a job in flight, results nobody took and events nobody took. */
static void end(life *lived)
{
    attempt(lived, submit, &(request){ false, 10, 6, 0 });
    kvreg_tier_close(lived->tier);
    kvreg_tier_stats stats = figures(lived->tier);
    CHECK(stats.loads_in_flight == 0 && stats.stores_in_flight == 0);
    CHECK(stats.cache.pinned == 0 && stats.results == 1);
    CHECK(lived->results + stats.results == lived->next_job);
    attempt(lived, take_events, NULL);
    CHECK(lived->present[15] && lived->present[3]);
    kvreg_tier_free(lived->tier);
}

/* From opening to freeing, under the plan; nothing is left afterwards. */
static life live(const kvreg_tier_config *config)
{
    life lived = { .first_failure = KVREG_OK };
    kvreg_error error;
    long allocated = allocations;
    kvreg_status status = kvreg_tier_open(config, &lived.tier, &error);
    if (status == KVREG_OK) {
        use(&lived);
        end(&lived);
    } else {
        CHECK(error.status == status && lived.tier == NULL);
        note_failure(&lived, &error);
    }
    refuse_nothing();
    CHECK(allocations == allocated && mapped_bytes == 0 && threads == 0);
    return lived;
}

/* What a refused call of a kind leads to. */
typedef struct outcome {
    call_kind kind;
    kvreg_status status; /* KVREG_OK: nobody notices */
    const char *texts[3]; /* one of them begins the error's text */
    size_t least;        /* calls of the kind in a life, at least */
} outcome;

static bool begins_with_one(const char *text, const char *const *texts)
{
    for (int i = 0; i < 3 && texts[i] != NULL; i++)
        if (strncmp(text, texts[i], strlen(texts[i])) == 0)
            return true;
    return false;
}

/* Lives once for each call of the kind, with that call refused. */
static void live_under_refusals(const kvreg_tier_config *config, const outcome *expected,
                                bool for_good)
{
    for (size_t granted = 0;; granted++) {
        refuse(expected->kind, granted, for_good);
        life lived = live(config);
        if (plan.refused == 0) {
            CHECK(lived.first_failure == KVREG_OK && granted >= expected->least);
            return;
        }
        CHECK(lived.first_failure == expected->status);
        CHECK(lived.first_failure == KVREG_OK || begins_with_one(lived.text, expected->texts));
    }
}

static kvreg_tier_config config(void)
{
    return (kvreg_tier_config){
        .primary = { primary, BLOCK_BYTES, ROWS },
        .block_bytes = BLOCK_BYTES,
        .capacity_bytes = SLOTS * BLOCK_BYTES,
        .workers = WORKERS,
        .policy = "lru",
        .backend = &kvreg_backend_dram,
        .verify = true,
        .watched = true,
    };
}

static void refuse_each(const outcome *expected, const kvreg_tier_config *chosen)
{
    live_under_refusals(chosen, expected, false);
    live_under_refusals(chosen, expected, true);
}

static void a_tier_lives_without_faults(void)
{
    kvreg_tier_config chosen = config();
    refuse_nothing();
    life lived = live(&chosen);
    CHECK(lived.first_failure == KVREG_OK && lived.results == lived.next_job - 1);
}

static void no_memory_for_an_object_is_an_error_that_changes_nothing(void)
{
    /* The tier, its workers, and for each of eight jobs itself and its events. */
    outcome expected = { ALLOCATION, KVREG_E_MEMORY, { "no memory " }, 2 + 8 + 3 };
    kvreg_tier_config chosen = config();
    refuse_each(&expected, &chosen);
}

static void a_refused_mapping_is_an_error(void)
{
    outcome expected = { MAPPING, KVREG_E_MEMORY, { "the system refused to map " }, 2 };
    kvreg_tier_config chosen = config();
    refuse_each(&expected, &chosen);
}

static void a_refused_thread_is_an_error(void)
{
    outcome starts = { THREAD, KVREG_E_SYSTEM, { "cannot start thread kvreg-" }, WORKERS + 1 };
    outcome attributes = starts;
    attributes.kind = THREAD_ATTRIBUTES;
    kvreg_tier_config chosen = config();
    chosen.memory.prefault = true;
    refuse_each(&starts, &chosen);
    refuse_each(&attributes, &chosen);
}

static void no_memory_to_pin_a_thread_is_an_error(void)
{
    static const int cpus[WORKERS];
    outcome expected = { CPU_SET, KVREG_E_SYSTEM, { "cannot start thread kvreg-" }, WORKERS };
    kvreg_tier_config chosen = config();
    chosen.worker_cpus = cpus;
    refuse_each(&expected, &chosen);
}

static void advice_that_is_refused_goes_unnoticed(void)
{
    outcome expected = { ADVICE, KVREG_OK, { NULL }, 2 };
    kvreg_tier_config chosen = config();
    chosen.memory.prefault = true;
    refuse_each(&expected, &chosen);
}

static void what_the_system_does_not_tell_goes_unnoticed(void)
{
    outcome files = { FILE_OPENING, KVREG_OK, { NULL }, 3 };
    outcome cpus = { CPU_SET, KVREG_OK, { NULL }, 1 };
    kvreg_tier_config chosen = config();
    chosen.workers = 0;
    refuse_each(&files, &chosen);
    refuse_each(&cpus, &chosen);
}

/* -- Threads that are spread --------------------------------------------------------------- */

static void *run_until_told(void *told)
{
    while (!atomic_load((_Atomic bool *)told))
        sched_yield();
    return NULL;
}

static bool is_on_one_cpu(const kvreg_os_thread *thread)
{
    cpu_set_t set;
    CHECK(pthread_getaffinity_np(thread->handle, sizeof set, &set) == 0);
    return CPU_COUNT(&set) == 1;
}

/* Not on the first one either, with all others of its kind. */
static void a_thread_runs_anywhere_where_its_cpu_cannot_be_found(void)
{
    bool is_only_one = kvreg_os_allowed_cpus() == 1;
    kvreg_error error;
    for (size_t granted = 0;; granted++) {
        kvreg_os_thread thread;
        _Atomic bool told = false;
        CHECK(kvreg_os_thread_start(&thread, "test", -1, run_until_told, &told, &error) ==
              KVREG_OK);
        refuse(CPU_SET, granted, false);
        kvreg_os_thread_spread(&thread, 1);
        refuse_nothing();
        CHECK(is_on_one_cpu(&thread) == (is_only_one || plan.refused == 0));
        atomic_store(&told, true);
        kvreg_os_thread_join(&thread);
        if (plan.refused == 0)
            return;
    }
}

/* -- A copy on threads of its own ------------------------------------------------------------ */

enum { COPY_BYTES = 4 << 20, COPIES = 3 };

static uint8_t copy_from[COPIES][COPY_BYTES], copy_to[COPIES][COPY_BYTES];

/* Lives once for each call of the kind, as above. */
static void copy_under_refusals(call_kind kind, kvreg_status expected, size_t least)
{
    const kvreg_copy_kernel *kernel;
    const uint32_t ids[COPIES] = { 0, 1, 2 };
    kvreg_rows dst = { copy_to, COPY_BYTES, COPIES }, src = { copy_from, COPY_BYTES, COPIES };
    kvreg_error error;
    CHECK(kvreg_copy_choose(COPY_BYTES, sizeof copy_to, &kernel, &error) == KVREG_OK);
    memset(copy_from, 7, sizeof copy_from);
    for (size_t granted = 0;; granted++) {
        long allocated = allocations;
        memset(copy_to, 0, sizeof copy_to);
        refuse(kind, granted, false);
        kvreg_status status = kvreg_copy_on_threads(COPIES, kernel, &dst, ids, &src, ids,
                                                    COPY_BYTES, COPIES, &error);
        refuse_nothing();
        CHECK(allocations == allocated && threads == 0);
        CHECK(status == (plan.refused > 0 ? expected : KVREG_OK));
        CHECK(copy_to[0][0] == (status == KVREG_OK ? 7 : 0));
        CHECK(copy_to[COPIES - 1][COPY_BYTES - 1] == copy_to[0][0]);
        if (plan.refused == 0) {
            CHECK(granted >= least);
            return;
        }
        CHECK(strlen(error.text) > 10);
    }
}

static void a_copy_that_cannot_have_its_threads_copies_nothing(void)
{
    copy_under_refusals(ALLOCATION, KVREG_E_MEMORY, 2);
    copy_under_refusals(THREAD, KVREG_E_SYSTEM, COPIES - 1);
}

int main(void)
{
    RUN(a_tier_lives_without_faults);
    RUN(no_memory_for_an_object_is_an_error_that_changes_nothing);
    RUN(a_refused_mapping_is_an_error);
    RUN(a_refused_thread_is_an_error);
    RUN(no_memory_to_pin_a_thread_is_an_error);
    RUN(advice_that_is_refused_goes_unnoticed);
    RUN(what_the_system_does_not_tell_goes_unnoticed);
    RUN(a_thread_runs_anywhere_where_its_cpu_cannot_be_found);
    RUN(a_copy_that_cannot_have_its_threads_copies_nothing);
    return check_end();
}
