/* A small cache: class -> what a lookup along the class's MRO answered last time.
 *
 * It holds no references. An entry answers only while its class is unchanged (the version tag)
 * and the table behind the lookup is unchanged (the epoch); the table owns the values. Misses
 * are cached too, as NULL. Callers hold the GIL. */
#ifndef KVREG_PYTHON_TYPE_CACHE_H
#define KVREG_PYTHON_TYPE_CACHE_H

#include <stdbool.h>
#include <string.h>

#include "python/type_tag.h"

/* Tags are consecutive numbers in the order in which classes are first used, so their low bits
 * spread well; but of twenty classes in 256 places two meet more often than not. Two ways a
 * set make three the number that has to meet. */
enum { KVREG_TYPE_CACHE_SETS = 128, KVREG_TYPE_CACHE_WAYS = 2 };

typedef struct kvreg_type_cache_entry {
    PyTypeObject *type; /* compared, never followed: it may be gone */
    PyObject *mro;      /* likewise. A failed assignment to __bases__ puts the old MRO back but
                         * leaves the tag that was given to the new one */
    PyObject *value;    /* borrowed from the table; NULL: it has nothing along the MRO */
    uint32_t tag;
    uint32_t epoch; /* of the cache, when the entry was made */
} kvreg_type_cache_entry;

typedef struct kvreg_type_cache {
    uint32_t epoch;  /* moves with each change of the table; entries of other epochs are void */
    uint32_t series; /* of tags, kvreg_tag_series() */
    kvreg_type_cache_entry sets[KVREG_TYPE_CACHE_SETS][KVREG_TYPE_CACHE_WAYS];
} kvreg_type_cache;

/* Voids every entry. To be called before the table changes: once it has changed, values that
 * entries point to may be gone. */
static inline void kvreg_type_cache_forget(kvreg_type_cache *cache)
{
    cache->epoch++;
    if (cache->epoch == 0) { /* numbers begin anew: let no old entry come back to life */
        memset(cache->sets, 0, sizeof cache->sets);
        cache->epoch = 1;
    }
}

static inline void kvreg_type_cache_keep_series(kvreg_type_cache *cache)
{
    const uint32_t series = kvreg_tag_series();
    if (cache->series != series) {
        cache->series = series;
        kvreg_type_cache_forget(cache);
    }
}

static inline bool kvreg_type_cache_entry_answers(const kvreg_type_cache_entry *entry,
                                                  const kvreg_type_cache *cache,
                                                  PyTypeObject *type, uint32_t tag)
{
    return entry->type == type && entry->tag == tag && entry->mro == type->tp_mro &&
           entry->epoch == cache->epoch;
}

/* The entry that answers for `type`, or NULL: walk. */
static inline const kvreg_type_cache_entry *kvreg_type_cache_find(kvreg_type_cache *cache,
                                                                  PyTypeObject *type)
{
    kvreg_type_cache_keep_series(cache);
    const uint32_t tag = kvreg_type_tag(type);
    const kvreg_type_cache_entry *set = cache->sets[tag % KVREG_TYPE_CACHE_SETS];
    for (int way = 0; way < KVREG_TYPE_CACHE_WAYS; way++)
        if (kvreg_type_cache_entry_answers(&set[way], cache, type, tag))
            return &set[way];
    return NULL;
}

/* Remembers that the walk along `type`'s present MRO found `value` (NULL: nothing) in the
 * present table. A class without a tag is not remembered. */
static inline void kvreg_type_cache_store(kvreg_type_cache *cache, PyTypeObject *type,
                                          PyObject *value)
{
    kvreg_type_cache_keep_series(cache);
    const uint32_t tag = kvreg_type_tag(type);
    if (tag == 0)
        return;
    kvreg_type_cache_entry *set = cache->sets[tag % KVREG_TYPE_CACHE_SETS];
    for (int way = KVREG_TYPE_CACHE_WAYS - 1; way > 0; way--)
        set[way] = set[way - 1]; /* the newest entry is probed first, the oldest falls out */
    set[0] = (kvreg_type_cache_entry){
        .type = type, .mro = type->tp_mro, .value = value, .tag = tag, .epoch = cache->epoch};
}

#endif
