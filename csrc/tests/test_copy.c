#include "copy_kernels.h"

#include "check.h"

static void copies_blocks_between_rows(void)
{
    unsigned char src[8 * 100], dst[8 * 130];
    for (size_t i = 0; i < sizeof src; i++)
        src[i] = (unsigned char)(i * 7);
    uint32_t src_ids[] = {7, 0, 3}, dst_ids[] = {1, 7, 2};
    const kvreg_copy_kernel *kernel;
    for (size_t k = 0; (kernel = kvreg_copy_kernel_at(kvreg_copy_cpu_features(), k)) != NULL; k++) {
        memset(dst, 0, sizeof dst);
        kvreg_rows to = {dst, 130, 8}, from = {src, 100, 8};
        kvreg_copy_run(kernel, &to, dst_ids, &from, src_ids, 99, 3);
        for (size_t i = 0; i < 3; i++)
            CHECK(memcmp(dst + 130 * dst_ids[i], src + 100 * src_ids[i], 99) == 0);
    }
}

int main(void)
{
    RUN(copies_blocks_between_rows);
    return check_end();
}
