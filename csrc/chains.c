#include "chains.h"

/* Two positions a bucket on average: a chain is still short, and metadata has to be small. */
static uint32_t bucket_count(uint32_t room)
{
    return room / 2 + 1;
}

size_t kvreg_chains_bytes(uint32_t room)
{
    return sizeof(kvreg_chains) + (size_t)room * sizeof(kvreg_chain_link) +
           (size_t)bucket_count(room) * sizeof(uint32_t);
}

void kvreg_chains_init(kvreg_chains *chains, uint32_t room)
{
    chains->room = room;
}

static uint32_t high(uint64_t hash)
{
    return (uint32_t)(hash >> 32);
}

static uint32_t low(uint64_t hash)
{
    return (uint32_t)hash;
}

/* The head of the chain for hashes with this upper half. */
static uint32_t *head_of(const kvreg_chains *chains, uint32_t hash_high)
{
    uint32_t *heads = (uint32_t *)(chains->links + chains->room);
    return heads + ((uint64_t)hash_high * bucket_count(chains->room) >> 32);
}

uint32_t kvreg_chains_find(const kvreg_chains *chains, uint64_t hash)
{
    for (uint32_t at = *head_of(chains, high(hash)); at != 0; at = chains->links[at - 1].older) {
        if (kvreg_chains_holds(chains, at - 1, hash))
            return at - 1;
    }
    return KVREG_CHAINS_NONE;
}

void kvreg_chains_add(kvreg_chains *chains, uint32_t position, uint64_t hash)
{
    uint32_t *head = head_of(chains, high(hash));
    chains->links[position] = (kvreg_chain_link){ high(hash), low(hash), *head };
    *head = position + 1;
}

void kvreg_chains_remove(kvreg_chains *chains, uint32_t position)
{
    uint32_t *link = head_of(chains, chains->links[position].hash_high);
    while (*link != 0 && *link != position + 1)
        link = &chains->links[*link - 1].older;
    if (*link != 0)
        *link = chains->links[position].older;
}

void kvreg_chains_prefetch_head(const kvreg_chains *chains, uint64_t hash)
{
    __builtin_prefetch(head_of(chains, high(hash)), 1);
}

void kvreg_chains_prefetch_link(const kvreg_chains *chains, uint64_t hash)
{
    uint32_t first = *head_of(chains, high(hash));
    if (first != 0)
        __builtin_prefetch(&chains->links[first - 1], 1);
}

void kvreg_chains_prefetch_position(const kvreg_chains *chains, uint32_t position)
{
    __builtin_prefetch(&chains->links[position], 1);
}

void kvreg_chains_prefetch_head_of(const kvreg_chains *chains, uint32_t position)
{
    __builtin_prefetch(head_of(chains, chains->links[position].hash_high), 1);
}
