/* The KV-cache spec registry, from C.
 *
 * Which manager owns this spec? The answer that kvreg.KVCacheSpecRegistry gives in Python, at
 * the price of a function call and a few compares.
 *
 *     #include <kvreg/specs.h>
 *
 *     if (kvreg_specs_import() < 0)              once, in the module's init function
 *         return NULL;
 *     ...
 *     PyObject *metadata = kvreg_specs_lookup(spec);
 *     if (metadata == NULL && PyErr_Occurred())
 *         return NULL;
 *
 * Compile with the folder that kvreg.get_include() names on the include path; there is nothing
 * to link. Each C file that includes this header imports for itself. Calls need the GIL. */
#ifndef KVREG_SPECS_H
#define KVREG_SPECS_H

#include <Python.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the capsule kvreg.specs._C_API points to. It lives as long as the process. Later
 * versions add functions at its end and never change or remove one. */
#define KVREG_SPECS_API_VERSION 1

typedef struct kvreg_specs_api {
    unsigned int version; /* KVREG_SPECS_API_VERSION of the kvreg that was imported */
    PyObject *(*lookup)(PyObject *spec);
} kvreg_specs_api;

static const kvreg_specs_api *kvreg_specs_api_imported = NULL;

/* Imports kvreg.specs. Returns 0, or -1 with an exception set: kvreg cannot be imported, or is
 * older than this header. */
static inline int kvreg_specs_import(void)
{
    const kvreg_specs_api *api =
        (const kvreg_specs_api *)PyCapsule_Import("kvreg.specs._C_API", 0);
    if (api == NULL)
        return -1;
    if (api->version < KVREG_SPECS_API_VERSION) {
        PyErr_Format(PyExc_ImportError,
                     "kvreg.specs has version %u of its C API; this module needs %u or later",
                     api->version, (unsigned int)KVREG_SPECS_API_VERSION);
        return -1;
    }
    kvreg_specs_api_imported = api;
    return 0;
}

/* The kvreg.KVCacheSpecMetadata of the nearest class in type(spec).__mro__ that is registered.
 *
 * A borrowed reference; the registry never lets go of what is registered, so it stays valid.
 * NULL without an exception: no class of the MRO is registered. NULL with an exception: this
 * was the first lookup, and the bootstrap of the registry raised it; or memory ran out.
 *
 * The first lookup may run the bootstrap, that is, Python code. Needs kvreg_specs_import(). */
static inline PyObject *kvreg_specs_lookup(PyObject *spec)
{
    return kvreg_specs_api_imported->lookup(spec);
}

#ifdef __cplusplus
}
#endif
#endif
