#include "ghosts.h"

#include <stdlib.h>

#include "lines.h"

static kvreg_ghosts *new_ghosts(uint32_t room)
{
    kvreg_ghosts *ghosts = new_lines(kvreg_ghosts_bytes(room));
    kvreg_ghosts_init(ghosts, room);
    return ghosts;
}

/* Hashes that fall into different buckets, for they differ in their high bits. */
static uint64_t spread(uint64_t i)
{
    return i * 0x9e3779b97f4a7c15u;
}

static void a_ghost_is_taken_once(void)
{
    kvreg_ghosts *ghosts = new_ghosts(8);
    CHECK(!kvreg_ghosts_take(ghosts, 0) && !kvreg_ghosts_take(ghosts, 5));
    kvreg_ghosts_add(ghosts, 0);
    kvreg_ghosts_add(ghosts, spread(5));
    CHECK(kvreg_ghosts_take(ghosts, 0) && !kvreg_ghosts_take(ghosts, 0));
    CHECK(kvreg_ghosts_take(ghosts, spread(5)) && !kvreg_ghosts_take(ghosts, spread(5)));
    free(ghosts);
}

static void the_oldest_are_forgotten(void)
{
    for (uint32_t room = 1; room <= 40; room++) {
        kvreg_ghosts *ghosts = new_ghosts(room);
        for (uint32_t i = 0; i < 5 * room; i++)
            kvreg_ghosts_add(ghosts, spread(i));
        for (uint32_t i = 0; i < 5 * room; i++)
            CHECK(kvreg_ghosts_take(ghosts, spread(i)) == (i >= 4 * room));
        free(ghosts);
    }
}

static void equal_hashes_are_ghosts_of_their_own(void)
{
    kvreg_ghosts *ghosts = new_ghosts(3);
    for (int i = 0; i < 5; i++)
        kvreg_ghosts_add(ghosts, 7);
    for (int i = 0; i < 3; i++)
        CHECK(kvreg_ghosts_take(ghosts, 7));
    CHECK(!kvreg_ghosts_take(ghosts, 7));
    free(ghosts);
}

enum { ROOM = 16, HASHES = 24, STEPS = 200000 };

/* The same in plain words: the last ROOM hashes added, of which some were taken. */
typedef struct reference {
    uint32_t hashes[ROOM];
    bool there[ROOM];
    size_t next;
} reference;

static void reference_add(reference *ghosts, uint32_t hash)
{
    ghosts->hashes[ghosts->next] = hash;
    ghosts->there[ghosts->next] = true;
    ghosts->next = (ghosts->next + 1) % ROOM;
}

static bool reference_take(reference *ghosts, uint32_t hash)
{
    for (size_t age = 1; age <= ROOM; age++) {
        size_t i = (ghosts->next + ROOM - age) % ROOM;
        if (ghosts->there[i] && ghosts->hashes[i] == hash) {
            ghosts->there[i] = false;
            return true;
        }
    }
    return false;
}

/* No hash is added that is a ghost: of equal ones any may be taken. */
static void any_sequence_does_what_a_plain_list_does(void)
{
    kvreg_ghosts *ghosts = new_ghosts(ROOM);
    reference plain = { .next = 0 };
    srand(1);
    for (int step = 0; step < STEPS; step++) {
        /* Half of the hashes share a bucket. */
        uint32_t i = 1 + (uint32_t)rand() % HASHES;
        uint32_t hash = i % 2 ? i : spread(i);
        bool was_ghost = reference_take(&plain, hash);
        CHECK(kvreg_ghosts_take(ghosts, hash) == was_ghost);
        if (!was_ghost && rand() % 2) {
            kvreg_ghosts_add(ghosts, hash);
            reference_add(&plain, hash);
        }
    }
    free(ghosts);
}

int main(void)
{
    RUN(a_ghost_is_taken_once);
    RUN(the_oldest_are_forgotten);
    RUN(equal_hashes_are_ghosts_of_their_own);
    RUN(any_sequence_does_what_a_plain_list_does);
    return check_end();
}
