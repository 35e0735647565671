#include "hash.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "seeds.h"

/* Pairs of keys that a careless hash confuses, whatever its seed is. The seeds are the same in every
 * run, and so are the counts that are held to what chance gives. */

enum { SEEDS = 4096 };

static kvreg_hash_seed seeds[SEEDS];

typedef struct pair {
    uint8_t keys[2][KVREG_KEY_MAX];
    size_t bytes[2];
} pair;

static pair new_pair(size_t a, size_t b)
{
    pair both = { .bytes = { a, b } };
    return both;
}

static void set_word(pair *both, int key, size_t word, uint64_t value)
{
    memcpy(both->keys[key] + word * sizeof value, &value, sizeof value);
}

/* Two different keys agree in their hashes' upper 8 bits under about one seed in 256, which would be
 * 16 here, and in the whole hash under none. */
static void check_pair(const pair *both)
{
    int close = 0;
    CHECK(both->bytes[0] != both->bytes[1] ||
          memcmp(both->keys[0], both->keys[1], both->bytes[0]) != 0);
    for (int i = 0; i < SEEDS; i++) {
        uint64_t a = kvreg_hash(&seeds[i], both->keys[0], both->bytes[0]);
        uint64_t b = kvreg_hash(&seeds[i], both->keys[1], both->bytes[1]);
        CHECK(a != b);
        close += a >> 56 == b >> 56;
    }
    CHECK(close < 3 * SEEDS / 256);
}

/* -- Differences --------------------------------------------------------------------------- */

static const uint64_t X = 0x1122334455667788u, Y = 0x99aabbccddeeff00u, Z = 0x0123456789abcdefu;

static void words_that_change_places_change_the_hash(void)
{
    for (size_t i = 0; i < 8; i++) {
        for (size_t j = i + 1; j < 8; j++) {
            pair both = new_pair(KVREG_KEY_MAX, KVREG_KEY_MAX);
            set_word(&both, 0, i, X), set_word(&both, 0, j, Y);
            set_word(&both, 1, i, Y), set_word(&both, 1, j, X);
            check_pair(&both);
        }
    }
}

/* As where words meet the same secret, before or after a multiple of the length. */
static void words_that_take_the_length_along_change_the_hash(void)
{
    for (size_t bytes = 17; bytes <= 64; bytes++) {
        uint64_t length = bytes * 0x9e3779b97f4a7c15u;
        pair both = new_pair(bytes, bytes);
        set_word(&both, 0, 0, X), set_word(&both, 0, 1, Y);
        set_word(&both, 1, 0, Y ^ length), set_word(&both, 1, 1, X ^ length);
        check_pair(&both);
        both.bytes[1] = bytes == 64 ? 17 : bytes + 1;
        check_pair(&both);
    }
}

/* Where secrets are added, and not xored, and where they are xored. */
static void what_one_word_gains_and_another_loses_changes_the_hash(void)
{
    static const uint64_t gains[] = { 1, 2, 1u << 31, (uint64_t)1 << 63, UINT64_MAX / 3 };
    for (size_t i = 0; i < sizeof gains / sizeof *gains; i++) {
        for (size_t word = 1; word < 8; word++) {
            pair sums = new_pair(KVREG_KEY_MAX, KVREG_KEY_MAX), xors = sums;
            set_word(&sums, 1, 0, gains[i]), set_word(&sums, 1, word, 0 - gains[i]);
            set_word(&xors, 1, 0, gains[i]), set_word(&xors, 1, word, gains[i]);
            check_pair(&sums);
            check_pair(&xors);
        }
    }
}

static void every_bit_of_a_key_counts(void)
{
    for (size_t bytes = 1; bytes <= KVREG_KEY_MAX; bytes += bytes < 20 ? 1 : 11) {
        for (size_t bit = 0; bit < 8 * bytes; bit++) {
            pair both = new_pair(bytes, bytes);
            both.keys[1][bit / 8] = (uint8_t)(1u << bit % 8);
            check_pair(&both);
        }
    }
}

/* A factor of zero makes a product forget the other: no key is known that brings one about. */
static void words_of_one_value_do_not_hide_the_others(void)
{
    static const uint64_t values[] = { 0, 1, UINT64_MAX, (uint64_t)1 << 63 };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        for (size_t word = 0; word < 8; word++) {
            pair both = new_pair(KVREG_KEY_MAX, KVREG_KEY_MAX);
            for (size_t j = 0; j < 8; j++)
                set_word(&both, 0, j, values[i]), set_word(&both, 1, j, values[i]);
            set_word(&both, 1, word, Z);
            check_pair(&both);
        }
    }
}

static void keys_that_differ_in_length_alone_have_other_hashes(void)
{
    static const uint8_t fills[] = { 0, 0xff, 0xab };
    for (size_t i = 0; i < sizeof fills; i++) {
        for (size_t a = 1; a < KVREG_KEY_MAX; a++) {
            for (size_t b = a + 1; b <= KVREG_KEY_MAX; b += a < 20 ? 1 : 7) {
                pair both = new_pair(a, b);
                memset(both.keys, fills[i], sizeof both.keys);
                check_pair(&both);
            }
        }
    }
}

