/* The states of the type cache that lookups from Python cannot bring about in a test's time. */
#include <Python.h>

#include "python/type_cache.h"

static kvreg_type_cache cache;

static bool answers(PyTypeObject *type, PyObject *value)
{
    const kvreg_type_cache_entry *entry = kvreg_type_cache_find(&cache, type);
    return entry != NULL && entry->value == value;
}

static void begin_at_epoch(uint32_t epoch)
{
    memset(&cache, 0, sizeof cache);
    cache.series = kvreg_tag_series();
    cache.epoch = epoch;
}

/* No entry of epoch 1 comes back to life when the epochs begin anew. */
static PyObject *survives_the_last_epoch(PyObject *module, PyObject *cls)
{
    (void)module;
    PyTypeObject *type = (PyTypeObject *)cls;
    kvreg_type_tag_assign(type);
    begin_at_epoch(1);
    kvreg_type_cache_store(&cache, type, cls);
    const bool before = answers(type, cls);
    cache.epoch = UINT32_MAX;
    kvreg_type_cache_forget(&cache);
    const bool after = kvreg_type_cache_find(&cache, type) != NULL;
    kvreg_type_cache_store(&cache, type, NULL);
    return Py_BuildValue("(NNNI)", PyBool_FromLong(before), PyBool_FromLong(after),
                         PyBool_FromLong(answers(type, NULL)), (unsigned int)cache.epoch);
}

/* Stores each class of a tuple, in order; returns which of them the cache still answers for. */
static PyObject *remembered(PyObject *module, PyObject *classes)
{
    (void)module;
    const Py_ssize_t n = PyTuple_GET_SIZE(classes);
    begin_at_epoch(1);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyTypeObject *type = (PyTypeObject *)PyTuple_GET_ITEM(classes, i);
        kvreg_type_tag_assign(type);
        kvreg_type_cache_store(&cache, type, (PyObject *)type);
    }
    PyObject *list = PyList_New(0);
    for (Py_ssize_t i = 0; list != NULL && i < n; i++) {
        PyObject *cls = PyTuple_GET_ITEM(classes, i);
        if (answers((PyTypeObject *)cls, cls) && PyList_Append(list, cls) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* The place of a class in the cache; a class without a tag has none. */
static PyObject *place(PyObject *module, PyObject *cls)
{
    (void)module;
    kvreg_type_tag_assign((PyTypeObject *)cls);
    const uint32_t tag = kvreg_type_tag((PyTypeObject *)cls);
    if (tag == 0)
        Py_RETURN_NONE;
    return PyLong_FromUnsignedLong(tag % KVREG_TYPE_CACHE_SETS);
}

static PyMethodDef methods[] = {
    {"survives_the_last_epoch", survives_the_last_epoch, METH_O, NULL},
    {"remembered", remembered, METH_O, NULL},
    {"place", place, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "type_cache_probe", .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit_type_cache_probe(void)
{
    if (kvreg_type_tag_init() < 0)
        return NULL;
    return PyModule_Create(&definition);
}
