#include "copy_threads.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { ROWS = 900, BLOCK = 5000 }; /* enough for four threads */

static kvreg_rows make_rows(int first)
{
    unsigned char *bytes = malloc((size_t)ROWS * BLOCK);
    CHECK(bytes != NULL);
    for (size_t i = 0; i < (size_t)ROWS * BLOCK; i++)
        bytes[i] = (unsigned char)((size_t)first * (i / BLOCK + i % BLOCK));
    return (kvreg_rows){bytes, BLOCK, ROWS};
}

static const kvreg_copy_kernel *large_kernel(void)
{
    const kvreg_copy_kernel *kernel;
    kvreg_error error;
    CHECK(kvreg_copy_choose(BLOCK, (size_t)1 << 40, &kernel, &error) == KVREG_OK);
    return kernel;
}

static void the_caller_sees_every_byte_that_the_threads_copied(void)
{
    kvreg_rows dst = make_rows(0), src = make_rows(7);
    uint32_t dst_ids[ROWS], src_ids[ROWS];
    for (uint32_t i = 0; i < ROWS; i++) {
        dst_ids[i] = i;
        src_ids[i] = (i * 7 + 3) % ROWS;
    }
    for (uint32_t threads = 1; threads <= 8; threads *= 2) {
        kvreg_error error;
        memset(dst.base, 0, (size_t)ROWS * BLOCK);
        CHECK(kvreg_copy_on_threads(threads, large_kernel(), &dst, dst_ids, &src, src_ids, BLOCK,
                                    ROWS, &error) == KVREG_OK);
        for (size_t i = 0; i < ROWS; i++)
            CHECK(memcmp((char *)dst.base + dst_ids[i] * (size_t)BLOCK,
                         (char *)src.base + src_ids[i] * (size_t)BLOCK, BLOCK) == 0);
    }
    free(dst.base);
    free(src.base);
}

static void the_last_copy_to_a_row_stays_on_any_number_of_threads(void)
{
    kvreg_rows dst = make_rows(0), src = make_rows(7);
    uint32_t dst_ids[ROWS], src_ids[ROWS];
    for (uint32_t i = 0; i < ROWS; i++) {
        dst_ids[i] = i % 2;
        src_ids[i] = i;
    }
    for (uint32_t threads = 1; threads <= 4; threads++) {
        kvreg_error error;
        CHECK(kvreg_copy_on_threads(threads, large_kernel(), &dst, dst_ids, &src, src_ids, BLOCK,
                                    ROWS, &error) == KVREG_OK);
        CHECK(memcmp(dst.base, (char *)src.base + (size_t)(ROWS - 2) * BLOCK, 2 * BLOCK) == 0);
    }
    free(dst.base);
    free(src.base);
}

static void bad_copies_are_refused_and_empty_ones_are_done(void)
{
    kvreg_rows dst = make_rows(0), src = make_rows(7);
    uint32_t dst_ids[] = {0, ROWS}, src_ids[] = {1, 2};
    kvreg_error error;
    CHECK(kvreg_copy_on_threads(2, large_kernel(), &dst, dst_ids, &src, src_ids, BLOCK, 2, &error)
          == KVREG_E_ARGUMENT);
    CHECK(strstr(error.text, "dst_ids[1] is 900") != NULL);
    CHECK(((unsigned char *)dst.base)[1] == 0);
    CHECK(kvreg_copy_on_threads(2, large_kernel(), &dst, NULL, &src, NULL, BLOCK, 0, &error)
          == KVREG_OK);
    free(dst.base);
    free(src.base);
}

int main(void)
{
    RUN(the_caller_sees_every_byte_that_the_threads_copied);
    RUN(the_last_copy_to_a_row_stays_on_any_number_of_threads);
    RUN(bad_copies_are_refused_and_empty_ones_are_done);
    return check_end();
}
