#include "tuner/topology/topology.h"

const char *const nt_group_names[] = {
#define X(id, name, words) name,
    NT_GROUPS(X)
#undef X
        NULL};

const char *const nt_path_names[] = {"LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C",
                                     "PXN", "PHB", "SYS", "NET", "DIS", NULL};

const char *const nt_topo_source_names[] = {"live", "xml", "smi", NULL};

const char *const nt_finding_names[] = {"narrow_link",    "nvlink_missing",
                                        "nvlink_count_0", "nvlink_self",
                                        "nvlink_one_way", "c2c_missing",
                                        "gdr_lost",       "p2p_off",
                                        "acs_on",         "iommu_on",
                                        "mixed_gpus",     "mig",
                                        "note",           NULL};
