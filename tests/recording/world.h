/* world - a small recording made of text, for tests that draw from it. Samples tell gang and cell:
 * gang G of the default at 1K has 1000 G + 1 … 1000 G + 4; ring/ll/8 has 1000 G + 501 …. */
#pragma once
#include "probes/recording/recording.h"

static inline void world_block(struct nt_buf *b, unsigned bytes, const char *flags,
                               const char *process, const char *call, const char *executed,
                               unsigned gang, const char *status, unsigned base)
{
    nt_buf_printf(b, "all_reduce %u bf16 out eager,%s,%s,%s,%s,%u,%s,0,2,1,0,%u,", bytes, flags,
                  process, call, executed, gang, status, status[0] == 'w' ? 3 : 0);
    if (status[0] == 'o') {
        unsigned ns = 1000 * gang + base;
        nt_buf_printf(b, "%u,700,%u,,%u %u %u %u\n", 10000 + 700 + 6 * ns + 15, 100 + gang, ns + 1,
                      ns + 2, ns + 3, ns + 4);
    } else {
        nt_buf_printf(b, "9000,0,50,words,\n");
    }
}

static inline void world_text(struct nt_buf *b)
{
    nt_buf_puts(b,
                "#nccltune-recording=1\n#rig=nccl\n#ranks=2\n#gpu=NVIDIA Q\n#nccl=22809\n"
                "#topology=<system/>\\n\n"
                "case,flags,process,call,executed,gang,status,verify,warmup,inner,base_ns,wrong,"
                "elapsed_ns,connect_ns,memory_bytes,error,ns\n"
                "#cells=,all_reduce 1024 bf16 out eager,1,1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 "
                "17 18 19 20 -1\n");
    for (unsigned g = 1; g <= 4; g++) {
        nt_buf_printf(b, "#gang=%u,,%u,%u,%u\n", g, 5000 + g, 4000 + g, 3000 + g);
        world_block(b, 1024, "", "", "default", "tree/ll/4/8", g, "ok", 0);
        world_block(b, 1024, "", "", "default", "tree/ll/4/8", g, "ok", 100);
        world_block(b, 1024, "", "", "ring/ll/8/0", "ring/ll/8/8", g, "ok", 500);
        world_block(b, 1024, "", "", "ring/ll/9/0", "ring/ll/8/8", g, "ok", 600); /* an alias */
        world_block(b, 1024, "busy", "", "default", "tree/ll/4/8", g, "ok", 300);
        world_block(b, 1024, "", "", "nvls/simple/0/0", "", g, "unavailable", 0);
        world_block(b, 1024, "", "", "tree/simple/2/0", g == 3 ? "" : "tree/simple/2/8", g,
                    g == 3 ? "crashed" : "ok", 200);
        world_block(b, 1024, "", "", "pat/simple/1/0", "pat/simple/1/8", g, "wrong", 0);
    }
    nt_buf_puts(b, "all_reduce 2048 bf16 out eager,,,default,tree/ll/4/8,1,ok,0,0,0,0,0,5,0,0,,\n");
    world_block(b, 4096, "", "", "ring/ll/8/0", "ring/ll/8/8", 1, "ok", 0); /* no default */
    world_block(b, 1024, "", "NCCL_BUFFSIZE=1", "default", "tree/ll/4/8", 7, "ok", 900);
}
