#include "prefault.h"

#include <stdatomic.h>

/* What is populated in one go. It delays whoever maps memory in this process meanwhile, such as the
 * stack of the tier's next thread, and whoever stops this one: a tenth of a millisecond on ordinary
 * pages. */
enum { PIECE_BYTES = 256 << 10 };

struct kvreg_prefault {
    uint8_t *memory;
    size_t bytes;
    uint32_t forks; /* kvreg_os_fork_count() where the thread was started */
    _Atomic bool stop;
    kvreg_os_thread thread;
};

static void *populate(void *argument)
{
    kvreg_prefault *prefault = argument;
    size_t done = 0;
    bool able = true;
    /* Relaxed: nothing else is read because of it. */
    while (able && done < prefault->bytes &&
           !atomic_load_explicit(&prefault->stop, memory_order_relaxed)) {
        size_t left = prefault->bytes - done;
        size_t piece = left < PIECE_BYTES ? left : PIECE_BYTES;
        able = kvreg_os_populate(prefault->memory + done, piece);
        done += piece;
    }
    return NULL;
}

kvreg_status kvreg_prefault_start(void *memory, size_t bytes, kvreg_prefault **started,
                                  kvreg_error *error)
{
    kvreg_prefault *prefault = kvreg_os_alloc(sizeof *prefault);
    if (prefault == NULL)
        return kvreg_fail(error, KVREG_E_MEMORY, "no memory to describe a prefault");
    prefault->memory = memory;
    prefault->bytes = bytes;
    prefault->forks = kvreg_os_fork_count();
    atomic_init(&prefault->stop, false);
    kvreg_status status = kvreg_os_thread_start(&prefault->thread, "kvreg-prefault", -1, populate,
                                                prefault, error);
    if (status == KVREG_OK)
        *started = prefault;
    else
        kvreg_os_free(prefault);
    return status;
}

void kvreg_prefault_stop(kvreg_prefault *prefault)
{
    if (prefault->forks == kvreg_os_fork_count()) {
        atomic_store_explicit(&prefault->stop, true, memory_order_relaxed);
        kvreg_os_thread_join(&prefault->thread);
    }
    kvreg_os_free(prefault);
}
