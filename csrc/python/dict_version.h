/* Whether a dict has changed, told without looking into it.
 *
 * Up to CPython 3.11 every dict has a version, a number that no dict had before; each change of
 * its content gives it another. From 3.12 on CPython reports each change of a watched dict
 * instead, and the number of all changes reported so far is the version of every watched dict.
 * So a dict whose version is the same is unchanged, and one whose version is not may be.
 *
 * CPython reports a change before it makes it, and makes it before it runs any Python code; only
 * another watcher's callback comes in between, and must not ask for versions.
 *
 * All functions need the GIL. */
#ifndef KVREG_PYTHON_DICT_VERSION_H
#define KVREG_PYTHON_DICT_VERSION_H

#include <Python.h>
#include <stdint.h>

/* Prepares this file's state, once per process. 0, or -1 with an ImportError set: all of the
 * interpreter's watchers (from 3.12 on) are in use. */
int kvreg_dict_version_init(void);

/* Watches `dict` (exactly a dict) from now on; to watch it again does nothing. It is watched for
 * as long as it lives. Runs no Python code. 0, or -1 with an exception set. */
int kvreg_dict_watch(PyObject *dict);

#if PY_VERSION_HEX >= 0x030C0000
extern uint64_t kvreg_dict_changes;
#endif

/* The version of a dict that is watched. */
static inline uint64_t kvreg_dict_version(PyObject *dict)
{
#if PY_VERSION_HEX >= 0x030C0000
    (void)dict;
    return kvreg_dict_changes;
#else
    return ((PyDictObject *)dict)->ma_version_tag;
#endif
}

#endif
