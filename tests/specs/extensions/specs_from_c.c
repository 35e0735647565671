/* A C extension that uses <kvreg/specs.h> as its users would. */
#include <kvreg/specs.h>

static PyObject *lookup(PyObject *module, PyObject *spec)
{
    (void)module;
    PyObject *metadata = kvreg_specs_lookup(spec);
    if (metadata == NULL) {
        if (PyErr_Occurred())
            return NULL;
        Py_RETURN_NONE;
    }
    Py_INCREF(metadata);
    return metadata;
}

/* Looks `spec` up ten million times, and drops the borrowed references as C callers do. */
static PyObject *lookup_ten_million_times(PyObject *module, PyObject *spec)
{
    (void)module;
    for (int i = 0; i < 10000000; i++)
        if (kvreg_specs_lookup(spec) == NULL)
            return PyErr_Format(PyExc_AssertionError, "lookup %d found nothing", i);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"lookup", lookup, METH_O, NULL},
    {"lookup_ten_million_times", lookup_ten_million_times, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "specs_from_c", .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit_specs_from_c(void)
{
    if (kvreg_specs_import() < 0)
        return NULL;
    return PyModule_Create(&definition);
}
