#include "cache_size.h"

#include <stdbool.h>
#include <stdio.h>

static bool read_cache(const char *root, int index, unsigned *level, size_t *kibibytes)
{
    const char *files[2] = {"level", "size"};
    char text[2][32] = {"", ""};
    for (int i = 0; i < 2; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu0/cache/index%d/%s", root, index,
                 files[i]);
        FILE *file = fopen(path, "re");
        if (file == NULL)
            return false;
        bool read = fgets(text[i], sizeof text[i], file) != NULL;
        fclose(file);
        if (!read)
            return false;
    }
    return sscanf(text[0], "%u", level) == 1 && sscanf(text[1], "%zuK", kibibytes) == 1;
}

size_t kvreg_os_llc_bytes(const char *root)
{
    unsigned last = 0, level;
    size_t bytes = 0, kibibytes;
    for (int index = 0; read_cache(root, index, &level, &kibibytes); index++) {
        if (level > last) {
            last = level;
            bytes = kibibytes * 1024;
        }
    }
    return bytes;
}
