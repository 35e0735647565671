#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "os.h"

#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* -- A tree of files in place of /proc and /sys --------------------------------------------- */

static char root[64];

static void new_root(void)
{
    snprintf(root, sizeof root, "/tmp/kvreg-test-os-XXXXXX");
    CHECK(mkdtemp(root) != NULL);
}

static void remove_root(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    CHECK(system(command) == 0);
}

/* Writes a file below the root, with the folders above it. */
static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    CHECK(file != NULL);
    fputs(text, file);
    fclose(file);
}

static kvreg_os_memory read_memory(void)
{
    kvreg_os_memory memory;
    kvreg_os_read_memory(root, &memory);
    return memory;
}

static void memory_is_the_machines_where_no_cgroup_limits_it(void)
{
    new_root();
    put("/proc/meminfo", "MemTotal:  9 kB\nMemFree:  5 kB\nMemAvailable:    1000 kB\n");
    put("/proc/self/cgroup", "0::/a\n");
    put("/sys/fs/cgroup/a/memory.max", "max\n");
    kvreg_os_memory memory = read_memory();
    CHECK(memory.available == 1000 * 1024);
    CHECK(strstr(memory.limit, "machine") != NULL);
    remove_root();
}

static void memory_is_bounded_by_a_v2_cgroup_above(void)
{
    new_root();
    put("/proc/meminfo", "MemAvailable:    1000 kB\n");
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b/memory.max", "900000\n");
    put("/sys/fs/cgroup/a/b/memory.current", "100000\n");
    put("/sys/fs/cgroup/a/memory.max", "500000\n");
    put("/sys/fs/cgroup/a/memory.current", "200000\n");
    put("/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 50000\n");
    kvreg_os_memory memory = read_memory();
    CHECK(memory.available == 500000 - (200000 - 50000));
    CHECK(strstr(memory.limit, "memory.max of 500000") != NULL);
    remove_root();
}

static void memory_is_bounded_by_a_v1_cgroup(void)
{
    new_root();
    put("/proc/meminfo", "MemAvailable:    1000 kB\n");
    put("/proc/self/cgroup", "9:cpu,cpuacct:/x\n4:hugetlb,memory:/a\n0::/\n");
    put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000\n");
    put("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "2000\n");
    kvreg_os_memory memory = read_memory();
    CHECK(memory.available == 0);
    CHECK(strstr(memory.limit, "memory.limit_in_bytes of 1000") != NULL);
    remove_root();
}

static void memory_has_no_known_limit_where_nothing_can_be_read(void)
{
    new_root();
    CHECK(read_memory().available == UINT64_MAX);
    remove_root();
}

static uint32_t affinity(void)
{
    cpu_set_t set;
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    return (uint32_t)CPU_COUNT(&set);
}

static void cpus_are_those_of_the_affinity_where_there_is_no_quota(void)
{
    new_root();
    put("/proc/self/cgroup", "3:cpu:/\n0::/\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/cpu.max", "max 100000\n");
    CHECK(kvreg_os_usable_cpus(root) == affinity());
    remove_root();
}

static void cpus_are_bounded_by_a_quota_of_either_version(void)
{
    new_root();
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/cpu.max", "50000 100000\n");
    CHECK(kvreg_os_usable_cpus(root) == 1);
    put("/proc/self/cgroup", "2:cpuacct,cpu:/c\n");
    put("/sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "100000\n");
    put("/sys/fs/cgroup/cpu/c/cpu.cfs_period_us", "100000\n");
    CHECK(kvreg_os_usable_cpus(root) == 1);
    remove_root();
}

/* -- Memory and threads ---------------------------------------------------------------------- */

static void a_mapping_is_zero_and_writable(void)
{
    size_t bytes = kvreg_os_page_round(1) + 1;
    uint8_t *memory = kvreg_os_map(bytes);
    CHECK(memory != NULL && memory[0] == 0 && memory[bytes - 1] == 0);
    kvreg_os_prefer_huge_pages(memory, bytes);
    memory[bytes - 1] = 1;
    kvreg_os_unmap(memory, bytes);
    CHECK(kvreg_os_map(SIZE_MAX / 2) == NULL);
}

static sigset_t mask_inside;

static void *look_around(void *argument)
{
    char name[16] = "";
    pthread_sigmask(SIG_SETMASK, NULL, &mask_inside);
    /* The starter does these after the thread began. */
    while (strcmp(name, "a-rather-long-n") != 0 || sched_getscheduler(0) != SCHED_BATCH)
        pthread_getname_np(pthread_self(), name, sizeof name);
    return argument;
}

static void a_thread_blocks_signals_has_its_name_and_is_a_batch_job(void)
{
    kvreg_os_thread thread;
    kvreg_error error;
    sigset_t mask;
    CHECK(kvreg_os_thread_start(&thread, "a-rather-long-name", 0, look_around, NULL, &error) ==
          KVREG_OK);
    kvreg_os_thread_join(&thread);
    CHECK(sigismember(&mask_inside, SIGINT) == 1 && sigismember(&mask_inside, SIGTERM) == 1);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    CHECK(sigismember(&mask, SIGINT) == 0);
}

static void a_thread_on_a_cpu_that_is_not_there_is_an_error(void)
{
    kvreg_os_thread thread;
    kvreg_error error;
    CHECK(kvreg_os_thread_start(&thread, "worker", 1 << 19, look_around, NULL, &error) ==
          KVREG_E_SYSTEM);
    CHECK(strstr(error.text, "worker") != NULL && strstr(error.text, "524288") != NULL);
}

static void a_fork_is_counted_in_the_child_alone(void)
{
    uint32_t before = kvreg_os_fork_count();
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(kvreg_os_fork_count() == before + 1 ? 0 : 1);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(kvreg_os_fork_count() == before);
}

static void a_caches_size_is_found_by_its_level(void)
{
    new_root();
    CHECK(kvreg_os_cache_bytes(root, 2) == 0);
    put("/sys/devices/system/cpu/cpu0/cache/index0/level", "1\n");
    put("/sys/devices/system/cpu/cpu0/cache/index0/size", "48K\n");
    put("/sys/devices/system/cpu/cpu0/cache/index1/level", "2\n");
    put("/sys/devices/system/cpu/cpu0/cache/index1/size", "2048K\n");
    put("/sys/devices/system/cpu/cpu0/cache/index2/level", "3\n");
    CHECK(kvreg_os_cache_bytes(root, 2) == 2 << 20);
    CHECK(kvreg_os_cache_bytes(root, 3) == 0);
    CHECK(kvreg_os_cache_bytes(root, 4) == 0);
    put("/sys/devices/system/cpu/cpu0/cache/index2/size", "307200K\n");
    CHECK(kvreg_os_cache_bytes(root, 3) == (size_t)300 << 20);
    remove_root();
}

int main(void)
{
    RUN(memory_is_the_machines_where_no_cgroup_limits_it);
    RUN(memory_is_bounded_by_a_v2_cgroup_above);
    RUN(memory_is_bounded_by_a_v1_cgroup);
    RUN(memory_has_no_known_limit_where_nothing_can_be_read);
    RUN(cpus_are_those_of_the_affinity_where_there_is_no_quota);
    RUN(cpus_are_bounded_by_a_quota_of_either_version);
    RUN(a_mapping_is_zero_and_writable);
    RUN(a_thread_blocks_signals_has_its_name_and_is_a_batch_job);
    RUN(a_thread_on_a_cpu_that_is_not_there_is_an_error);
    RUN(a_fork_is_counted_in_the_child_alone);
    RUN(a_caches_size_is_found_by_its_level);
    return check_end();
}