/* Of a key the end, which its last words repeat. */
static void keys_with_the_same_words_and_other_lengths_have_other_hashes(void)
{
    for (size_t a = 9; a < 16; a++) {
        pair both = new_pair(a, 16);
        memset(both.keys[0], 7, a);
        memcpy(both.keys[1], both.keys[0], 8);
        memcpy(both.keys[1] + 8, both.keys[0] + a - 8, 8);
        check_pair(&both);
    }
    for (size_t a = 17; a < 32; a++) {
        pair both = new_pair(a, 32);
        for (size_t i = 0; i < a; i++)
            both.keys[0][i] = (uint8_t)i;
        memcpy(both.keys[1], both.keys[0], 16);
        memcpy(both.keys[1] + 16, both.keys[0] + a - 16, 16);
        check_pair(&both);
    }
}

/* -- Spread -------------------------------------------------------------------------------- */

/* Each of the 64 bits changes under half the seeds: 2048 of them give or take 32, by chance. */
static void a_bit_of_a_key_changes_each_bit_of_the_hash_under_half_the_seeds(void)
{
    static const size_t lengths[] = { 1, 3, 4, 8, 12, 16, 20, 36, 64 };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        for (size_t bit = 0; bit < 8 * lengths[i]; bit += 7) {
            uint8_t key[KVREG_KEY_MAX] = { 0 }, other[KVREG_KEY_MAX] = { 0 };
            int changes[64] = { 0 };
            other[bit / 8] = (uint8_t)(1u << bit % 8);
            for (int j = 0; j < SEEDS; j++) {
                uint64_t change = kvreg_hash(&seeds[j], key, lengths[i]) ^
                                  kvreg_hash(&seeds[j], other, lengths[i]);
                for (int k = 0; k < 64; k++)
                    changes[k] += change >> k & 1;
            }
            for (int k = 0; k < 64; k++)
                CHECK(abs(changes[k] - SEEDS / 2) < 6 * 32);
        }
    }
}

/* Numbers in order, at either end of a key, are what a careless hash would send to few places: to
 * few groups of a table, or in a group to few tags. In a group are to be 16, give or take 4 by
 * chance, and of all pairs of keys one in 4096 * 256 in the same one with the same tag. */
static void counted_keys_are_spread_over_groups_and_tags(void)
{
    enum { GROUPS = 1 << 12, KEYS = 16 * GROUPS, TAGS = 1 << 8 };
    static const size_t lengths[] = { 4, 8, 12, 20, 36, 64 };
    static uint8_t keys_of[GROUPS][TAGS];
    for (size_t round = 0; round < 2 * 8 * sizeof lengths / sizeof *lengths; round++) {
        size_t bytes = lengths[round / 16], place = round % 2 * (bytes - sizeof(uint32_t));
        uint32_t pairs = 0;
        memset(keys_of, 0, sizeof keys_of);
        for (uint32_t number = 0; number < KEYS; number++) {
            uint8_t key[KVREG_KEY_MAX] = { 0 };
            memcpy(key + place, &number, sizeof number);
            uint64_t hash = kvreg_hash(&seeds[round], key, bytes);
            pairs += keys_of[hash >> 52][(uint8_t)(hash >> 32)]++;
        }
        CHECK(pairs < (KEYS / 2 * 16 / TAGS) * 5 / 4);
        for (int group = 0; group < GROUPS; group++) {
            int keys = 0;
            for (int tag = 0; tag < TAGS; tag++)
                keys += keys_of[group][tag];
            CHECK(keys < 16 + 9 * 4);
        }
    }
}

/* -- The rest ------------------------------------------------------------------------------ */

/* At the very end of memory that a sanitizer watches. */
static void a_hash_is_that_of_the_key_alone(void)
{
    for (size_t bytes = 1; bytes <= KVREG_KEY_MAX; bytes++) {
        uint8_t *exact = malloc(bytes), within[KVREG_KEY_MAX + 2];
        CHECK(exact != NULL);
        memset(exact, 0x5a, bytes);
        memset(within, 0xa5, sizeof within);
        memcpy(within + 1, exact, bytes);
        CHECK(kvreg_hash(&seeds[0], exact, bytes) == kvreg_hash(&seeds[0], within + 1, bytes));
        free(exact);
    }
}

static void every_secret_of_the_seed_counts(void)
{
    uint8_t key[KVREG_KEY_MAX];
    memset(key, 7, sizeof key);
    uint64_t hash = kvreg_hash(&seeds[0], key, sizeof key);
    for (size_t i = 4; i < sizeof seeds[0]; i += 8) {
        kvreg_hash_seed other = seeds[0];
        ((uint8_t *)&other)[i]++;
        CHECK(kvreg_hash(&other, key, sizeof key) != hash);
    }
}

static void no_hash_is_0(void)
{
    kvreg_hash_seed zeros = { .low = { 0 } };
    uint8_t key[8] = { 0 };
    CHECK(kvreg_hash(&zeros, key, sizeof key) == 1);
}

int main(void)
{
    for (uint64_t i = 0; i < SEEDS; i++)
        seeds[i] = seed_of(i << 32);
    RUN(words_that_change_places_change_the_hash);
    RUN(words_that_take_the_length_along_change_the_hash);
    RUN(what_one_word_gains_and_another_loses_changes_the_hash);
    RUN(every_bit_of_a_key_counts);
    RUN(words_of_one_value_do_not_hide_the_others);
    RUN(keys_that_differ_in_length_alone_have_other_hashes);
    RUN(keys_with_the_same_words_and_other_lengths_have_other_hashes);
    RUN(a_bit_of_a_key_changes_each_bit_of_the_hash_under_half_the_seeds);
    RUN(counted_keys_are_spread_over_groups_and_tags);
    RUN(a_hash_is_that_of_the_key_alone);
    RUN(every_secret_of_the_seed_counts);
    RUN(no_hash_is_0);
    return check_end();
}
