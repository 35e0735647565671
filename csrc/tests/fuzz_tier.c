/* Plays the calls that an input spells on a tier, and checks what it answers against the rules of
 * host tiers, for libFuzzer: `make -C csrc fuzz`.
 *
 * The model knows no eviction policy. The tier's events tell which blocks it holds; the rules say
 * how many of a store's blocks must find room, which blocks must not go, and what a load brings.
 * Copies run while further calls are made: where an answer depends on how far they have come, any
 * that is possible is right. */
#include "tier.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"

enum {
    KEYS = 16,
    MOST_SLOTS = 10,
    ROWS = 64,
    MOST_BYTES = 72, /* of a block */
    MOST_JOB_KEYS = 8,
    UNTOUCHED = 0xee, /* what bytes are that nothing should write */
};

/* -- Input --------------------------------------------------------------------------------- */

static const uint8_t *input;
static size_t input_left;

static uint8_t next_byte(void)
{
    if (input_left == 0)
        return 0;
    input_left--;
    return *input++;
}

/* -- Model --------------------------------------------------------------------------------- */

typedef struct model_key {
    bool present;     /* its block is complete, as the events tell */
    bool promised;    /* a lookup hit it in this step */
    bool damaged;     /* a bit of the block was flipped where it lies */
    bool unsettled;   /* a store in flight may be writing it */
    bool told;        /* since that store began, an event said that it was stored */
    uint32_t version; /* of the bytes in the block, or in the one being written */
} model_key;

/* Whether a load must serve a key. */
typedef enum expectation { ABSENT, MAYBE, SURE } expectation;

/* A job whose result was not taken. */
typedef struct model_job {
    bool load;
    size_t n;
    uint8_t keys[MOST_JOB_KEYS];
    uint32_t row;                       /* of the first key; the others follow */
    expectation expected[MOST_JOB_KEYS]; /* loads only */
    uint32_t versions[MOST_JOB_KEYS];    /* loads only: of the bytes that the key brings, */
    bool damaged[MOST_JOB_KEYS];         /* and whether a bit of them is flipped */
    bool fresh[MOST_JOB_KEYS]; /* stores only: the first mention of a key that is not there */
    size_t least, most;        /* stores only: blocks that must, and that can find room */
} model_job;

static struct {
    kvreg_tier *tier;
    bool verify;
    size_t slots, block_bytes, stride;
    uint8_t primary[ROWS][MOST_BYTES];
    uint8_t *memory; /* the slots */
    model_key keys[KEYS];
    uint8_t names[KEYS][KVREG_KEY_MAX];
    uint32_t last_version;
    model_job jobs[ROWS];
    size_t jobs_waiting;
    uint32_t rows_taken;
    bool forgetting; /* promised blocks may go: a reset, or damage that a load finds */
} world;

static bool in_flight(void)
{
    return world.jobs_waiting > 0;
}

static size_t count_keys(bool (*holds)(const model_key *key))
{
    size_t count = 0;
    for (int i = 0; i < KEYS; i++)
        count += holds(&world.keys[i]);
    return count;
}

static bool is_present(const model_key *key)
{
    return key->present;
}

static bool is_promised(const model_key *key)
{
    return key->promised;
}

/* -- Keys and bytes ------------------------------------------------------------------------ */

/* Keys differ in their last byte, and a tier keeps those of more than 48 bytes in two parts. */
static kvreg_key key_of(uint8_t number)
{
    static const uint8_t lengths[] = { 1, 8, 16, 36, 48, 49, 63, 64 };
    uint32_t bytes = lengths[number / 2];
    memset(world.names[number], 0x55, bytes);
    world.names[number][bytes - 1] = number;
    return (kvreg_key){ .data = world.names[number], .bytes = bytes };
}

static uint8_t number_of(const kvreg_event *event)
{
    uint8_t number = event->key[event->key_bytes - 1];
    CHECK(number < KEYS);
    kvreg_key key = key_of(number);
    CHECK(key.bytes == event->key_bytes && memcmp(key.data, event->key, key.bytes) == 0);
    return number;
}

/* No two versions are alike, nor two keys' bytes of one version. */
static void fill(uint8_t *block, uint8_t number, uint32_t version, bool damaged)
{
    for (size_t i = 0; i < world.block_bytes; i++)
        block[i] = (uint8_t)(number + i);
    memcpy(block, &version, sizeof version);
    block[world.block_bytes - 1] ^= damaged;
}

