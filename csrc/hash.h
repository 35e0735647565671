/* A keyed hash. Of any two different keys, of one length or of two, that are chosen without knowing
 * the seed, the hashes have the same upper b bits under at most 2 seeds in 2^b and 1 in 2^63, and are
 * the same under at most 1 in 2^61.
 *
 * First NH (J. Black, S. Halevi, H. Krawczyk, T. Krovetz, P. Rogaway, "UMAC: fast and secure message
 * authentication", CRYPTO 1999): to each word of a key a secret of its own is added, and the products
 * of pairs of words are summed up to 128 bits. The last pair may repeat bytes of the one before, and
 * so may the words of a short key; the length is added to the sum. Of two keys of as many pairs,
 * whose words differ, the sums differ by a given number, as by that of the lengths, under at most 1
 * seed in 2^64. If one has more pairs, its last product makes up for the difference of all others
 * under at most 2 seeds in 2^64.
 *
 * Then the halves of the sum are multiplied by a secret of 128 bits each; the hash is the upper half
 * of the sum of both products, modulo 2^128 (M. Dietzfelbinger, "Universal hashing and k-wise
 * independence via integer arithmetic without primes", STACS 1996). What the secrets' own upper
 * halves x and y add there, a * x + b * y, comes from the single product (a + y) * (b + x): by what
 * that is more, a * b and x * y, no two keys come any closer (D. Lemire, O. Kaser, "Strongly
 * universal string hashing is fast", The Computer Journal 57, 2014). */
#ifndef KVREG_HASH_H
#define KVREG_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "slot.h"

enum { KVREG_HASH_PAIR = 16 }; /* bytes of two words */

/* To be drawn at random. */
typedef struct kvreg_hash_seed {
    uint64_t words[KVREG_KEY_MAX / 8]; /* added to the key's words */
    uint64_t low[2], high[2];          /* what the sum's lower and upper half are multiplied by,
                                        * each lower half first */
} kvreg_hash_seed;

__extension__ typedef unsigned __int128 kvreg_uint128;

static inline uint64_t kvreg_hash_word(const uint8_t *data)
{
    uint64_t word;
    memcpy(&word, data, sizeof word);
    return word;
}

static inline uint64_t kvreg_hash_half_word(const uint8_t *data)
{
    uint32_t word;
    memcpy(&word, data, sizeof word);
    return word;
}

static inline kvreg_uint128 kvreg_hash_product(uint64_t a, uint64_t b, const uint64_t secrets[2])
{
    return (kvreg_uint128)(a + secrets[0]) * (b + secrets[1]);
}

/* NH of 1 to KVREG_KEY_MAX bytes, and their number. */
static inline kvreg_uint128 kvreg_hash_sum(const kvreg_hash_seed *seed, const uint8_t *data,
                                           size_t bytes)
{
    const uint64_t *secrets = seed->words;
    kvreg_uint128 sum = bytes;
    uint64_t a, b;
    if (bytes >= KVREG_HASH_PAIR) {
        const uint8_t *last = data + bytes - KVREG_HASH_PAIR;
        for (; data < last; data += KVREG_HASH_PAIR, secrets += 2)
            sum += kvreg_hash_product(kvreg_hash_word(data), kvreg_hash_word(data + 8), secrets);
        a = kvreg_hash_word(last);
        b = kvreg_hash_word(last + 8);
    } else if (bytes >= 8) {
        a = kvreg_hash_word(data);
        b = kvreg_hash_word(data + bytes - 8);
    } else if (bytes >= 4) {
        a = kvreg_hash_half_word(data);
        b = kvreg_hash_half_word(data + bytes - 4);
    } else {
        a = data[0] | (uint64_t)data[bytes / 2] << 8;
        b = data[bytes - 1];
    }
    return sum + kvreg_hash_product(a, b, secrets);
}

/* The hash of 1 to KVREG_KEY_MAX bytes; never 0. Its upper bits are the best: of keys in order the
 * lower ones may be spread unevenly. */
static inline uint64_t kvreg_hash(const kvreg_hash_seed *seed, const uint8_t *data, size_t bytes)
{
    kvreg_uint128 sum = kvreg_hash_sum(seed, data, bytes);
    uint64_t low = (uint64_t)sum, high = (uint64_t)(sum >> 64);
    kvreg_uint128 products = (kvreg_uint128)low * seed->low[0];
    products += (kvreg_uint128)high * seed->high[0];
    uint64_t hash = (uint64_t)(products >> 64) + (low + seed->high[1]) * (high + seed->low[1]);
    return hash == 0 ? 1 : hash;
}

#endif
