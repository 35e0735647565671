/* A tree of files in place of /proc and /sys: `root` is what a test hands to the functions that
 * read them. */
#ifndef KVREG_FAKE_ROOT_H
#define KVREG_FAKE_ROOT_H

#include <string.h>
#include <sys/stat.h>

#include "check.h"

static char root[64];

static inline void new_root(void)
{
    snprintf(root, sizeof root, "/tmp/kvreg-test-root-XXXXXX");
    CHECK(mkdtemp(root) != NULL);
}

static inline void remove_root(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    CHECK(system(command) == 0);
}

/* Writes a file below the root, with the folders above it. */
static inline void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    CHECK(file != NULL);
    fputs(text, file);
    fclose(file);
}

#endif