static bool filled(const uint8_t *block, uint8_t number, uint32_t version, bool damaged)
{
    uint8_t expected[MOST_BYTES];
    fill(expected, number, version, damaged);
    return memcmp(block, expected, world.block_bytes) == 0;
}

static bool untouched(const uint8_t *block)
{
    for (size_t i = 0; i < world.block_bytes; i++)
        if (block[i] != UNTOUCHED)
            return false;
    return true;
}

/* -- What the tier tells ------------------------------------------------------------------- */

static void follow_event(const kvreg_event *event)
{
    model_key *key = &world.keys[number_of(event)];
    CHECK(key->present == event->removed);
    if (event->removed) {
        CHECK(!key->promised || world.forgetting);
        key->present = key->promised = key->damaged = false;
    } else {
        CHECK(key->unsettled && !key->told);
        key->present = key->told = true;
    }
}

static void follow_events(void)
{
    kvreg_event *list;
    size_t count;
    kvreg_error error;
    CHECK(kvreg_tier_take_events(world.tier, &list, &count, &error) == KVREG_OK);
    for (size_t i = 0; i < count; i++)
        follow_event(&list[i]);
    kvreg_os_free(list);
}

static void check_load(const model_job *job, const kvreg_tier_result *result)
{
    size_t served = 0;
    for (size_t i = 0; i < job->n; i++) {
        const uint8_t *row = world.primary[job->row + i];
        bool here = served < result->blocks && result->served[served].key == i;
        served += here;
        CHECK(job->expected[i] == MAYBE || here == (job->expected[i] == SURE));
        CHECK(here ? filled(row, job->keys[i], job->versions[i], job->damaged[i])
                   : untouched(row));
    }
    CHECK(served == result->blocks && result->failed == job->n - served);
}

/* Where a job mentions the key at position i for the first time. */
static size_t first_mention(const model_job *job, size_t i)
{
    return (size_t)((const uint8_t *)memchr(job->keys, job->keys[i], job->n) - job->keys);
}

/* Room goes to the head: which keys fail follows from how many blocks were placed. Which of them the
 * policy declines does not. */
static void check_store(const model_job *job, const kvreg_tier_result *result)
{
    size_t placed = 0, failed = 0;
    bool has_room[MOST_JOB_KEYS] = { false };
    CHECK(job->least <= result->blocks + result->declined && result->blocks <= job->most);
    for (size_t i = 0; i < job->n; i++) {
        size_t first = first_mention(job, i);
        if (!job->fresh[first])
            continue;
        if (first == i)
            has_room[i] = result->declined > 0 ? world.keys[job->keys[i]].told
                                               : placed++ < result->blocks;
        failed += !has_room[first];
    }
    CHECK(failed == result->failed + result->declined);
    for (size_t i = 0; i < job->n; i++) {
        model_key *key = &world.keys[job->keys[i]];
        if (job->fresh[i]) {
            CHECK(key->told == has_room[i]);
            key->unsettled = key->told = false;
        }
    }
}

/* Waits for every job and checks the results: each job has one. */
static void settle(void)
{
    kvreg_tier_result result;
    bool seen[ROWS] = { false };
    size_t results = 0;
    kvreg_tier_drain(world.tier);
    CHECK(kvreg_tier_pending(world.tier) == in_flight());
    follow_events();
    for (; kvreg_tier_take_result(world.tier, &result); results++) {
        CHECK(result.job >= 0 && (size_t)result.job < world.jobs_waiting && !seen[result.job]);
        const model_job *job = &world.jobs[result.job];
        seen[result.job] = true;
        CHECK(result.load == job->load && result.keys == job->n);
        CHECK(result.bytes == result.blocks * world.block_bytes);
        (job->load ? check_load : check_store)(job, &result);
        kvreg_tier_free_result(&result);
    }
    CHECK(results == world.jobs_waiting && !kvreg_tier_pending(world.tier));
    world.jobs_waiting = world.rows_taken = 0;
}

static void check_figures(void)
{
    kvreg_tier_stats stats;
    kvreg_tier_read_stats(world.tier, &stats);
    CHECK(stats.slots == world.slots && stats.cache.used <= world.slots);
    CHECK(stats.cache.pinned <= stats.cache.used && stats.cache.promised <= stats.cache.used);
    CHECK(stats.results + stats.loads_in_flight + stats.stores_in_flight == world.jobs_waiting);
    if (in_flight())
        return;
    CHECK(stats.cache.used == count_keys(is_present) && stats.cache.pinned == 0);
    CHECK(stats.cache.promised == count_keys(is_promised));
}

/* -- Calls --------------------------------------------------------------------------------- */

