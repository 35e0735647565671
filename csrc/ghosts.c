#include "ghosts.h"

/* A place in the ring of ghosts, and in the chain of its bucket, newest first. Links and heads are
 * 1 + a ghost's position in the ring; 0 ends a chain. A position whose ghost was taken is in no
 * chain. */
typedef struct ghost {
    uint32_t hash;
    uint32_t older;
} ghost;

struct kvreg_ghosts {
    uint32_t room;
    uint32_t next;  /* position for the next ghost: the oldest's, once the ring is full */
    ghost places[]; /* room of them, then the heads of the buckets' chains */
};

/* Two ghosts a bucket on average: a chain is still short, and metadata has to be small. */
static uint32_t bucket_count(uint32_t room)
{
    return room / 2 + 1;
}

size_t kvreg_ghosts_bytes(uint32_t room)
{
    return sizeof(kvreg_ghosts) + (size_t)room * sizeof(ghost) +
           (size_t)bucket_count(room) * sizeof(uint32_t);
}

void kvreg_ghosts_init(kvreg_ghosts *ghosts, uint32_t room)
{
    ghosts->room = room;
}

static uint32_t *chain_of(kvreg_ghosts *ghosts, uint32_t hash)
{
    uint32_t *heads = (uint32_t *)(ghosts->places + ghosts->room);
    return heads + ((uint64_t)hash * bucket_count(ghosts->room) >> 32);
}

static void leave_chain(kvreg_ghosts *ghosts, uint32_t position)
{
    uint32_t *link = chain_of(ghosts, ghosts->places[position].hash);
    while (*link != 0 && *link != position + 1)
        link = &ghosts->places[*link - 1].older;
    if (*link != 0)
        *link = ghosts->places[position].older;
}

void kvreg_ghosts_add(kvreg_ghosts *ghosts, uint32_t hash)
{
    uint32_t position = ghosts->next;
    leave_chain(ghosts, position);
    uint32_t *head = chain_of(ghosts, hash);
    ghosts->places[position] = (ghost){ hash, *head };
    *head = position + 1;
    ghosts->next = position + 1 == ghosts->room ? 0 : position + 1;
}

bool kvreg_ghosts_take(kvreg_ghosts *ghosts, uint32_t hash)
{
    uint32_t *link = chain_of(ghosts, hash);
    while (*link != 0 && ghosts->places[*link - 1].hash != hash)
        link = &ghosts->places[*link - 1].older;
    if (*link == 0)
        return false;
    *link = ghosts->places[*link - 1].older;
    return true;
}
