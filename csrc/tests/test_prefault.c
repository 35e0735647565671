#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "prefault.h"

#include <sched.h>
#include <string.h>
#include <sys/wait.h>

#include "pages.h"

static const size_t MIB = (size_t)1 << 20;

/* On ordinary pages, which take longest. */
static uint8_t *map(size_t bytes)
{
    uint8_t *memory = kvreg_os_map(bytes);
    CHECK(memory != NULL);
    kvreg_os_avoid_huge_pages(memory, bytes);
    return memory;
}

static kvreg_prefault *start(void *memory, size_t bytes)
{
    kvreg_prefault *prefault = NULL;
    kvreg_error error;
    CHECK(kvreg_prefault_start(memory, bytes, &prefault, &error) == KVREG_OK);
    return prefault;
}

static void pages_come_that_nobody_touched(void)
{
    /* No multiple of a piece. */
    size_t bytes = 9 * MIB + kvreg_os_page_round(1), pages = bytes / kvreg_os_page_round(1);
    uint8_t *memory = map(bytes);
    kvreg_prefault *prefault = start(memory, bytes);
    while (!emulated() && resident_pages(memory, bytes) < pages)
        sched_yield();
    kvreg_prefault_stop(prefault);
    for (size_t i = 0; i < bytes; i++)
        CHECK(memory[i] == 0);
    CHECK(emulated() || faults_of_writing(memory, bytes) < pages / 4);
    kvreg_os_unmap(memory, bytes);
}

static void stopping_does_not_wait_for_the_rest(void)
{
    size_t bytes = 3072 * MIB;
    uint8_t *memory = map(bytes);
    kvreg_prefault_stop(start(memory, bytes));
    CHECK(resident_pages(memory, bytes) < bytes / kvreg_os_page_round(1));
    kvreg_os_unmap(memory, bytes);
}

static void what_is_written_meanwhile_stays(void)
{
    size_t bytes = 48 * MIB, block = 4096 + 512;
    uint8_t *memory = map(bytes), content[4096 + 512];
    kvreg_prefault *prefault = start(memory, bytes);
    for (size_t i = bytes / block; i-- > 0;)
        memset(memory + i * block, 1 + (int)(i % 255), block);
    kvreg_prefault_stop(prefault);
    for (size_t i = 0; i < bytes / block; i++) {
        memset(content, 1 + (int)(i % 255), block);
        CHECK(memcmp(memory + i * block, content, block) == 0);
    }
    kvreg_os_unmap(memory, bytes);
}

static void a_child_made_by_fork_has_no_thread_to_wait_for(void)
{
    size_t bytes = 1024 * MIB;
    uint8_t *memory = map(bytes);
    kvreg_prefault *prefault = start(memory, bytes);
    int status;
    pid_t child = fork();
    if (child == 0) {
        kvreg_prefault_stop(prefault);
        kvreg_os_unmap(memory, bytes);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    kvreg_prefault_stop(prefault);
    kvreg_os_unmap(memory, bytes);
}

int main(void)
{
    RUN(pages_come_that_nobody_touched);
    RUN(stopping_does_not_wait_for_the_rest);
    RUN(what_is_written_meanwhile_stays);
    RUN(a_child_made_by_fork_has_no_thread_to_wait_for);
    return check_end();
}