static size_t read_keys(uint8_t *keys)
{
    size_t n = next_byte() % (MOST_JOB_KEYS + 1);
    for (size_t i = 0; i < n; i++)
        keys[i] = next_byte() % KEYS;
    return n;
}

static model_job *begin_job(bool load)
{
    if (world.rows_taken + MOST_JOB_KEYS > ROWS)
        settle();
    model_job *job = &world.jobs[world.jobs_waiting];
    *job = (model_job){ .load = load, .row = world.rows_taken };
    job->n = read_keys(job->keys);
    return job;
}

/* Few requests and times that jump, also back. */
static kvreg_use next_use(void)
{
    return (kvreg_use){ .request = next_byte() % 4, .now = (uint32_t)next_byte() << next_byte() % 25 };
}

static void submit(const model_job *job)
{
    kvreg_key keys[MOST_JOB_KEYS];
    uint32_t rows[MOST_JOB_KEYS];
    kvreg_error error;
    kvreg_use by = next_use();
    for (size_t i = 0; i < job->n; i++) {
        keys[i] = key_of(job->keys[i]);
        rows[i] = job->row + (uint32_t)i;
    }
    CHECK((job->load ? kvreg_tier_load : kvreg_tier_store)(
              world.tier, (int64_t)world.jobs_waiting, keys, rows, job->n, &by, &error) == KVREG_OK);
    world.jobs_waiting++;
    world.rows_taken += MOST_JOB_KEYS;
    follow_events();
}

static bool names(const model_job *job, int number)
{
    return memchr(job->keys, number, job->n) != NULL;
}

/* Whether a copy in flight may hold the key's slot. */
static bool may_be_busy(int number)
{
    bool busy = world.keys[number].unsettled;
    for (size_t i = 0; i < world.jobs_waiting; i++)
        busy |= world.jobs[i].load && names(&world.jobs[i], number);
    return busy;
}

/* How many of a store's fresh blocks must, and how many can find room. */
static void bound_room(model_job *job, size_t fresh)
{
    size_t fixed = 0, busy = 0;
    for (int i = 0; i < KEYS; i++) {
        const model_key *key = &world.keys[i];
        if (key->present && (key->promised || names(job, i)))
            fixed++;
        else if (key->present || key->unsettled)
            busy += may_be_busy(i);
    }
    size_t most = world.slots - fixed, least = most > busy ? most - busy : 0;
    job->most = most < fresh ? most : fresh;
    job->least = least < fresh ? least : fresh;
}

static bool any_unsettled(const model_job *job)
{
    for (size_t i = 0; i < job->n; i++)
        if (world.keys[job->keys[i]].unsettled)
            return true;
    return false;
}

static void call_store(void)
{
    model_job *job = begin_job(false);
    size_t fresh = 0;
    if (any_unsettled(job)) {
        model_job same = *job;
        settle();
        job = &world.jobs[0];
        *job = same;
        job->row = 0;
    }
    world.last_version++;
    for (size_t i = 0; i < job->n; i++) {
        fill(world.primary[job->row + i], job->keys[i], world.last_version, false);
        job->fresh[i] = first_mention(job, i) == i && !world.keys[job->keys[i]].present;
        fresh += job->fresh[i];
    }
    bound_room(job, fresh);
    for (size_t i = 0; i < job->n; i++) {
        model_key *key = &world.keys[job->keys[i]];
        if (job->fresh[i]) {
            /* The block of the first mention is the one written. */
            key->version = world.last_version;
            key->unsettled = true;
        }
    }
    submit(job);
}

static void call_load(void)
{
    model_job *job = begin_job(true);
    bool finds_damage = false;
    for (size_t i = 0; i < job->n; i++) {
        const model_key *key = &world.keys[job->keys[i]];
        bool bad = world.verify && key->damaged;
        memset(world.primary[job->row + i], UNTOUCHED, world.block_bytes);
        job->expected[i] = bad              ? ABSENT
                           : key->present   ? SURE
                           : key->unsettled ? MAYBE
                                            : ABSENT;
        job->versions[i] = key->version;
        job->damaged[i] = key->damaged;
        finds_damage |= bad;
    }
    world.forgetting = finds_damage;
    submit(job);
    if (finds_damage)
        settle();
    for (size_t i = 0; finds_damage && i < job->n; i++)
        CHECK(!(world.verify && world.keys[job->keys[i]].damaged));
    world.forgetting = false;
}

