#include "policy.h"

#include <stdio.h>
#include <string.h>

const kvreg_policy *const kvreg_policies[] = {
    &kvreg_policy_krl, &kvreg_policy_lru, &kvreg_policy_s3fifo, NULL
};

kvreg_status kvreg_policy_find(const char *name, const kvreg_policy **policy, kvreg_error *error)
{
    char known[128] = "";
    for (size_t i = 0; kvreg_policies[i] != NULL; i++) {
        if (strcmp(kvreg_policies[i]->name, name) == 0) {
            *policy = kvreg_policies[i];
            return KVREG_OK;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i == 0 ? "" : ", ",
                 kvreg_policies[i]->name);
    }
    return kvreg_fail(error, KVREG_E_ARGUMENT, "unknown eviction policy \"%.64s\"; known are: %s",
                      name, known);
}

void kvreg_policy_observe_slots(void *state, kvreg_index *index, kvreg_key *keys, size_t n,
                                const kvreg_use *use, bool placed)
{
    (void)state, (void)index, (void)use, (void)placed;
    for (size_t i = 0; i < n; i++)
        keys[i].used = keys[i].slot != KVREG_NO_SLOT;
}

/* FNV-1a: G. Fowler, L. C. Noll, K.-P. Vo. The same in every process, so that results repeat. */
uint32_t kvreg_request_number(const char *name, size_t bytes)
{
    uint32_t number = 0x811c9dc5u;
    for (size_t i = 0; i < bytes; i++)
        number = (number ^ (uint8_t)name[i]) * 0x01000193u;
    return number == 0 ? 1 : number;
}
