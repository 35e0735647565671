#include "chains.h"

#include <stdbool.h>
#include <stdlib.h>

#include "check.h"

static kvreg_chains *new_chains(uint32_t room)
{
    kvreg_chains *chains = calloc(1, kvreg_chains_bytes(room));
    CHECK(chains != NULL);
    kvreg_chains_init(chains, room);
    return chains;
}

static void nothing_is_found_at_first(void)
{
    kvreg_chains *chains = new_chains(1);
    CHECK(kvreg_chains_find(chains, 0) == KVREG_CHAINS_NONE);
    CHECK(kvreg_chains_find(chains, UINT64_MAX) == KVREG_CHAINS_NONE);
    kvreg_chains_remove(chains, 0);
    CHECK(kvreg_chains_find(chains, 0) == KVREG_CHAINS_NONE);
    free(chains);
}

static void hashes_that_differ_in_one_half_are_told_apart(void)
{
    kvreg_chains *chains = new_chains(3);
    kvreg_chains_add(chains, 0, 1);
    kvreg_chains_add(chains, 1, 2);
    kvreg_chains_add(chains, 2, (uint64_t)1 << 32);
    CHECK(kvreg_chains_find(chains, 1) == 0);
    CHECK(kvreg_chains_find(chains, 2) == 1);
    CHECK(kvreg_chains_find(chains, (uint64_t)1 << 32) == 2);
    CHECK(kvreg_chains_find(chains, ((uint64_t)1 << 32) + 1) == KVREG_CHAINS_NONE);
    free(chains);
}

enum { ROOM = 40, HASHES = 24, STEPS = 200000 };

/* The positions that are in, the one added first in front, and their hashes. */
typedef struct reference {
    uint32_t positions[ROOM];
    uint64_t hashes[ROOM];
    size_t count;
} reference;

static uint32_t reference_find(const reference *plain, uint64_t hash)
{
    for (size_t i = plain->count; i-- > 0;)
        if (plain->hashes[i] == hash)
            return plain->positions[i];
    return KVREG_CHAINS_NONE;
}

static bool reference_remove(reference *plain, uint32_t position)
{
    bool found = false;
    size_t kept = 0;
    for (size_t i = 0; i < plain->count; i++) {
        if (plain->positions[i] == position) {
            found = true;
            continue;
        }
        plain->positions[kept] = plain->positions[i];
        plain->hashes[kept++] = plain->hashes[i];
    }
    plain->count = kept;
    return found;
}

static void any_sequence_does_what_a_plain_list_does(void)
{
    kvreg_chains *chains = new_chains(ROOM);
    reference plain = { .count = 0 };
    srand(1);
    for (int step = 0; step < STEPS; step++) {
        uint64_t hash = (uint64_t)(rand() % HASHES) * 0x2aaaaaaaaaaaaaaau;
        uint32_t position = (uint32_t)rand() % ROOM;
        bool was_in = reference_remove(&plain, position);
        kvreg_chains_remove(chains, position);
        if (!was_in) {
            kvreg_chains_add(chains, position, hash);
            plain.positions[plain.count] = position;
            plain.hashes[plain.count++] = hash;
        }
        CHECK(kvreg_chains_find(chains, hash) == reference_find(&plain, hash));
    }
    free(chains);
}

int main(void)
{
    RUN(nothing_is_found_at_first);
    RUN(hashes_that_differ_in_one_half_are_told_apart);
    RUN(any_sequence_does_what_a_plain_list_does);
    return check_end();
}
