/* Runs a fuzz target over every file of a corpus folder: the fuzz findings as ordinary tests. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay(const char *path)
{
    static uint8_t data[1 << 22];
    size_t n;
    FILE *in = fopen(path, "rb");
    if (in == NULL) {
        return 1;
    }
    n = fread(data, 1, sizeof(data), in);
    (void)fclose(in);
    return LLVMFuzzerTestOneInput(data, n);
}

int main(int argc, char **argv)
{
    unsigned files = 0;
    struct dirent *e;
    DIR *dir = argc == 2 ? opendir(argv[1]) : NULL;

    if (dir == NULL) {
        (void)fprintf(stderr, "usage: %s CORPUS_FOLDER\n", argv[0]);
        return 2;
    }
    while ((e = readdir(dir)) != NULL) {
        char path[4096];
        if (e->d_name[0] != '.') {
            (void)snprintf(path, sizeof(path), "%s/%s", argv[1], e->d_name);
            (void)replay(path);
            files++;
        }
    }
    (void)closedir(dir);
    (void)printf("%u inputs\n", files);
    return files > 0 ? 0 : 1;
}
