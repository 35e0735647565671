#include "python/front.h"

#include <stddef.h>

/* --- the function --- */

typedef struct front_function {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *owner;
    PyObject *original;
    PyObject *context; /* of `answer` */
    kvreg_front_answer answer;
    PyObject *weakrefs;
} front_function;

static PyObject *function_call(PyObject *self, PyObject *const *args, size_t nargsf,
                               PyObject *kwnames)
{
    const front_function *front = (front_function *)self;
    if (PyVectorcall_NARGS(nargsf) == 2 && kwnames == NULL && args[0] == front->owner)
        return front->answer(front->context, args[1]);
    return PyObject_Vectorcall(front->original, args, nargsf, kwnames);
}

static PyObject *function_get_attribute(PyObject *self, PyObject *name)
{
    return PyObject_GetAttr(((front_function *)self)->original, name);
}

static int function_set_attribute(PyObject *self, PyObject *name, PyObject *value)
{
    return PyObject_SetAttr(((front_function *)self)->original, name, value);
}

static PyObject *function_repr(PyObject *self)
{
    return PyObject_Repr(((front_function *)self)->original);
}

static PyObject *function_bind(PyObject *self, PyObject *object, PyObject *type)
{
    (void)type;
    if (object == NULL || object == Py_None)
        return Py_NewRef(self);
    return PyMethod_New(self, object);
}

/* There is no tp_clear: a front that lost its original could not be called, and its cycles go
 * through the class's dict, which the collector clears. */
static int function_traverse(PyObject *self, visitproc visit, void *arg)
{
    const front_function *front = (front_function *)self;
    Py_VISIT(front->owner);
    Py_VISIT(front->original);
    Py_VISIT(front->context);
    return 0;
}

static void function_dealloc(PyObject *self)
{
    front_function *front = (front_function *)self;
    PyObject_GC_UnTrack(self);
    if (front->weakrefs != NULL)
        PyObject_ClearWeakRefs(self);
    Py_XDECREF(front->owner);
    Py_XDECREF(front->original);
    Py_XDECREF(front->context);
    PyObject_GC_Del(self);
}

static PyTypeObject function_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "kvreg.vllm._registry.FrontFunction",
    .tp_basicsize = sizeof(front_function),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(front_function, vectorcall),
    .tp_weaklistoffset = offsetof(front_function, weakrefs),
    .tp_call = PyVectorcall_Call,
    .tp_getattro = function_get_attribute,
    .tp_setattro = function_set_attribute,
    .tp_repr = function_repr,
    .tp_descr_get = function_bind,
    .tp_traverse = function_traverse,
    .tp_dealloc = function_dealloc,
};

static PyObject *new_function(PyObject *owner, PyObject *original, kvreg_front_answer answer,
                              PyObject *context)
{
    front_function *front = PyObject_GC_New(front_function, &function_type);
    if (front == NULL)
        return NULL;
    front->vectorcall = function_call;
    front->owner = Py_NewRef(owner);
    front->original = Py_NewRef(original);
    front->context = Py_NewRef(context);
    front->answer = answer;
    front->weakrefs = NULL;
    PyObject_GC_Track(front);
    return (PyObject *)front;
}

/* --- the classmethod --- */

/* What a front has behind the fields of a classmethod object, whose struct is CPython's own. */
typedef struct front_classmethod {
    PyObject *owner; /* borrowed from the function; compared only */
    PyObject *bound; /* the function, bound to the owner: made once, not at each access */
} front_classmethod;

static PyTypeObject classmethod_type;

static front_classmethod *classmethod_fields(PyObject *self)
{
    return (front_classmethod *)((char *)self + PyClassMethod_Type.tp_basicsize);
}

static PyObject *classmethod_get(PyObject *self, PyObject *object, PyObject *type)
{
    const front_classmethod *fields = classmethod_fields(self);
    if (type == fields->owner && type != NULL)
        return Py_NewRef(fields->bound);
    return PyClassMethod_Type.tp_descr_get(self, object, type);
}

static int classmethod_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(classmethod_fields(self)->bound);
    return PyClassMethod_Type.tp_traverse(self, visit, arg);
}

static int classmethod_clear(PyObject *self)
{
    return PyClassMethod_Type.tp_clear(self);
}

static void classmethod_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    Py_CLEAR(classmethod_fields(self)->bound);
    PyObject_GC_Track(self); /* as the base's function expects it */
    PyClassMethod_Type.tp_dealloc(self);
}

static PyTypeObject classmethod_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "kvreg.vllm._registry.FrontClassMethod",
    .tp_base = &PyClassMethod_Type,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_descr_get = classmethod_get,
    .tp_traverse = classmethod_traverse,
    .tp_clear = classmethod_clear,
    .tp_dealloc = classmethod_dealloc,
    .tp_free = PyObject_GC_Del,
};

int kvreg_front_init(void)
{
    classmethod_type.tp_basicsize =
        PyClassMethod_Type.tp_basicsize + (Py_ssize_t)sizeof(front_classmethod);
    if (PyType_Ready(&function_type) < 0)
        return -1;
    return PyType_Ready(&classmethod_type);
}

PyObject *kvreg_front_new(PyObject *owner, PyObject *original, kvreg_front_answer answer,
                          PyObject *context)
{
    PyObject *front = NULL;
    PyObject *bound = NULL;
    PyObject *function = new_function(owner, original, answer, context);
    if (function == NULL)
        goto exit;
    bound = PyMethod_New(function, owner);
    if (bound == NULL)
        goto exit;
    front = PyObject_CallFunctionObjArgs((PyObject *)&classmethod_type, function, NULL);
    if (front == NULL)
        goto exit;
    *classmethod_fields(front) =
        (front_classmethod){.owner = owner, .bound = Py_NewRef(bound)};
exit:
    Py_XDECREF(bound);
    Py_XDECREF(function);
    return front;
}
