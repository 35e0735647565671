#include "events.h"

#include <string.h>

#include "os.h"

/* A list with that room and the events of `events`; NULL when there is no memory. */
static kvreg_event *copy_of_list(const kvreg_events *events, size_t capacity)
{
    if (capacity > SIZE_MAX / sizeof(kvreg_event))
        return NULL;
    kvreg_event *list = kvreg_os_alloc(capacity * sizeof *list);
    if (list != NULL && events->count > 0)
        memcpy(list, events->list, events->count * sizeof *list);
    return list;
}

bool kvreg_events_reserve(kvreg_events *events, size_t n)
{
    size_t needed = events->count + events->reserved + n;
    if (needed > events->capacity) {
        size_t capacity = needed + needed / 2;
        kvreg_event *list = copy_of_list(events, capacity);
        if (list == NULL)
            return false;
        kvreg_os_free(events->list);
        events->list = list;
        events->capacity = capacity;
    }
    events->reserved += n;
    return true;
}

void kvreg_events_release(kvreg_events *events, size_t n)
{
    events->reserved -= n;
}

void kvreg_events_add(kvreg_events *events, bool removed, const uint8_t *near_key,
                      const uint8_t *far_key, uint32_t key_bytes)
{
    kvreg_event *event = &events->list[events->count++];
    uint32_t near = key_bytes < KVREG_KEY_NEAR ? key_bytes : KVREG_KEY_NEAR;
    events->reserved--;
    event->removed = removed;
    event->key_bytes = (uint8_t)key_bytes;
    memcpy(event->key, near_key, near);
    memcpy(event->key + near, far_key, key_bytes - near);
}

bool kvreg_events_take(kvreg_events *events, kvreg_event **list, size_t *count)
{
    kvreg_event *fresh = NULL;
    if (events->reserved > 0) {
        fresh = kvreg_os_alloc(events->reserved * sizeof *fresh);
        if (fresh == NULL)
            return false;
    }
    *list = events->list;
    *count = events->count;
    events->list = fresh;
    events->count = 0;
    events->capacity = events->reserved;
    return true;
}

void kvreg_events_free(kvreg_events *events)
{
    kvreg_os_free(events->list);
    *events = (kvreg_events){ .list = NULL };
}
