#include "python/type_tag.h"

#if PY_VERSION_HEX < 0x030C0000
static PyObject *any_name; /* an attribute to look up, as that is what assigns a tag */
#endif

static void assign_by_cpython(PyTypeObject *type)
{
#if PY_VERSION_HEX >= 0x030C0000
    PyUnstable_Type_AssignVersionTag(type);
#else
    _PyType_Lookup(type, any_name);
#endif
}

static void (*assign)(PyTypeObject *type) = assign_by_cpython;

void kvreg_type_tag_assign(PyTypeObject *type)
{
    if (kvreg_type_tag(type) == 0)
        assign(type);
}

void kvreg_type_tag_replace_assigner(void (*assigner)(PyTypeObject *type))
{
    assign = assigner != NULL ? assigner : assign_by_cpython;
}

#if PY_VERSION_HEX < 0x030B0000
PyTypeObject kvreg_tag_sentinel = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "kvreg.specs._TagSentinel",
    .tp_flags = Py_TPFLAGS_DEFAULT,
};
uint32_t kvreg_tag_series_now;

void kvreg_tag_series_begin(void)
{
    /* CPython gives no tag to a class that is not ready. So nobody else's attribute lookup can
     * give the sentinel one, and its tag, once lost, stays lost until it is missed here. */
    kvreg_tag_sentinel.tp_flags |= Py_TPFLAGS_READY;
    assign_by_cpython(&kvreg_tag_sentinel);
    kvreg_tag_sentinel.tp_flags &= ~Py_TPFLAGS_READY;
    kvreg_tag_series_now++;
}
#endif

int kvreg_type_tag_init(void)
{
#if PY_VERSION_HEX < 0x030C0000
    any_name = PyUnicode_InternFromString("__doc__");
    if (any_name == NULL)
        return -1;
#endif
#if PY_VERSION_HEX < 0x030B0000
    if (PyType_Ready(&kvreg_tag_sentinel) < 0)
        return -1;
    kvreg_tag_series_begin();
#endif
    return 0;
}
