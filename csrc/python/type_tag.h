/* The version tag of a class, the number that CPython's own method cache goes by.
 *
 * CPython gives a class a number that no class had before. It takes the number away when an
 * attribute or the MRO of the class or of one of its bases changes, and gives another later. So
 * a class seen again with the tag it had is the same class, unchanged; a new class at a reused
 * address has another tag. This is what lets a cache hold no reference to the class.
 *
 * CPython does not promise any of this between minor versions: everything that depends on the
 * version stands here. "No tag" (0) is always a correct answer; it costs a walk along the MRO.
 *
 * All functions need the GIL. In a build without one no class has a tag. */
#ifndef KVREG_PYTHON_TYPE_TAG_H
#define KVREG_PYTHON_TYPE_TAG_H

#include <Python.h>
#include <stdint.h>

/* Prepares this file's state, once per process. 0, or -1 with an exception set. */
int kvreg_type_tag_init(void);

/* Asks CPython to give `type` a tag if it has none. It may refuse: the numbers are used up, or
 * (from 3.13 on) the class was changed too often. Can run Python code, through the __eq__ of
 * keys in the class's __dict__ that are not plain strings. Never sets an exception. */
void kvreg_type_tag_assign(PyTypeObject *type);

/* Replaces what kvreg_type_tag_assign() calls; NULL restores CPython's own. For tests: the
 * numbers cannot be used up in a test's time. */
void kvreg_type_tag_replace_assigner(void (*assigner)(PyTypeObject *type));

/* The tag of `type`, or 0 if it has none now. */
static inline uint32_t kvreg_type_tag(PyTypeObject *type)
{
#if defined(Py_GIL_DISABLED)
    (void)type;
    return 0;
#elif PY_VERSION_HEX >= 0x030D0000
    return type->tp_version_tag;
#else
    /* A class whose base was refused a tag can have a number that is not valid. */
    return (type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG) ? type->tp_version_tag : 0;
#endif
}

#if PY_VERSION_HEX < 0x030B0000
extern PyTypeObject kvreg_tag_sentinel;
extern uint32_t kvreg_tag_series_now;
void kvreg_tag_series_begin(void);
#endif

/* The number of the current series of tags. Within a series no tag is given twice; what was
 * remembered in an earlier one means nothing. CPython 3.10 begins a new series, from 1, on
 * sys._clear_type_cache(): every class loses its tag then, and so does the sentinel. */
static inline uint32_t kvreg_tag_series(void)
{
#if PY_VERSION_HEX < 0x030B0000
    if (!(kvreg_tag_sentinel.tp_flags & Py_TPFLAGS_VALID_VERSION_TAG))
        kvreg_tag_series_begin();
    return kvreg_tag_series_now;
#else
    return 0;
#endif
}

#endif
