/*
 * service - `nccltune serve`: one loop, one writer of the database, children that do the work.
 * Ownership: the configuration is borrowed for the call. Returns when told to stop (SIGTERM,
 * SIGINT), or with the error that kept it from starting.
 */
#pragma once
#include "tuner/service/config.h"

struct nt_service_options {
    const struct nt_config *config;
    const char *program;     /* absolute path of nccltune, for children */
    const char *config_path; /* of the configuration's file; NULL: none */
    const char *version;
    void (*on_ready)(void *data, const char *where); /* listening; may be NULL */
    void *data;
};
NT_MUST_CHECK int nt_service_run(const struct nt_service_options *o, struct nt_err *err);
/* The OpenAPI document of the API, appended. */
void nt_service_openapi(const char *version, struct nt_buf *out);
