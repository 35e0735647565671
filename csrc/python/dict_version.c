#include "python/dict_version.h"

#if PY_VERSION_HEX >= 0x030C0000

uint64_t kvreg_dict_changes;
static int watcher = -1;

static int count(PyDict_WatchEvent event, PyObject *dict, PyObject *key, PyObject *value)
{
    (void)event, (void)dict, (void)key, (void)value;
    kvreg_dict_changes++;
    return 0;
}

int kvreg_dict_version_init(void)
{
    if (watcher >= 0)
        return 0;
    watcher = PyDict_AddWatcher(count);
    if (watcher >= 0)
        return 0;
    PyErr_SetString(PyExc_ImportError, "all dict watchers of this interpreter are in use");
    return -1;
}

int kvreg_dict_watch(PyObject *dict)
{
    return PyDict_Watch(watcher, dict);
}

#else

int kvreg_dict_version_init(void)
{
    return 0;
}

int kvreg_dict_watch(PyObject *dict)
{
    (void)dict;
    return 0;
}

#endif
