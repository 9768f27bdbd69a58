#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <sys/socket.h>

#include "tuner/launch/agent.h"

void nt_keep_alive(int fd)
{
    const struct {
        int level, name, value;
    } rows[] = {{SOL_SOCKET, SO_KEEPALIVE, 1},
                {IPPROTO_TCP, TCP_NODELAY, 1},
                {IPPROTO_TCP, TCP_KEEPIDLE, NT_ALIVE_IDLE_S},
                {IPPROTO_TCP, TCP_KEEPINTVL, NT_ALIVE_EVERY_S},
                {IPPROTO_TCP, TCP_KEEPCNT, NT_ALIVE_TIMES},
                {IPPROTO_TCP, TCP_USER_TIMEOUT, NT_ALIVE_SENT_MS}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        (void)setsockopt(fd, rows[i].level, rows[i].name, &rows[i].value, sizeof(rows[i].value));
    }
}
