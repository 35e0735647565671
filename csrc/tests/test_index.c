#include "index.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "seeds.h"

/* Keys of a random choice, each with its own number as that of its slot and of its ghost, are found
 * while they are in and not while they are out: against two plain arrays of flags. From the same
 * flags follows what each group has to count. */

enum { SLOTS = 500, ROUNDS = 40000, ROUNDS_A_COUNT = 500 };

static kvreg_slot slots[SLOTS];
static kvreg_slot_rest rests[SLOTS];
static uint64_t ghosts[SLOTS];
static kvreg_group groups[SLOTS];
static uint8_t key_bytes[SLOTS][KVREG_KEY_MAX];
static kvreg_key keys[SLOTS];
static bool in_slot[SLOTS], is_ghost[SLOTS];
static bool chosen_hashes; /* the keys have others than the index computes */

/* Keys of every length. Of each length there are pairs that differ in one byte alone: in the last,
 * and in some before it. */
static void make_keys(const kvreg_index *index)
{
    for (uint32_t i = 0; i < SLOTS; i++) {
        uint32_t length = 1 + i % KVREG_KEY_MAX, number = i / KVREG_KEY_MAX;
        memset(key_bytes[i], 0xab, sizeof key_bytes[i]);
        key_bytes[i][length - 1 - number / 2 * 17 % length] = (uint8_t)number;
        keys[i] = (kvreg_key){ .data = key_bytes[i], .bytes = length };
        kvreg_index_hash(index, &keys[i]);
    }
}

/* An empty index of the first slots and as many ghosts, and all keys. */
static kvreg_index new_index(uint64_t seed, uint32_t count)
{
    kvreg_index index = {
        .seed = seed_of(seed),
        .table = { groups, kvreg_index_group_count(count, count) },
        .slots = slots,
        .rests = rests,
        .ghosts = ghosts,
        .slot_count = count,
        .ghost_count = count,
    };
    CHECK(index.table.count * KVREG_GROUP_PLACES > 2 * count && index.table.count <= SLOTS);
    memset(slots, 0, sizeof slots);
    memset(groups, 0, sizeof groups);
    memset(ghosts, 0, sizeof ghosts);
    memset(in_slot, 0, sizeof in_slot);
    memset(is_ghost, 0, sizeof is_ghost);
    chosen_hashes = false;
    make_keys(&index);
    return index;
}

static uint32_t home_of(const kvreg_index *index, uint32_t key)
{
    return (uint32_t)((keys[key].hash >> 32) * index->table.count >> 32);
}

static bool group_lists(const kvreg_group *group, uint32_t number)
{
    for (uint32_t place = 0; place < KVREG_GROUP_PLACES; place++) {
        if (group->tags[place] != 0 && group->numbers[place] == number)
            return true;
    }
    return false;
}

/* Every number that is in has one place, and each group between its home and that place counts it;
 * nothing else is listed or counted. */
static void check_groups(const kvreg_index *index)
{
    static uint32_t passed[SLOTS];
    uint32_t listed = 0, count = index->table.count;
    memset(passed, 0, sizeof passed);
    for (uint32_t number = 0; number < 2 * index->slot_count; number++) {
        uint32_t i = number % index->slot_count;
        if (number < index->slot_count ? !in_slot[i] : !is_ghost[i])
            continue;
        uint32_t at = home_of(index, i);
        for (; !group_lists(&index->table.groups[at], number); at = (at + 1) % count)
            CHECK(++passed[at] <= 2 * SLOTS);
        listed++;
    }
    for (uint32_t at = 0; at < count; at++) {
        CHECK(index->table.groups[at].passed == passed[at]);
        for (uint32_t place = 0; place < KVREG_GROUP_PLACES; place++)
            listed -= index->table.groups[at].tags[place] != 0;
    }
    CHECK(listed == 0);
}

/* Of keys with the same hash any one's ghost is every one's. */
static bool has_ghost(uint32_t i)
{
    if (!chosen_hashes)
        return is_ghost[i];
    for (uint32_t j = 0; j < SLOTS; j++) {
        if (is_ghost[j] && keys[j].hash == keys[i].hash)
            return true;
    }
    return false;
}

static void check_key(const kvreg_index *index, uint32_t i)
{
    CHECK(kvreg_index_find(index, &keys[i]) == (in_slot[i] ? i : KVREG_NO_SLOT));
    if (!in_slot[i])
        CHECK(kvreg_index_is_ghost_of(index, &keys[i], keys[i].ghost) == has_ghost(i));
    if (i < index->slot_count)
        CHECK(kvreg_index_is_ghost_of(index, &keys[i], index->slot_count + i) || !is_ghost[i]);
}

static void check_all(const kvreg_index *index)
{
    for (uint32_t i = 0; i < SLOTS; i++)
        check_key(index, i);
    check_groups(index);
}

static void toggle(kvreg_index *index, uint32_t i)
{
    if (in_slot[i])
        kvreg_index_remove(index, i);
    else
        kvreg_index_insert(index, &keys[i], i);
    in_slot[i] = !in_slot[i];
}

