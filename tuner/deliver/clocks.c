/* What NVML tells of speed: clocks, limits and reasons to slow down. Opened at run time. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include "tuner/deliver/machine.h"

enum { SUCCESS = 0, CLOCK_SM = 1, CLOCK_MEMORY = 2, SENSOR_GPU = 0, MAX_GPUS = 256 };
typedef void *device;

struct clocks_api {
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *);
    int (*handle)(unsigned, device *);
    int (*clock)(device, int, unsigned *);
    int (*max_clock)(device, int, unsigned *);
    int (*power_limit)(device, unsigned *);
    int (*temperature)(device, int, unsigned *);
    int (*slowed)(device, unsigned long long *);
    int (*driver)(char *, unsigned);
    int (*cuda)(int *);
};

#define SYMBOL(name, member)                                                                       \
    {                                                                                              \
        name, offsetof(struct clocks_api, member)                                                  \
    }
static const struct {
    const char *name;
    size_t offset;
} symbols[] = {
    SYMBOL("nvmlInit_v2", init),
    SYMBOL("nvmlShutdown", shutdown),
    SYMBOL("nvmlDeviceGetCount_v2", count),
    SYMBOL("nvmlDeviceGetHandleByIndex_v2", handle),
    SYMBOL("nvmlDeviceGetClockInfo", clock),
    SYMBOL("nvmlDeviceGetMaxClockInfo", max_clock),
    SYMBOL("nvmlDeviceGetEnforcedPowerLimit", power_limit),
    SYMBOL("nvmlDeviceGetTemperature", temperature),
    SYMBOL("nvmlDeviceGetCurrentClocksThrottleReasons", slowed),
    SYMBOL("nvmlSystemGetDriverVersion", driver),
    SYMBOL("nvmlSystemGetCudaDriverVersion_v2", cuda),
};

/* Reasons that hold a GPU below its clocks; idle and the application's own settings are none. */
static const struct {
    unsigned long long bit;
    const char *name;
} reasons[] = {{0x4, "sw_power_cap"},
               {0x8, "hw_slowdown"},
               {0x20, "sw_thermal"},
               {0x40, "hw_thermal"},
               {0x80, "hw_power_brake"}};

static void put(json_t *o, const char *key, int rc, unsigned v)
{
    if (rc == SUCCESS) {
        (void)json_object_set_new(o, key, json_integer((json_int_t)v));
    }
}

static json_t *read_gpu(const struct clocks_api *a, device d)
{
    json_t *o = json_object();
    unsigned v = 0;
    unsigned long long why = 0;

    if (a->clock != NULL) {
        put(o, "sm_mhz", a->clock(d, CLOCK_SM, &v), v);
        put(o, "memory_mhz", a->clock(d, CLOCK_MEMORY, &v), v);
    }
    if (a->max_clock != NULL) {
        put(o, "sm_max_mhz", a->max_clock(d, CLOCK_SM, &v), v);
    }
    if (a->power_limit != NULL) {
        put(o, "power_limit_w", a->power_limit(d, &v), v / 1000);
    }
    if (a->temperature != NULL) {
        put(o, "temperature_c", a->temperature(d, SENSOR_GPU, &v), v);
    }
    if (a->slowed != NULL && a->slowed(d, &why) == SUCCESS) {
        json_t *list = json_array();
        for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
            if ((why & reasons[i].bit) != 0) {
                (void)json_array_append_new(list, json_string(reasons[i].name));
            }
        }
        (void)json_object_set_new(o, "slowed", list);
    }
    return o;
}

static json_t *read_all(const struct clocks_api *a, char driver[64], char cuda[16])
{
    json_t *list = NULL;
    unsigned n = 0;
    int version = 0;

    if (a->driver != NULL && driver != NULL) {
        char text[81] = "";
        if (a->driver(text, sizeof(text) - 1) == SUCCESS) {
            (void)snprintf(driver, 64, "%.63s", text);
        }
    }
    if (a->cuda != NULL && cuda != NULL && a->cuda(&version) == SUCCESS) {
        (void)snprintf(cuda, 16, "%d.%d", version / 1000, version % 1000 / 10);
    }
    if (a->count(&n) == SUCCESS && n <= MAX_GPUS) {
        list = json_array();
        for (unsigned i = 0; i < n; i++) {
            device d = NULL;
            (void)json_array_append_new(list, a->handle(i, &d) == SUCCESS ? read_gpu(a, d)
                                                                          : json_object());
        }
    }
    return list;
}

json_t *nt_clocks_read(const char *nvml, char driver[64], char cuda[16])
{
    struct clocks_api a = {0};
    json_t *list = NULL;
    void *lib = dlopen(nvml != NULL ? nvml : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);

    if (lib == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *p = dlsym(lib, symbols[i].name);
        memcpy((char *)&a + symbols[i].offset, &p, sizeof(p)); /* object to function pointer */
    }
    if (a.init != NULL && a.shutdown != NULL && a.count != NULL && a.handle != NULL &&
        a.init() == SUCCESS) {
        list = read_all(&a, driver, cuda);
        (void)a.shutdown();
    }
    (void)dlclose(lib);
    return list;
}
