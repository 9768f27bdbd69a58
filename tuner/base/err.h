/*
 * err - errors: a code that callers act on, the system's cause, and words for people.
 *
 * Functions that can fail return 0 or -enum nt_code and fill *err, which may be NULL. *ret_ outputs
 * are written only on success. No allocation, no global. Threads: plain data.
 */
#pragma once
#include <stdbool.h>

#define NT_MUST_CHECK   __attribute__((warn_unused_result))
#define NT_PRINTF(f, a) __attribute__((format(printf, f, a)))

/* name, words, exit code of a command that ends with it (design: "Exit codes") */
#define NT_ERRORS(X)                                                                               \
    X(NOMEM, "out of memory", 70)                                                                  \
    X(INVAL, "bad input", 2)                                                                       \
    X(IO, "input/output error", 1)                                                                 \
    X(STORE, "database error", 1)                                                                  \
    X(DAMAGED, "a database that is damaged, or not ours", 2)                                       \
    X(MISSING, "something is missing on this machine", 3)                                          \
    X(NO, "the answer is no", 1)                                                                   \
    X(NOISY, "too noisy to tune", 4)                                                               \
    X(INTERRUPTED, "interrupted", 5)                                                               \
    X(PROTO, "a child process broke the protocol", 1)                                              \
    X(BUG, "a bug of nccltune", 70)

enum nt_code {
    NT_OK = 0,
#define X(name, text, exit_code) NT_E_##name,
    NT_ERRORS(X)
#undef X
};

struct nt_err {
    enum nt_code code;
    int sys; /* errno, libuv or SQLite code; 0 if none */
    char msg[512];
};

/* Fills *err and returns -code, so that detecting and returning is one statement.
 * sys > 0 is an errno, whose text is appended; other values are only kept. */
int nt_fail(struct nt_err *err, enum nt_code code, int sys, const char *fmt, ...) NT_PRINTF(4, 5);
#ifdef __clang_analyzer__ /* which cannot know that the result is never 0 */
#define nt_fail(...) (nt_fail(__VA_ARGS__), -1)
#endif

/* A caller that knows more puts it in front: "profile h100: open /x: No such file". Returns rc. */
int nt_wrap(struct nt_err *err, int rc, const char *fmt, ...) NT_PRINTF(3, 4);

/* Exit code for a result (0 or -code). */
int nt_exit_code(int rc);
const char *nt_code_text(enum nt_code code);

/* States what only a bug can break; stays on in every build. Never for input, files, children,
 * NCCL. */
#define nt_assert(cond) ((cond) ? (void)0 : nt_assert_fail(#cond, __FILE__, __LINE__))
void nt_assert_fail(const char *cond, const char *file, int line) __attribute__((noreturn));
