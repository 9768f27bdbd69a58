/* assets - files inside the program: the schemas of the API, and the dashboard's pages, if any. */
#pragma once
#include <stddef.h>

extern const unsigned char nt_schemas_bytes[];
#define nt_schemas_json ((const char *)nt_schemas_bytes)
extern const size_t nt_schemas_json_len;

struct nt_asset {
    const char *path; /* "/app.js"; "/" is the page itself */
    const char *type;
    const char *sha256; /* of the content */
    const unsigned char *data;
    size_t len;
};
extern const struct nt_asset nt_assets[]; /* a NULL path ends */
