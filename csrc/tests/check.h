/* What the C tests are written with: CHECK in a test, RUN for each test, return check_end().
 * The first failure is reported with its place and ends the program with status 1. */
#ifndef KVREG_CHECK_H
#define KVREG_CHECK_H

#include <stdio.h>
#include <stdlib.h>

static int check_passed;

static inline void check_failed(const char *file, int line, const char *expression)
{
    fflush(stdout);
    fprintf(stderr, "%s:%d: not true: %s\n%d passed, 1 failed\n", file, line, expression,
            check_passed);
    exit(1);
}

/* Independent of NDEBUG, unlike assert(). */
#define CHECK(expression) \
    ((expression) ? (void)0 : check_failed(__FILE__, __LINE__, #expression))

#define RUN(test) check_run(test, #test)

static inline void check_run(void (*test)(void), const char *name)
{
    printf("%s\n", name);
    test();
    check_passed++;
}

/* The last line of main(): `return check_end();`. */
static inline int check_end(void)
{
    printf("%d passed, 0 failed\n", check_passed);
    return 0;
}

#endif
