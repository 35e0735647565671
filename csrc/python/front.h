/* A native front for a classmethod: it answers the common call, the Python function all others.
 *
 * The front is a classmethod object that takes the place of the original one. What it wraps is
 * in everything but its type the original function: attributes are read from that and written
 * to that. Only a call with one positional argument, on the very class that the front was made
 * for, is answered natively; on a subclass and with other arguments the original function runs.
 *
 * All functions need the GIL. */
#ifndef KVREG_PYTHON_FRONT_H
#define KVREG_PYTHON_FRONT_H

#include <Python.h>

/* Answers `owner.method(argument)`. A new reference, or NULL with an exception set. */
typedef PyObject *(*kvreg_front_answer)(PyObject *context, PyObject *argument);

/* Prepares this file's types, once per process. 0, or -1 with an exception set. */
int kvreg_front_init(void);

/* Returns a front for `original`, the function of a classmethod of `owner`. It keeps references
 * to the three objects. NULL with an exception set: out of memory. */
PyObject *kvreg_front_new(PyObject *owner, PyObject *original, kvreg_front_answer answer,
                          PyObject *context);

#endif
