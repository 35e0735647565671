#include "crc32c.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"

/* Bit by bit, as the definition has it. */
static uint32_t reference(const uint8_t *data, size_t bytes)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
    }
    return ~crc;
}

static void published_values_come_out(void)
{
    uint8_t bytes[32];
    CHECK(kvreg_crc32c("123456789", 9) == 0xe3069283u);
    CHECK(kvreg_crc32c("", 0) == 0);
    memset(bytes, 0, sizeof bytes);
    CHECK(kvreg_crc32c(bytes, sizeof bytes) == 0x8a9136aau);
    memset(bytes, 0xff, sizeof bytes);
    CHECK(kvreg_crc32c(bytes, sizeof bytes) == 0x62a8ab43u);
    for (uint8_t i = 0; i < 32; i++)
        bytes[i] = i;
    CHECK(kvreg_crc32c(bytes, sizeof bytes) == 0x46dd794eu);
}

static void every_length_and_alignment_agrees_with_the_definition(void)
{
    static uint8_t bytes[20000];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)rand();
    for (int round = 0; round < 600; round++) {
        size_t start = (size_t)rand() % 64;
        size_t length = round < 300 ? (size_t)round : (size_t)rand() % (sizeof bytes - 64);
        uint32_t expected = reference(bytes + start, length);
        CHECK(kvreg_crc32c(bytes + start, length) == expected);
        CHECK(kvreg_crc32c_portable(bytes + start, length) == expected);
    }
}

int main(void)
{
    srand(1);
    RUN(published_values_come_out);
    RUN(every_length_and_alignment_agrees_with_the_definition);
    return check_end();
}
