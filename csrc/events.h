/* What came into a cache and what went, in order, for whoever watches it.
 *
 * Room is reserved before a change begins, so that the change itself cannot fail. The user's lock
 * guards it. The memory is this process's own, not the region's. */
#ifndef KVREG_EVENTS_H
#define KVREG_EVENTS_H

#include <stdbool.h>

#include "index.h"

typedef struct kvreg_event {
    uint8_t removed; /* 0: the block was stored */
    uint8_t key_bytes;
    uint8_t key[KVREG_KEY_MAX];
} kvreg_event;

/* Zeros are an empty one. */
typedef struct kvreg_events {
    kvreg_event *list; /* oldest first */
    size_t count;      /* events in the list */
    size_t reserved;   /* that are sure to find room after those */
    size_t capacity;   /* at least count + reserved */
} kvreg_events;

/* Makes room for n more events; false, and nothing changed, when there is no memory. */
bool kvreg_events_reserve(kvreg_events *events, size_t n);

/* Gives back room that was reserved and is not needed. */
void kvreg_events_release(kvreg_events *events, size_t n);

/* Adds an event, in reserved room. */
void kvreg_events_add(kvreg_events *events, bool removed, const uint8_t *near_key,
                      const uint8_t *far_key, uint32_t key_bytes);

/* Moves the events to the caller, who frees the list with kvreg_os_free, and keeps the room that is
 * reserved. False, and nothing changed, when there is no memory for that. */
bool kvreg_events_take(kvreg_events *events, kvreg_event **list, size_t *count);

void kvreg_events_free(kvreg_events *events);

#endif
