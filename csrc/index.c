#include "index.h"

#include <string.h>

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

/* The half of a hash that slots and the table keep. */
static uint32_t kept_half(uint64_t hash)
{
    return (uint32_t)(hash >> 32);
}

/* -- Table --------------------------------------------------------------------------------- */

uint32_t kvreg_index_size(uint32_t slots)
{
    return slots < 4 ? 8 : slots * 2;
}

/* Where the probe for a hash begins. Keeps the order of hashes, so that any size will do. */
static uint32_t home(const kvreg_index *index, uint32_t hash)
{
    return (uint32_t)((uint64_t)hash * index->size >> 32);
}

static uint32_t following(const kvreg_index *index, uint32_t position)
{
    return position + 1 == index->size ? 0 : position + 1;
}

static bool slot_holds(const kvreg_index *index, uint32_t number, const kvreg_key *key)
{
    const kvreg_slot *slot = &index->slots[number];
    if (slot->key_bytes != key->bytes)
        return false;
    if (key->bytes <= KVREG_KEY_NEAR)
        return memcmp(slot->key, key->data, key->bytes) == 0;
    return memcmp(slot->key, key->data, KVREG_KEY_NEAR) == 0 &&
           memcmp(index->rests[number].key, key->data + KVREG_KEY_NEAR,
                  key->bytes - KVREG_KEY_NEAR) == 0;
}

uint32_t kvreg_index_find(const kvreg_index *index, const kvreg_key *key)
{
    uint32_t position = home(index, kept_half(key->hash));
    for (;; position = following(index, position)) {
        kvreg_index_entry entry = index->entries[position];
        if (entry.slot_after == 0)
            return KVREG_NO_SLOT;
        if (entry.hash == kept_half(key->hash) && slot_holds(index, entry.slot_after - 1, key))
            return entry.slot_after - 1;
    }
}

static void store_key(kvreg_index *index, uint32_t number, const kvreg_key *key)
{
    kvreg_slot *slot = &index->slots[number];
    uint32_t near = key->bytes < KVREG_KEY_NEAR ? key->bytes : KVREG_KEY_NEAR;
    slot->hash = kept_half(key->hash);
    slot->key_bytes = (uint8_t)key->bytes;
    memcpy(slot->key, key->data, near);
    memcpy(index->rests[number].key, key->data + near, key->bytes - near);
}

void kvreg_index_insert(kvreg_index *index, const kvreg_key *key, uint32_t slot)
{
    uint32_t position = home(index, kept_half(key->hash));
    while (index->entries[position].slot_after != 0)
        position = following(index, position);
    index->entries[position] = (kvreg_index_entry){ kept_half(key->hash), slot + 1 };
    store_key(index, slot, key);
}

static uint32_t position_of(const kvreg_index *index, uint32_t slot)
{
    uint32_t position = home(index, index->slots[slot].hash);
    while (index->entries[position].slot_after != slot + 1)
        position = following(index, position);
    return position;
}

/* Whether a probe from `start` passes `gap` before it reaches `end`, on the ring. */
static bool passes(uint32_t start, uint32_t gap, uint32_t end)
{
    if (gap <= end)
        return start <= gap || start > end;
    return start <= gap && start > end;
}

void kvreg_index_remove(kvreg_index *index, uint32_t slot)
{
    uint32_t gap = position_of(index, slot);
    uint32_t position = gap;
    for (;;) {
        position = following(index, position);
        kvreg_index_entry entry = index->entries[position];
        if (entry.slot_after == 0)
            break;
        if (passes(home(index, entry.hash), gap, position)) {
            index->entries[gap] = entry;
            gap = position;
        }
    }
    index->entries[gap].slot_after = 0;
    index->slots[slot].key_bytes = 0;
}

void kvreg_index_prefetch_entry(const kvreg_index *index, uint64_t hash)
{
    __builtin_prefetch(&index->entries[home(index, kept_half(hash))]);
}

void kvreg_index_prefetch_slot(const kvreg_index *index, uint64_t hash)
{
    /* Most keys are in the first entry of their probe; to go on costs more than it gains. */
    kvreg_index_entry entry = index->entries[home(index, kept_half(hash))];
    if (entry.slot_after != 0 && entry.hash == kept_half(hash))
        __builtin_prefetch(&index->slots[entry.slot_after - 1], 1);
}
