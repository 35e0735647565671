#include "index.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

/* Keys of a random choice, each in the slot of its own number, are found while they are in and not
 * while they are out: against a plain array of flags. */

enum { SLOTS = 500, ROUNDS = 40000 };

static kvreg_slot slots[SLOTS];
static kvreg_slot_rest rests[SLOTS];
static kvreg_index_entry entries[2 * SLOTS];
static uint8_t key_bytes[SLOTS][KVREG_KEY_MAX];
static kvreg_key keys[SLOTS];
static bool present[SLOTS];

static kvreg_index new_index(uint64_t seed)
{
    memset(slots, 0, sizeof slots);
    memset(entries, 0, sizeof entries);
    memset(present, 0, sizeof present);
    CHECK(kvreg_index_size(SLOTS) == 2 * SLOTS);
    return (kvreg_index){ seed, kvreg_index_size(SLOTS), entries, slots, rests };
}

/* Keys of every length; those of one length differ in one byte, at any place. */
static void make_keys(const kvreg_index *index)
{
    for (uint32_t i = 0; i < SLOTS; i++) {
        uint32_t length = 1 + i % KVREG_KEY_MAX;
        memset(key_bytes[i], 0xab, sizeof key_bytes[i]);
        key_bytes[i][(i / KVREG_KEY_MAX * 13) % length] = (uint8_t)(i / KVREG_KEY_MAX);
        keys[i] = (kvreg_key){ .data = key_bytes[i], .bytes = length };
        kvreg_index_hash(index, &keys[i]);
    }
}

static void check_all(const kvreg_index *index)
{
    for (uint32_t i = 0; i < SLOTS; i++)
        CHECK(kvreg_index_find(index, &keys[i]) == (present[i] ? i : KVREG_NO_SLOT));
}

static void toggle(kvreg_index *index, uint32_t i)
{
    if (present[i])
        kvreg_index_remove(index, i);
    else
        kvreg_index_insert(index, &keys[i], i);
    present[i] = !present[i];
}

static void toggle_at_random(kvreg_index *index)
{
    for (int round = 0; round < ROUNDS; round++) {
        toggle(index, (uint32_t)rand() % SLOTS);
        uint32_t probe = (uint32_t)rand() % SLOTS;
        kvreg_index_prefetch_entry(index, keys[probe].hash);
        kvreg_index_prefetch_slot(index, keys[probe].hash);
        CHECK(kvreg_index_find(index, &keys[probe]) == (present[probe] ? probe : KVREG_NO_SLOT));
    }
    check_all(index);
}

static void keys_are_found_while_they_are_in(void)
{
    for (uint64_t seed = 0; seed < 4; seed++) {
        kvreg_index index = new_index(seed * 0x123456789abcdef1u);
        make_keys(&index);
        toggle_at_random(&index);
    }
}

static void keys_with_one_hash_are_told_apart(void)
{
    kvreg_index index = new_index(1);
    make_keys(&index);
    for (uint32_t i = 0; i < SLOTS; i++)
        keys[i].hash = i % 3 == 0 ? 0 : UINT64_MAX;
    toggle_at_random(&index);
}

static void a_full_table_wraps_around(void)
{
    kvreg_index index = new_index(2);
    make_keys(&index);
    for (uint32_t i = 0; i < SLOTS; i++)
        keys[i].hash = UINT64_MAX - ((uint64_t)(i % 2) << 32);
    for (uint32_t i = 0; i < SLOTS; i++)
        toggle(&index, i);
    check_all(&index);
    for (uint32_t i = 0; i < SLOTS; i++)
        toggle(&index, (i * 7) % SLOTS);
    check_all(&index);
}

static void other_seeds_give_other_hashes(void)
{
    kvreg_index a = { .seed = 1 }, b = { .seed = 2 };
    uint32_t same = 0;
    make_keys(&a);
    for (uint32_t i = 0; i < SLOTS; i++) {
        uint64_t hash = keys[i].hash;
        kvreg_index_hash(&b, &keys[i]);
        same += hash == keys[i].hash;
    }
    CHECK(same <= 2);
}

/* Numbers in order are what a careless hash would send to few places. */
static void hashes_of_counted_keys_are_spread(void)
{
    enum { KEYS = 1 << 16, BINS = 1 << 8 };
    static uint32_t bins[BINS];
    kvreg_index index = { .seed = 3 };
    for (uint32_t i = 0; i < KEYS; i++) {
        uint8_t bytes[36] = { 0 };
        memcpy(bytes, &i, sizeof i);
        kvreg_key key = { .data = bytes, .bytes = sizeof bytes };
        kvreg_index_hash(&index, &key);
        bins[key.hash >> 56]++;
    }
    for (uint32_t i = 0; i < BINS; i++)
        CHECK(bins[i] > KEYS / BINS / 2 && bins[i] < KEYS / BINS * 2);
}

int main(void)
{
    srand(1);
    RUN(keys_are_found_while_they_are_in);
    RUN(keys_with_one_hash_are_told_apart);
    RUN(a_full_table_wraps_around);
    RUN(other_seeds_give_other_hashes);
    RUN(hashes_of_counted_keys_are_spread);
    return check_end();
}
