#include "ghosts.h"

#include "chains.h"

/* The chains' positions are a ring: a ghost that is taken leaves its place empty. */
struct kvreg_ghosts {
    uint32_t next; /* position for the next ghost: the oldest's, once the ring is full. The chains
                    * lie behind */
};

static kvreg_chains *chains_of(kvreg_ghosts *ghosts)
{
    return (kvreg_chains *)(ghosts + 1);
}

size_t kvreg_ghosts_bytes(uint32_t room)
{
    return sizeof(kvreg_ghosts) + kvreg_chains_bytes(room);
}

void kvreg_ghosts_init(kvreg_ghosts *ghosts, uint32_t room)
{
    kvreg_chains_init(chains_of(ghosts), room);
}

void kvreg_ghosts_add(kvreg_ghosts *ghosts, uint64_t hash)
{
    kvreg_chains *chains = chains_of(ghosts);
    uint32_t position = ghosts->next;
    kvreg_chains_remove(chains, position);
    kvreg_chains_add(chains, position, hash);
    ghosts->next = position + 1 == chains->room ? 0 : position + 1;
}

bool kvreg_ghosts_take(kvreg_ghosts *ghosts, uint64_t hash)
{
    kvreg_chains *chains = chains_of(ghosts);
    uint32_t position = kvreg_chains_find(chains, hash);
    if (position == KVREG_CHAINS_NONE)
        return false;
    kvreg_chains_remove(chains, position);
    return true;
}
