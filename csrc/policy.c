#include "policy.h"

#include <stdio.h>
#include <string.h>

static const kvreg_policy *const policies[] = { &kvreg_policy_lru };

enum { POLICIES = sizeof policies / sizeof policies[0] };

kvreg_status kvreg_policy_find(const char *name, const kvreg_policy **policy, kvreg_error *error)
{
    char known[128] = "";
    for (size_t i = 0; i < POLICIES; i++) {
        if (strcmp(policies[i]->name, name) == 0) {
            *policy = policies[i];
            return KVREG_OK;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i == 0 ? "" : ", ", policies[i]->name);
    }
    return kvreg_fail(error, KVREG_E_ARGUMENT, "unknown eviction policy \"%.64s\"; known are: %s",
                      name, known);
}
