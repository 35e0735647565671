#include "policy.h"

#include <stdio.h>
#include <string.h>

const kvreg_policy *const kvreg_policies[] = { &kvreg_policy_lru, &kvreg_policy_s3fifo, NULL };

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
