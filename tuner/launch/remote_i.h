/* Internal to the launcher of several hosts: remote.c has a launch's life and the launcher's
 * commands, remote_hosts.c what hosts say. */
#pragma once
#include "tuner/launch/agent.h"
#include "tuner/launch/commands.h"
#include "tuner/launch/door.h"
#include "tuner/launch/tunnel.h"

/* A host whose agent has connected. */
struct node {
    struct nt_launch *l;
    uv_tcp_t tcp;
    struct nt_wire wire;
    struct nt_tunnel tunnel;
    unsigned number; /* of the launcher */
    bool known, open;
    char name[NT_NODE_LEN], identity[2 * NT_NODE_LEN];
};

struct nt_launch {
    struct nt_launch_events events;
    const struct nt_remote *remote;
    uv_loop_t *loop;
    uv_timer_t timer, again;
    struct nt_launch *next_turn;
    struct nt_door *door;         /* until all hosts are in */
    struct nt_commands *commands; /* until all have ended */
    struct node node[NT_REMOTE_HOSTS];
    unsigned nnodes, each; /* each: ranks on a host */
    unsigned open;         /* handles not closed */
    unsigned world, left;  /* left: ranks that have not been reported */
    bool reported[NT_LAUNCH_MAX];
    bool started, abandoned;
    enum { WAITING, RUNNING, KILLED, OVER, TERMED, DEAD } phase;
    unsigned tries;
    int failed;       /* libuv's code of a command that could not be started */
    char reason[300]; /* for which WAITING is to end at the next timer; "": it is late */
    char *socket, dir[4096];
    struct nt_buf start, files[NT_AGENT_FILES]; /* frames' payloads */
    size_t nfiles;
    char chunk[NT_TUNNEL_CHUNK];
};

/* remote.c */
void nt_remote_report(struct nt_launch *l, unsigned rank, const struct nt_launch_exit *how);
/* Ranks from … to - 1 that have not ended count as ended, for what is in words. */
void nt_remote_give_up(struct nt_launch *l, unsigned from, unsigned to, int error,
                       const char *words);
void nt_remote_finish(struct nt_launch *l); /* no rank is left */
void nt_remote_close_node(struct node *n);
void nt_remote_close_door(struct nt_launch *l);
void nt_remote_closed_one(struct nt_launch *l); /* a handle; may free it */
unsigned nt_remote_known(const struct nt_launch *l);
/* The launcher's command has done its part, or never will: the next launch of the job may begin. */
void nt_remote_pass_turn(struct nt_launch *l);

/* remote_hosts.c: of the door */
void nt_remote_on_in(void *data, int fd, const char *name, const char *rest, size_t len);
void nt_remote_on_refused(void *data, const char *words);
