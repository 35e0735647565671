/* The groups of a hash table from hashes to numbers, each a cache line: up to 12 numbers, and of
 * each a tag, 8 bits of its hash, which are compared all at once.
 *
 * The home of an entry is the group that its hash names. One that finds its home full goes to the
 * first group behind it that is not, and each group that it passes counts it. A probe ends at a
 * group that counts none, and a removal takes the counts back; it moves no other entry and leaves
 * no tombstone.
 *
 * Groups go by the upper half of a hash, and by numbers alone: what else an entry is, as its whole
 * hash or key, its owner keeps and compares. They hold no pointers, and guard nothing. */
#ifndef KVREG_GROUPS_H
#define KVREG_GROUPS_H

#include <stdbool.h>
#include <stdint.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { KVREG_GROUP_PLACES = 12 };

enum { KVREG_NO_TAG = 0 };

/* No entry has this number. */
#define KVREG_NO_NUMBER UINT32_MAX

/* Zeroed memory is a group without an entry. */
typedef struct kvreg_group {
    _Alignas(64) uint8_t tags[KVREG_GROUP_PLACES]; /* KVREG_NO_TAG: the place is free */
    uint32_t passed; /* entries of the table that found this group full */
    uint32_t numbers[KVREG_GROUP_PLACES];
} kvreg_group;

_Static_assert(sizeof(kvreg_group) == 64, "a group is one cache line");

/* A table: any number of groups will do that has a place for every entry. */
typedef struct kvreg_groups {
    kvreg_group *groups;
    uint32_t count;
} kvreg_groups;

/* The half of a hash that groups go by. */
static inline uint32_t kvreg_groups_half(uint64_t hash)
{
    return (uint32_t)(hash >> 32);
}

static inline uint32_t kvreg_groups_home(kvreg_groups table, uint32_t half)
{
    return (uint32_t)((uint64_t)half * table.count >> 32);
}

static inline uint32_t kvreg_groups_following(kvreg_groups table, uint32_t group)
{
    return group + 1 == table.count ? 0 : group + 1;
}

/* From the other end of the half than the home. */
static inline uint8_t kvreg_groups_tag(uint32_t half)
{
    uint8_t tag = (uint8_t)half;
    return tag == KVREG_NO_TAG ? 1 : tag;
}

/* The places in a group that have this tag, as bits: place i's is bit i. */
static inline uint32_t kvreg_group_places_with(const kvreg_group *group, uint8_t tag)
{
#ifdef __SSE2__
    __m128i tags = _mm_load_si128((const __m128i *)group);
    __m128i equal = _mm_cmpeq_epi8(tags, _mm_set1_epi8((char)tag));
    return (uint32_t)_mm_movemask_epi8(equal) & ((1u << KVREG_GROUP_PLACES) - 1);
#else
    uint32_t places = 0;
    for (uint32_t i = 0; i < KVREG_GROUP_PLACES; i++)
        places |= (uint32_t)(group->tags[i] == tag) << i;
    return places;
#endif
}

static inline uint32_t kvreg_group_first_of(uint32_t places)
{
    return (uint32_t)__builtin_ctz(places);
}

static inline uint32_t kvreg_group_without_first(uint32_t places)
{
    return places & (places - 1);
}

/* The number under this half of a hash that `holds`; KVREG_NO_NUMBER when there is none. */
static inline uint32_t kvreg_groups_find(kvreg_groups table, uint32_t half,
                                         bool (*holds)(const void *owner, uint32_t number,
                                                       void *sought),
                                         const void *owner, void *sought)
{
    uint32_t start = kvreg_groups_home(table, half), at = start;
    do {
        const kvreg_group *group = &table.groups[at];
        uint32_t places = kvreg_group_places_with(group, kvreg_groups_tag(half));
        for (; places != 0; places = kvreg_group_without_first(places)) {
            uint32_t number = group->numbers[kvreg_group_first_of(places)];
            if (holds(owner, number, sought))
                return number;
        }
        if (group->passed == 0)
            return KVREG_NO_NUMBER;
        at = kvreg_groups_following(table, at);
    } while (at != start); /* a small table may come to count passed entries in every group */
    return KVREG_NO_NUMBER;
}

/* Adds a number, which is not in, under half a hash. */
static inline void kvreg_groups_insert(kvreg_groups table, uint32_t half, uint32_t number)
{
    uint32_t at = kvreg_groups_home(table, half), free;
    while ((free = kvreg_group_places_with(&table.groups[at], KVREG_NO_TAG)) == 0) {
        table.groups[at].passed++;
        at = kvreg_groups_following(table, at);
    }
    table.groups[at].tags[kvreg_group_first_of(free)] = kvreg_groups_tag(half);
    table.groups[at].numbers[kvreg_group_first_of(free)] = number;
}

/* The place of a number with this tag; KVREG_GROUP_PLACES when it is not in the group. */
static inline uint32_t kvreg_group_place_of(const kvreg_group *group, uint8_t tag,
                                            uint32_t number)
{
    uint32_t places = kvreg_group_places_with(group, tag);
    for (; places != 0; places = kvreg_group_without_first(places)) {
        uint32_t place = kvreg_group_first_of(places);
        if (group->numbers[place] == number)
            return place;
    }
    return KVREG_GROUP_PLACES;
}

/* Removes a number, which is in, under half a hash. */
static inline void kvreg_groups_remove(kvreg_groups table, uint32_t half, uint32_t number)
{
    uint32_t at = kvreg_groups_home(table, half), place;
    uint8_t tag = kvreg_groups_tag(half);
    while ((place = kvreg_group_place_of(&table.groups[at], tag, number)) == KVREG_GROUP_PLACES) {
        table.groups[at].passed--;
        at = kvreg_groups_following(table, at);
    }
    table.groups[at].tags[place] = KVREG_NO_TAG;
}

/* Puts another number in the place of one, which is in, under half a hash. */
static inline void kvreg_groups_rename(kvreg_groups table, uint32_t half, uint32_t number,
                                       uint32_t other)
{
    uint32_t at = kvreg_groups_home(table, half), place;
    uint8_t tag = kvreg_groups_tag(half);
    while ((place = kvreg_group_place_of(&table.groups[at], tag, number)) == KVREG_GROUP_PLACES)
        at = kvreg_groups_following(table, at);
    table.groups[at].numbers[place] = other;
}

static inline void kvreg_groups_prefetch(kvreg_groups table, uint32_t half)
{
    __builtin_prefetch(&table.groups[kvreg_groups_home(table, half)]);
}

#endif
