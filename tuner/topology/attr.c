/* Values as NCCL, sysfs and people write them. */
#include "tuner/topology/model.h"

#include <stdlib.h>
#include <string.h>

void nt_copy_text(char *out, size_t size, const char *text, size_t len)
{
    size_t n = len < size - 1 ? len : size - 1;
    for (size_t i = 0; i < n; i++) {
        out[i] = text[i];
        if (text[i] < 0x20 || text[i] > 0x7e) {
            out[i] = '?';
        }
    }
    out[n] = '\0';
}

/* Hexadecimal digits, at most `max`, followed by `end`; moves *p behind it. */
static bool hex_part(const char **p, int max, char end, uint64_t *ret)
{
    uint64_t v = 0;
    int n = 0;
    for (; n < max; n++, (*p)++) {
        char c = **p;
        if (c >= '0' && c <= '9') {
            v = v << 4 | (uint64_t)(c - '0');
        } else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') {
            v = v << 4 | (uint64_t)((c | 0x20) - 'a' + 10);
        } else {
            break;
        }
    }
    if (n == 0 || **p != end) {
        return false;
    }
    *p += end != '\0';
    *ret = v;
    return true;
}

bool nt_parse_bus(const char *text, uint64_t *ret)
{
    uint64_t domain = 0, bus, device, function = 0;
    char before = strchr(text, '.') != NULL ? '.' : '\0'; /* people leave the function out */
    const char *p = text, *first = strchr(text, ':');

    if (first != NULL && strchr(first + 1, ':') != NULL && !hex_part(&p, 8, ':', &domain)) {
        return false;
    }
    if (!hex_part(&p, 2, ':', &bus) || !hex_part(&p, 2, before, &device) ||
        (before == '.' && !hex_part(&p, 1, '\0', &function))) {
        return false;
    }
    *ret = domain << 20 | bus << 12 | device << 4 | function;
    return true;
}

bool nt_bus_is_fabric(uint64_t bus)
{
    return (bus >> 20 & 0xfffffff) == 0xfffffff;
}

int nt_parse_link_speed(const char *text)
{
    char *end;
    double gts = strtod(text, &end);
    return end != text && gts > 0 && gts < 1000 ? (int)(gts * 1000 + 0.5) : 0;
}

bool nt_class_is_gpu(uint32_t class, uint16_t vendor)
{
    static const uint16_t makers[] = {0, 0x10de, 0x1002};
    bool kind = class >> 16 == 0x03 || class >> 8 == 0x1200;

    for (size_t i = 0; i < sizeof(makers) / sizeof(makers[0]); i++) {
        if (vendor == makers[i]) {
            return kind;
        }
    }
    return false; /* the board's own VGA */
}

bool nt_class_is_nic(uint32_t class)
{
    return class >> 16 == 0x02;
}

const char *nt_nic_kind(const struct nt_topo_pci *p)
{
    if (p->kind != NT_PCI_NIC || !nt_class_is_nic(p->class)) {
        return "";
    }
    return p->class >> 8 == 0x0207 ? " InfiniBand" : " Ethernet";
}

double nt_link_gbps(int width, int speed_mts)
{
    double coding = speed_mts > 5000 ? 128.0 / 130.0 : 0.8;
    return width * (speed_mts / 1000.0) * coding;
}

int nt_cpu_family(const char *vendor, int family)
{
    if (strcmp(vendor, "AuthenticAMD") == 0 && family > 15 && (family - 15) % 16 == 0) {
        return 15 + (family - 15) / 16;
    }
    return family;
}
