/*
 * uevent - the kernel's word that a device came, went or changed: the machine is looked at soon
 * after, and not only at the next interval.
 *
 * Ownership  the caller's struct must stay until the loop has closed its handles.
 */
#pragma once
#include <uv.h>
#include <stdbool.h>
#include <stddef.h>

struct nt_uevents {
    uv_poll_t poll;
    uv_timer_t timer;
    int fd;
    bool open;
    void (*on_change)(void *data);
    void *data;
};

/* A message of the kernel ("add@/devices/…", then NAME=VALUE, each NUL-terminated): about a device
 * that can make a machine another one, or a module of NVIDIA's? Pure. */
bool nt_uevent_matters(const char *message, size_t len);
/* on_change is called some seconds after the last of a burst. Where there are no events to be had
 * (a container may not ask), that is logged and nothing else happens. */
void nt_uevents_open(struct nt_uevents *u, uv_loop_t *loop, void (*on_change)(void *data),
                     void *data);
void nt_uevents_close(struct nt_uevents *u); /* also when not open */