static void toggle_ghost(kvreg_index *index, uint32_t i)
{
    if (is_ghost[i])
        kvreg_index_remove_ghost(index, index->slot_count + i);
    else
        kvreg_index_add_ghost(index, &keys[i], index->slot_count + i);
    is_ghost[i] = !is_ghost[i];
}

static void toggle_either(kvreg_index *index, uint32_t i)
{
    if (in_slot[i] && !is_ghost[i] && !chosen_hashes && rand() % 2) {
        kvreg_index_make_ghost(index, i, index->slot_count + i);
        in_slot[i] = false;
        is_ghost[i] = true;
    } else if (rand() % 2) {
        toggle(index, i);
    } else {
        toggle_ghost(index, i);
    }
}

/* Also those that are out already. */
static void remove_all(kvreg_index *index)
{
    for (uint32_t i = 0; i < index->slot_count; i++) {
        if (in_slot[i])
            toggle(index, i);
        kvreg_index_remove_ghost(index, index->slot_count + i);
        is_ghost[i] = false;
    }
}

static void toggle_at_random(kvreg_index *index)
{
    for (int round = 0; round < ROUNDS; round++) {
        toggle_either(index, (uint32_t)rand() % index->slot_count);
        uint32_t probe = (uint32_t)rand() % SLOTS;
        kvreg_index_prefetch_group(index, keys[probe].hash);
        kvreg_index_prefetch_entry(index, keys[probe].hash);
        kvreg_index_prefetch_ghosts_behind(index, index->slot_count + probe % index->slot_count);
        check_key(index, probe);
        if (round % ROUNDS_A_COUNT == 0)
            check_groups(index);
    }
    check_all(index);
    remove_all(index);
    check_all(index);
}

static void keys_are_found_while_they_are_in(void)
{
    for (uint64_t seed = 0; seed < 4; seed++) {
        kvreg_index index = new_index(seed, SLOTS);
        toggle_at_random(&index);
    }
}

/* All keys at home in so few groups that most are passed on, round the end of the table. */
static void keys_of_few_hashes_are_told_apart(void)
{
    for (uint32_t hashes = 1; hashes <= 64; hashes *= 4) {
        kvreg_index index = new_index(1, SLOTS);
        chosen_hashes = true;
        for (uint32_t i = 0; i < SLOTS; i++)
            keys[i].hash = (uint64_t)(UINT32_MAX / 8 * 7 + i % hashes * (UINT32_MAX / 512)) << 32;
        toggle_at_random(&index);
    }
}

/* The first and the last group, and tags from hashes with every byte zero and every byte full. */
static void keys_of_the_least_and_the_greatest_hash_are_told_apart(void)
{
    kvreg_index index = new_index(2, SLOTS);
    chosen_hashes = true;
    for (uint32_t i = 0; i < SLOTS; i++)
        keys[i].hash = i % 3 == 0 ? 1 : UINT64_MAX - ((uint64_t)(i % 2) << 32);
    toggle_at_random(&index);
}

static void tables_of_any_size_hold_a_key_in_every_slot_and_every_ghost(void)
{
    for (uint32_t count = 1; count < 80; count++) {
        kvreg_index index = new_index(count, count);
        for (uint32_t i = 0; i < count; i++) {
            toggle(&index, i);
            toggle_ghost(&index, i);
        }
        check_all(&index);
        remove_all(&index);
        check_all(&index);
    }
}

static void a_group_passes_a_key_on_when_all_its_places_are_taken(void)
{
    kvreg_index index = new_index(3, SLOTS);
    for (uint32_t i = 0; i <= KVREG_GROUP_PLACES; i++) {
        keys[i].hash = 1;
        CHECK(groups[0].passed == 0);
        toggle(&index, i);
    }
    CHECK(groups[0].passed == 1 && group_lists(&groups[1], KVREG_GROUP_PLACES));
    check_all(&index);
}

static void a_key_is_missed_when_every_group_was_passed(void)
{
    kvreg_index index = new_index(3, SLOTS);
    index.table.count = 3;
    chosen_hashes = true;
    /* So many keys at home in a group that it passes one on; then the others leave. */
    uint32_t next = 0;
    for (uint32_t at = 0; at < index.table.count; at++) {
        uint32_t first = next;
        do {
            keys[next].hash = (uint64_t)(UINT32_MAX / 6 * (2 * at + 1)) << 32;
            toggle(&index, next++);
        } while (groups[at].passed == 0);
        for (; first < next - 1; first++)
            toggle(&index, first);
    }
    for (uint32_t at = 0; at < index.table.count; at++)
        CHECK(groups[at].passed == 1);
    check_all(&index);
    remove_all(&index);
    check_all(&index);
}

int main(void)
{
    srand(1);
    RUN(keys_are_found_while_they_are_in);
    RUN(keys_of_few_hashes_are_told_apart);
    RUN(keys_of_the_least_and_the_greatest_hash_are_told_apart);
    RUN(tables_of_any_size_hold_a_key_in_every_slot_and_every_ghost);
    RUN(a_group_passes_a_key_on_when_all_its_places_are_taken);
    RUN(a_key_is_missed_when_every_group_was_passed);
    return check_end();
}
