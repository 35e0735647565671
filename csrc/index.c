#include "index.h"

#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* -- Hash ---------------------------------------------------------------------------------- */

__extension__ typedef unsigned __int128 uint128;

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint128 product = (uint128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static uint64_t read_word(const uint8_t *data, size_t bytes)
{
    uint64_t word = 0;
    memcpy(&word, data, bytes);
    return word;
}

/* Folds products of words, as the wyhash family does. The seed goes into both factors: a product
 * with a factor of zero would forget the other, and nobody can choose a key that makes one. */
void kvreg_index_hash(const kvreg_index *index, kvreg_key *key)
{
    const uint8_t *data = key->data;
    size_t left = key->bytes;
    uint64_t hash = index->seed ^ (left * 0x9e3779b97f4a7c15u);
    while (left > 16) {
        hash = mix(read_word(data, 8) ^ index->seed, read_word(data + 8, 8) ^ hash);
        data += 16;
        left -= 16;
    }
    uint64_t low, high = 0;
    if (left > 8) {
        low = read_word(data, 8);
        high = read_word(data + left - 8, 8);
    } else if (left == 8) {
        low = read_word(data, 8);
    } else if (left >= 4) {
        low = read_word(data, 4) | read_word(data + left - 4, 4) << 32;
    } else {
        low = read_word(data, left);
    }
    hash = mix(low ^ index->seed ^ 0xe7037ed1a0b428dbu, high ^ hash);
    key->hash = mix(hash, 0x8ebc6af09c88c6e3u);
}

uint64_t kvreg_index_hash_of(const kvreg_index *index, uint32_t number)
{
    const kvreg_slot *slot = &index->slots[number];
    uint8_t whole[KVREG_KEY_MAX];
    kvreg_key key = { .data = slot->key, .bytes = slot->key_bytes };
    if (slot->key_bytes > KVREG_KEY_NEAR) {
        memcpy(whole, slot->key, KVREG_KEY_NEAR);
        memcpy(whole + KVREG_KEY_NEAR, index->rests[number].key, KVREG_KEY_MAX - KVREG_KEY_NEAR);
        key.data = whole;
    }
    kvreg_index_hash(index, &key);
    return key.hash;
}

/* The half of a hash that slots keep, and that the table goes by. */
static uint32_t kept_half(uint64_t hash)
{
    return (uint32_t)(hash >> 32);
}

/* -- Groups -------------------------------------------------------------------------------- */

enum { NO_TAG = 0 };

/* On average, when every slot holds a key. A key that was passed on stays where it is when its home
 * has room again: of the groups of a table whose keys come and go, one in twenty counts such keys.
 * With 8 keys a group it would be one in three. */
enum { KEYS_A_GROUP = 6 };

uint32_t kvreg_index_group_count(uint32_t slots)
{
    return (slots - 1) / KEYS_A_GROUP + 1;
}

/* The group where the probe for a hash begins. Any number of groups will do. */
static uint32_t home(const kvreg_index *index, uint32_t hash)
{
    return (uint32_t)((uint64_t)hash * index->group_count >> 32);
}

static uint32_t following(const kvreg_index *index, uint32_t group)
{
    return group + 1 == index->group_count ? 0 : group + 1;
}

/* From the other end of the hash than the group. */
static uint8_t tag_of(uint32_t hash)
{
    uint8_t tag = (uint8_t)hash;
    return tag == NO_TAG ? 1 : tag;
}

/* The places in a group that have this tag, as bits: place i's is bit i. */
static uint32_t places_with(const kvreg_index_group *group, uint8_t tag)
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

static uint32_t first_of(uint32_t places)
{
    return (uint32_t)__builtin_ctz(places);
}

static uint32_t without_first(uint32_t places)
{
    return places & (places - 1);
}

/* -- Table --------------------------------------------------------------------------------- */

static uint32_t near_bytes(const kvreg_key *key)
{
    return key->bytes < KVREG_KEY_NEAR ? key->bytes : KVREG_KEY_NEAR;
}

static bool slot_holds(const kvreg_index *index, uint32_t number, const kvreg_key *key)
{
    const kvreg_slot *slot = &index->slots[number];
    if (slot->hash != kept_half(key->hash) || slot->key_bytes != key->bytes)
        return false;
    uint32_t near = near_bytes(key);
    return memcmp(slot->key, key->data, near) == 0 &&
           (near == key->bytes ||
            memcmp(index->rests[number].key, key->data + near, key->bytes - near) == 0);
}

uint32_t kvreg_index_find(const kvreg_index *index, const kvreg_key *key)
{
    uint32_t hash = kept_half(key->hash), start = home(index, hash), at = start;
    do {
        const kvreg_index_group *group = &index->groups[at];
        uint32_t places = places_with(group, tag_of(hash));
        for (; places != 0; places = without_first(places)) {
            uint32_t slot = group->slots[first_of(places)];
            if (slot_holds(index, slot, key))
                return slot;
        }
        if (group->passed == 0)
            return KVREG_NO_SLOT;
        at = following(index, at);
    } while (at != start); /* a small table may come to count passed keys in every group */
    return KVREG_NO_SLOT;
}

static void store_key(kvreg_index *index, uint32_t number, const kvreg_key *key)
{
    kvreg_slot *slot = &index->slots[number];
    uint32_t near = near_bytes(key);
    slot->hash = kept_half(key->hash);
    slot->key_bytes = (uint8_t)key->bytes;
    memcpy(slot->key, key->data, near);
    if (near < key->bytes)
        memcpy(index->rests[number].key, key->data + near, key->bytes - near);
}

/* Fewer slots than places: there is a free one. */
void kvreg_index_insert(kvreg_index *index, const kvreg_key *key, uint32_t slot)
{
    uint32_t hash = kept_half(key->hash), at = home(index, hash), free;
    while ((free = places_with(&index->groups[at], NO_TAG)) == 0) {
        index->groups[at].passed++;
        at = following(index, at);
    }
    index->groups[at].tags[first_of(free)] = tag_of(hash);
    index->groups[at].slots[first_of(free)] = slot;
    store_key(index, slot, key);
}

/* Frees the place of a slot whose key has this tag; false when it is not in the group. */
static bool free_place(kvreg_index_group *group, uint8_t tag, uint32_t slot)
{
    for (uint32_t places = places_with(group, tag); places != 0; places = without_first(places)) {
        if (group->slots[first_of(places)] == slot) {
            group->tags[first_of(places)] = NO_TAG;
            return true;
        }
    }
    return false;
}

void kvreg_index_remove(kvreg_index *index, uint32_t slot)
{
    uint32_t hash = index->slots[slot].hash;
    uint32_t at = home(index, hash);
    while (!free_place(&index->groups[at], tag_of(hash), slot)) {
        index->groups[at].passed--;
        at = following(index, at);
    }
    index->slots[slot].key_bytes = 0;
}

void kvreg_index_prefetch_group(const kvreg_index *index, uint64_t hash)
{
    __builtin_prefetch(&index->groups[home(index, kept_half(hash))]);
}

void kvreg_index_prefetch_slot(const kvreg_index *index, uint64_t hash)
{
    /* Most keys are where their tag is found first in their home; to go on costs more than it
     * gains. */
    const kvreg_index_group *group = &index->groups[home(index, kept_half(hash))];
    uint32_t places = places_with(group, tag_of(kept_half(hash)));
    if (places != 0)
        __builtin_prefetch(&index->slots[group->slots[first_of(places)]], 1);
}

void kvreg_index_prefetch_group_of(const kvreg_index *index, uint32_t slot)
{
    __builtin_prefetch(&index->groups[home(index, index->slots[slot].hash)]);
}
