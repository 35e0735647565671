/* Takes the pages of a mapping from the machine in the background, so that the first copy to each
 * does not wait for it. Copies may run at the same time: no byte changes. */
#ifndef KVREG_PREFAULT_H
#define KVREG_PREFAULT_H

#include "os.h"

typedef struct kvreg_prefault kvreg_prefault;

/* Starts a thread that does it, from the first page on, and ends when it is through or the machine
 * has no more. `memory` is aligned to a page and `bytes` a multiple of it. */
kvreg_status kvreg_prefault_start(void *memory, size_t bytes, kvreg_prefault **prefault,
                                  kvreg_error *error);

/* Ends the thread, wherever it is: before the mapping goes. Waits for a small part of its work, at
 * most for one huge page. In a child made by fork() there is no thread to wait for. */
void kvreg_prefault_stop(kvreg_prefault *prefault);

#endif
