/* What headers of a request say. */
#include "tuner/service/http.h"

#include <string.h>
#include <strings.h>

bool nt_http_type_is(const char *content_type, const char *type)
{
    size_t n = strlen(type);
    return content_type != NULL && strncasecmp(content_type, type, n) == 0 &&
           strchr("; \t", content_type[n]) != NULL;
}

bool nt_http_etag_in(const char *text, const char *etag)
{
    size_t n = strlen(etag);
    while (text != NULL && *text != '\0') {
        text += strspn(text, " \t,");
        if (strncmp(text, "*", 1) == 0) {
            return true;
        }
        text += strncmp(text, "W/", 2) == 0 ? 2 : 0; /* weak comparison */
        if (strncmp(text, etag, n) == 0 && strchr(" \t,", text[n]) != NULL) {
            return true;
        }
        text = strchr(text, ',');
    }
    return false;
}
