/* Seeds of the index's hash that are the same in every run: one for each number. */
#ifndef KVREG_TESTS_SEEDS_H
#define KVREG_TESTS_SEEDS_H

#include "hash.h"

/* SplitMix64. */
static inline uint64_t next_of(uint64_t *state)
{
    uint64_t number = *state += 0x9e3779b97f4a7c15u;
    number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9u;
    number = (number ^ number >> 27) * 0x94d049bb133111ebu;
    return number ^ number >> 31;
}

static inline kvreg_hash_seed seed_of(uint64_t number)
{
    kvreg_hash_seed seed;
    uint64_t words[sizeof seed / sizeof(uint64_t)];
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        words[i] = next_of(&number);
    memcpy(&seed, words, sizeof seed);
    return seed;
}

#endif
