#include "kvreg/error.h"

#include <stdarg.h>
#include <stdio.h>

kvreg_status kvreg_fail(kvreg_error *error, kvreg_status status, const char *format, ...)
{
    va_list arguments;
    error->status = status;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    return status;
}
