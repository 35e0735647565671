/* How every kvreg function that can fail says so. */
#ifndef KVREG_ERROR_H
#define KVREG_ERROR_H

#include <stdarg.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum kvreg_status {
    KVREG_OK = 0,
    KVREG_E_ARGUMENT, /* a value that the caller passed is not allowed */
    KVREG_E_MEMORY,   /* the machine, a cgroup or the allocator has too little memory */
    KVREG_E_SYSTEM,   /* a system call failed for another reason */
} kvreg_status;

/* A function that takes a `kvreg_error *` fills it exactly when it does not return KVREG_OK; one that
 * may warn says so. */
typedef struct kvreg_error {
    kvreg_status status;
    char text[256]; /* one sentence for people: the value, and what is allowed */
} kvreg_error;

/* Fills *error as printf would (longer text is cut) and returns `status`, so that a caller can
 * write `return kvreg_fail(...)`. */
__attribute__((format(printf, 3, 4)))
static inline kvreg_status kvreg_fail(kvreg_error *error, kvreg_status status,
                                      const char *format, ...)
{
    va_list arguments;
    error->status = status;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    return status;
}

#ifdef __cplusplus
}
#endif
#endif
