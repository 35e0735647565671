/* Lookups in a C loop, for bench_registry.py: the registry's, and those of a dict of types. */
#include <kvreg/specs.h>

static PyObject *registry(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *spec;
    Py_ssize_t number;
    if (!PyArg_ParseTuple(args, "On", &spec, &number))
        return NULL;
    for (Py_ssize_t i = 0; i < number; i++)
        if (kvreg_specs_lookup(spec) == NULL)
            return PyErr_Format(PyExc_LookupError, "the spec's type is not registered");
    Py_RETURN_NONE;
}

static PyObject *dict(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *mapping, *spec;
    Py_ssize_t number;
    if (!PyArg_ParseTuple(args, "OOn", &mapping, &spec, &number))
        return NULL;
    for (Py_ssize_t i = 0; i < number; i++)
        if (PyDict_GetItem(mapping, (PyObject *)Py_TYPE(spec)) == NULL)
            return PyErr_Format(PyExc_LookupError, "the spec's type is not in the dict");
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"registry", registry, METH_VARARGS, NULL},
    {"dict", dict, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "registry_from_c", .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit_registry_from_c(void)
{
    if (kvreg_specs_import() < 0)
        return NULL;
    return PyModule_Create(&definition);
}
