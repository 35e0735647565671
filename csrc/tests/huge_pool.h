/* The system's reserve of 2 MiB huge pages, made larger for a test and given back at its end. */
#ifndef KVREG_HUGE_POOL_H
#define KVREG_HUGE_POOL_H

#include <stdbool.h>
#include <sys/file.h>

#include "check.h"

#define POOL_FOLDER "/sys/kernel/mm/hugepages/hugepages-2048kB/"

enum { POOL_PAGE = 2 << 20 };

static FILE *pool_file; /* locked while the reserve is larger: other tests may enlarge it too */
static long pool_added;

static inline long read_pool(const char *name)
{
    char path[128];
    long pages = 0;
    snprintf(path, sizeof path, POOL_FOLDER "%s", name);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return 0;
    CHECK(fscanf(file, "%ld", &pages) == 1);
    fclose(file);
    return pages;
}

static inline void write_pool(long pages)
{
    rewind(pool_file);
    fprintf(pool_file, "%ld\n", pages);
    fflush(pool_file);
}

static inline void shrink_pool(void)
{
    if (pool_file == NULL)
        return;
    write_pool(read_pool("nr_hugepages") - pool_added);
    fclose(pool_file);
    pool_file = NULL;
}

/* Adds pages, until shrink_pool() or the end of the program; false where that is not allowed or
 * the machine has not as many. */
static inline bool grow_pool(long pages)
{
    long before;
    pool_file = fopen(POOL_FOLDER "nr_hugepages", "r+e");
    if (pool_file == NULL)
        return false;
    CHECK(flock(fileno(pool_file), LOCK_EX) == 0);
    atexit(shrink_pool);
    before = read_pool("nr_hugepages");
    write_pool(before + pages);
    pool_added = read_pool("nr_hugepages") - before;
    if (pool_added == pages)
        return true;
    shrink_pool();
    return false;
}

#endif
