/* The route of the forms that a profile can be handed out in: the table of profiles/export. */
#include "profiles/export/export.h"
#include "tuner/service/service_i.h"

int nt_api_formats(struct nt_exchange *x, struct nt_err *err)
{
    json_t *list = json_array();
    for (const struct nt_export_format *f = nt_export_formats; f->name != NULL; f++) {
        (void)json_array_append_new(list, json_pack("{s:s, s:s, s:b, s:b}", "name", f->name, "help",
                                                    f->help, "rows_only", (int)f->rows_only,
                                                    "contained", (int)f->contained));
    }
    return nt_reply_json(x, json_pack("{s:o}", "formats", list), err);
}
