#include "crc32c.h"

#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

/* -- Portable: eight bytes a step, from eight tables ----------------------------------------- */

static uint32_t tables[8][256];

static void build_tables(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
        tables[0][byte] = crc;
    }
    for (int table = 1; table < 8; table++)
        for (uint32_t byte = 0; byte < 256; byte++)
            tables[table][byte] =
                tables[table - 1][byte] >> 8 ^ tables[0][tables[table - 1][byte] & 0xff];
}

static uint32_t table_step(uint32_t crc, const uint8_t *data)
{
    crc ^= data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
    return tables[7][crc & 0xff] ^ tables[6][crc >> 8 & 0xff] ^ tables[5][crc >> 16 & 0xff] ^
           tables[4][crc >> 24] ^ tables[3][data[4]] ^ tables[2][data[5]] ^ tables[1][data[6]] ^
           tables[0][data[7]];
}

uint32_t kvreg_crc32c_portable(const void *data, size_t bytes)
{
    const uint8_t *next = data;
    uint32_t crc = ~0u;
    for (; bytes >= 8; bytes -= 8, next += 8)
        crc = table_step(crc, next);
    for (; bytes > 0; bytes--, next++)
        crc = crc >> 8 ^ tables[0][(crc ^ *next) & 0xff];
    return ~crc;
}

/* -- With the CPU's instruction -------------------------------------------------------------- */

#if defined(__x86_64__)
#define HAS_INSTRUCTION 1
#define WITH_INSTRUCTION __attribute__((target("sse4.2")))

static bool cpu_has_instruction(void)
{
    return __builtin_cpu_supports("sse4.2");
}

WITH_INSTRUCTION static uint32_t step_1(uint32_t crc, uint8_t byte)
{
    return _mm_crc32_u8(crc, byte);
}

WITH_INSTRUCTION static uint32_t step_8(uint32_t crc, uint64_t word)
{
    return (uint32_t)_mm_crc32_u64(crc, word);
}
#elif defined(__aarch64__)
#define HAS_INSTRUCTION 1
#define WITH_INSTRUCTION __attribute__((target("+crc")))

static bool cpu_has_instruction(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
}

WITH_INSTRUCTION static uint32_t step_1(uint32_t crc, uint8_t byte)
{
    return __crc32cb(crc, byte);
}

WITH_INSTRUCTION static uint32_t step_8(uint32_t crc, uint64_t word)
{
    return __crc32cd(crc, word);
}
#endif

#ifdef HAS_INSTRUCTION
/* The instruction takes three cycles and one can start in each: three streams side by side, of
 * LANE bytes each, keep it busy. Joining them shifts a stream's checksum over the bytes of the
 * next, by tables. */
enum { LANE = 1024 };

static uint32_t shift_tables[4][256];

/* The checksum register after LANE more bytes of zeros. */
static uint32_t shift_over_lane(uint32_t crc)
{
    return shift_tables[0][crc & 0xff] ^ shift_tables[1][crc >> 8 & 0xff] ^
           shift_tables[2][crc >> 16 & 0xff] ^ shift_tables[3][crc >> 24];
}

static void build_shift_tables(void)
{
    for (int place = 0; place < 4; place++)
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t crc = byte << 8 * place;
            for (int zero = 0; zero < LANE; zero++)
                crc = crc >> 8 ^ tables[0][crc & 0xff];
            shift_tables[place][byte] = crc;
        }
}

static uint64_t word_at(const uint8_t *data)
{
    uint64_t word;
    memcpy(&word, data, sizeof word);
    return word;
}

WITH_INSTRUCTION static uint32_t three_lanes(uint32_t crc, const uint8_t *data)
{
    uint32_t second = 0, third = 0;
    for (size_t i = 0; i < LANE; i += 8) {
        crc = step_8(crc, word_at(data + i));
        second = step_8(second, word_at(data + LANE + i));
        third = step_8(third, word_at(data + 2 * LANE + i));
    }
    return shift_over_lane(shift_over_lane(crc) ^ second) ^ third;
}

WITH_INSTRUCTION static uint32_t crc32c_by_instruction(const uint8_t *data, size_t bytes)
{
    uint32_t crc = ~0u;
    for (; bytes >= 3 * LANE; bytes -= 3 * LANE, data += 3 * LANE)
        crc = three_lanes(crc, data);
    for (; bytes >= 8; bytes -= 8, data += 8)
        crc = step_8(crc, word_at(data));
    for (; bytes > 0; bytes--, data++)
        crc = step_1(crc, *data);
    return ~crc;
}
#endif

/* When the library is loaded, so that no thread has to check. */
__attribute__((constructor)) static void build_all_tables(void)
{
    build_tables();
#ifdef HAS_INSTRUCTION
    build_shift_tables();
#endif
}

uint32_t kvreg_crc32c(const void *data, size_t bytes)
{
#ifdef HAS_INSTRUCTION
    if (cpu_has_instruction())
        return crc32c_by_instruction(data, bytes);
#endif
    return kvreg_crc32c_portable(data, bytes);
}