static void call_touch(void)
{
    uint8_t numbers[MOST_JOB_KEYS];
    kvreg_key keys[MOST_JOB_KEYS];
    size_t n = read_keys(numbers);
    for (size_t i = 0; i < n; i++)
        keys[i] = key_of(numbers[i]);
    kvreg_use by = next_use();
    by.whole = true;
    kvreg_tier_touch(world.tier, keys, n, &by);
}

static void call_lookup(void)
{
    uint8_t number = next_byte() % KEYS;
    model_key *key = &world.keys[number];
    kvreg_key name = key_of(number);
    bool was_present = key->present;
    kvreg_found found = kvreg_tier_lookup(world.tier, &name);
    follow_events();
    if (!key->unsettled || was_present)
        CHECK(found == (was_present ? KVREG_HIT : KVREG_MISS));
    if (found == KVREG_HIT) {
        CHECK(key->present);
        key->promised = true;
    }
}

static void call_end_step(void)
{
    kvreg_tier_end_step(world.tier);
    for (int i = 0; i < KEYS; i++)
        world.keys[i].promised = false;
}

static void call_reset(void)
{
    kvreg_error error;
    world.forgetting = true;
    CHECK(kvreg_tier_reset(world.tier, &error) == KVREG_OK);
    /* Loads in flight brought what was there before. */
    settle();
    world.forgetting = false;
    CHECK(count_keys(is_present) == 0);
}

/* Flips a bit of a block where it lies; a second time, back. */
static void call_damage(void)
{
    uint8_t number = next_byte() % KEYS;
    model_key *key = &world.keys[number];
    size_t found = 0;
    settle();
    for (size_t i = 0; key->present && i < world.slots; i++) {
        uint8_t *block = world.memory + i * world.stride;
        if (filled(block, number, key->version, key->damaged)) {
            block[world.block_bytes - 1] ^= 1;
            found++;
        }
    }
    CHECK(found == key->present);
    key->damaged ^= key->present;
}

/* -- A tier's life ------------------------------------------------------------------------- */

static kvreg_status always(const kvreg_backend_request *request, kvreg_error *error)
{
    (void)request, (void)error;
    return KVREG_OK;
}

/* Slots with room between them, so that a write beyond one is seen. */
static kvreg_status open_spaced(const kvreg_backend_request *request,
                                kvreg_backend_memory *memory, kvreg_error *error)
{
    (void)error;
    world.stride = request->block_bytes + 8;
    memory->stride = world.stride;
    memory->bytes = request->slots * world.stride;
    memory->base = world.memory = malloc(memory->bytes);
    memset(world.memory, UNTOUCHED, memory->bytes);
    return KVREG_OK;
}

static void close_spaced(kvreg_backend_memory *memory)
{
    for (size_t i = 0; i < memory->bytes; i++)
        CHECK(i % world.stride < world.block_bytes || world.memory[i] == UNTOUCHED);
    free(memory->base);
}

static bool open_world(void)
{
    static const kvreg_backend spaced = {
        KVREG_BACKEND_VERSION, "spaced", always, open_spaced, close_spaced,
    };
    uint8_t flags = next_byte();
    kvreg_error error;
    memset(&world, 0, sizeof world);
    world.verify = flags & 1;
    world.slots = next_byte() % (MOST_SLOTS + 1);
    world.block_bytes = 8 + next_byte() % (MOST_BYTES - 7);
    kvreg_tier_config config = {
        .primary = { world.primary, MOST_BYTES, ROWS },
        .block_bytes = world.block_bytes,
        /* Less than a block more: no further slot comes of it. */
        .capacity_bytes = world.slots * world.block_bytes + flags % world.block_bytes,
        .workers = 1 + (flags >> 2) % 3,
        .policy = kvreg_policies[(flags >> 4) % 3]->name,
        .backend = &spaced,
        .verify = world.verify,
        .watched = true,
    };
    kvreg_status status = kvreg_tier_open(&config, &world.tier, &error);
    CHECK(status == (world.slots == 0 ? KVREG_E_ARGUMENT : KVREG_OK));
    return status == KVREG_OK;
}

/* Closes the tier with whatever is in flight; the results and the events outlive it. */
static void close_world(void)
{
    kvreg_tier_close(world.tier);
    settle();
    check_figures();
    kvreg_tier_free(world.tier);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static void (*const calls[])(void) = {
        call_store, call_load,  call_lookup, call_end_step, call_store,
        call_load,  call_touch, call_damage, settle,        call_reset,
    };
    input = data;
    input_left = bytes;
    if (!open_world())
        return 0;
    while (input_left > 0) {
        calls[next_byte() % (sizeof calls / sizeof calls[0])]();
        check_figures();
    }
    close_world();
    return 0;
}
