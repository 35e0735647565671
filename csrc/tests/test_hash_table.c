#include "hash_table.h"

#include <stdlib.h>

#include "lines.h"

static kvreg_hash_table *new_table(uint32_t room)
{
    kvreg_hash_table *table = new_lines(kvreg_hash_table_bytes(room));
    kvreg_hash_table_init(table, room);
    return table;
}

static void nothing_is_found_at_first(void)
{
    kvreg_hash_table *table = new_table(1);
    CHECK(kvreg_hash_table_find(table, 0) == KVREG_NO_POSITION);
    CHECK(kvreg_hash_table_find(table, UINT64_MAX) == KVREG_NO_POSITION);
    CHECK(!kvreg_hash_table_holds(table, 0, 0));
    kvreg_hash_table_remove(table, 0);
    CHECK(kvreg_hash_table_find(table, 0) == KVREG_NO_POSITION);
    free(table);
}

static void hashes_that_differ_in_one_half_are_told_apart(void)
{
    kvreg_hash_table *table = new_table(4);
    kvreg_hash_table_add(table, 0, 1);
    kvreg_hash_table_add(table, 1, 2);
    kvreg_hash_table_add(table, 2, (uint64_t)1 << 32);
    kvreg_hash_table_add(table, 3, (uint64_t)0xffffffff << 32);
    CHECK(kvreg_hash_table_find(table, 1) == 0);
    CHECK(kvreg_hash_table_find(table, 2) == 1);
    CHECK(kvreg_hash_table_find(table, (uint64_t)1 << 32) == 2);
    CHECK(kvreg_hash_table_find(table, (uint64_t)0xffffffff << 32) == 3);
    CHECK(kvreg_hash_table_find(table, ((uint64_t)1 << 32) + 1) == KVREG_NO_POSITION);
    CHECK(kvreg_hash_table_find(table, UINT64_MAX) == KVREG_NO_POSITION);
    free(table);
}

static void a_hash_of_zero_is_one_like_others(void)
{
    kvreg_hash_table *table = new_table(2);
    kvreg_hash_table_add(table, 1, 0);
    CHECK(kvreg_hash_table_find(table, 0) == 1 && kvreg_hash_table_holds(table, 1, 0));
    kvreg_hash_table_remove(table, 1);
    CHECK(kvreg_hash_table_find(table, 0) == KVREG_NO_POSITION);
    free(table);
}

enum { ROOM = 60, HASHES = 120, STEPS = 200000 };

/* Every hash is under one position at most; half of them share a home, which they overflow. */
static void any_sequence_does_what_a_plain_array_does(void)
{
    kvreg_hash_table *table = new_table(ROOM);
    uint32_t hash_at[ROOM]; /* HASHES: the position is not in */
    uint32_t position_of[HASHES];
    for (uint32_t i = 0; i < ROOM; i++)
        hash_at[i] = HASHES;
    for (uint32_t i = 0; i < HASHES; i++)
        position_of[i] = KVREG_NO_POSITION;
    srand(1);
    for (int step = 0; step < STEPS; step++) {
        uint32_t number = (uint32_t)rand() % HASHES, position = (uint32_t)rand() % ROOM;
        uint64_t hash = number % 2 ? number : (number + 1) * 0x2222222222222222u;
        kvreg_hash_table_remove(table, position);
        if (hash_at[position] != HASHES) {
            position_of[hash_at[position]] = KVREG_NO_POSITION;
            hash_at[position] = HASHES;
        } else if (position_of[number] == KVREG_NO_POSITION) {
            kvreg_hash_table_add(table, position, hash);
            hash_at[position] = number;
            position_of[number] = position;
        }
        CHECK(kvreg_hash_table_find(table, hash) == position_of[number]);
        for (uint32_t i = 0; i < ROOM; i++)
            CHECK(kvreg_hash_table_holds(table, i, hash) == (hash_at[i] == number));
    }
    free(table);
}

int main(void)
{
    RUN(nothing_is_found_at_first);
    RUN(hashes_that_differ_in_one_half_are_told_apart);
    RUN(a_hash_of_zero_is_one_like_others);
    RUN(any_sequence_does_what_a_plain_array_does);
    return check_end();
}
