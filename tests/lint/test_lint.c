#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schema/tunables.h"
#include "tuner/lint/lint.h"

/* finds: "rule@line" separated by blanks; "!rule" must not be there. takes: "NAME=what NCCL takes".
 */
struct lint_case {
    const char *name, *text;
    enum nt_lint_form form;
    const char *finds, *takes;
    unsigned version; /* 0: 2.28.9 */
};

static const struct lint_case cases[] = {
    /* nccl.conf */
    {"a.conf", "NCCL_BUFFSIZE=4M\nNCCL_P2P_DISABLE=true\nNCCL_NTHREADS=0256\n", NT_LINT_CONF,
     "value-misread@1 value-misread@2 value-misread@3", "NCCL_BUFFSIZE=4 NCCL_P2P_DISABLE=0", 0},
    {"a.conf", "NCCL_ALGO = Ring\n", NT_LINT_CONF, "blanks-kept@1", "", 0},
    {"a.conf", "NCCL_ALGO=Ring \nNCCL_DEBUG=INFO\n", NT_LINT_CONF, "blanks-kept@1 value-fails@1",
     "", 0},
    {"a.conf", "NCCL_CROSS_NIC=1\nNCCL_CROSS_NIC=0\n", NT_LINT_CONF, "duplicate@2",
     "NCCL_CROSS_NIC=1", 0},
    {"a.conf", "NCCL_PROTO=Simple\r\nNCCL_DEBUG=WARN\r\n", NT_LINT_CONF, "crlf@1 value-fails@1", "",
     0},
    {"a.conf", "\xef\xbb\xbfNCCL_CROSS_NIC=1\n", NT_LINT_CONF, "byte-order-mark@1", "", 0},
    {"a.conf", "NCCL_PROTO=\"Simple\"\n", NT_LINT_CONF, "quotes-kept@1 value-fails@1", "", 0},
    {"a.conf", "export NCCL_PROTO=Simple\n", NT_LINT_CONF, "export-kept@1", "", 0},
    {"a.conf", "# x=y\nNCCL_CROSS_NIC=1 # why\n  # NCCL_DEBUG=INFO\n", NT_LINT_CONF,
     "!comment-sets@1 comment-kept@2 comment-sets@3", "", 0},
    {"a.conf", "# x=y\n", NT_LINT_CONF, "comment-sets@1", "", NT_V(2, 25, 1)},
    {"a.conf", "NCCL_CROSS_NIC 1\n\n", NT_LINT_CONF, "not-an-assignment@1", "", 0},
    {"a.conf", "NCCL_NET_PLUGIN={{path}}\nNCCL_TOPO_FILE=$HOME/t.xml\n", NT_LINT_CONF,
     "not-expanded@1 not-expanded@2", "", 0},
    {"a.conf", "NCCL_IB_HCA==mlx5_0", NT_LINT_CONF,
     "exact-list@1 no-final-newline@1 !value-misread", "", 0},
    {"nccl.conf.h100", "NCCL_IB_TC=41\n", NT_LINT_CONF, "!name-unknown", "NCCL_IB_TC=41", 0},
    /* names */
    {"a.conf", "NCLL_NET_GDR_LEVEL=PHB\nCCL_NET_GDR_LEVEL=PHB\nNCCL_SOCKET_IFNAM=eth0\n",
     NT_LINT_CONF, "name-misspelt@1 name-misspelt@2 name-misspelt@3", "", 0},
    {"a.conf", "CCL_ATL_TRANSPORT=ofi\nRCCL_MSCCL_ENABLE=1\nUCX_TLS=rc\n", NT_LINT_CONF,
     "!name-misspelt !name-unknown", "", 0},
    {"a.conf", "NCCL_TREE_THRESHOLD=0\nNCCL_LL_THRESHOLD=0\nNCCL_CHECKS_DISABLE=1\n", NT_LINT_CONF,
     "name-removed@1 name-removed@2 name-removed@3", "", 0},
    {"a.conf", "NCCL_MULTI_RANK_GPU_ENABLE=1\n", NT_LINT_CONF, "name-too-new@1", "", 0},
    {"a.conf", "NCCL_SHM_USE_CUDA_MEMCPY=1\n", NT_LINT_CONF, "name-removed@1", "", NT_V(2, 30, 7)},
    {"a.conf", "NCCL_ASYNC_ERROR_HANDLING=1\nNCCL_VERSION=2.20\n", NT_LINT_CONF,
     "name-not-nccl@1 name-not-nccl@2", "", 0},
    {"a.conf", "NCCL_EXTRA=NCCL_ALGO=Ring,NCCL_IB_HCA=a,b\n", NT_LINT_CONF, "several-in-one@1", "",
     0},
    {"a.conf", "NCCL_IBEXT_DISABLE=1\nNCCL_PLUGIN_P2P=ucx\nNCCL_VER=2.28\nNCCL_ALOG=Ring\n",
     NT_LINT_CONF,
     "name-not-nccl@1 name-not-nccl@2 name-unknown@3 !name-misspelt@3 name-misspelt@4", "", 0},
    {"a.conf", "nccl_debug=INFO\nNccl_Algo=Ring\n", NT_LINT_CONF, "name-misspelt@1 name-misspelt@2",
     "", 0},
    {"a.sh",
     "NCCL_PACKAGE=2.28\nexport NCCL_OUT=/tmp\necho $NCCL_PACKAGE >${NCCL_OUT}/v\nexport "
     "NCCL_OTHER=1\n",
     NT_LINT_SHELL, "name-not-nccl@1 name-not-nccl@2 name-unknown@4 !name-unknown@1", "", 0},
    {"a.conf", "NCCL_NET_GDR_LEVEL=5\nNCCL_P2P_LEVEL=1x\n", NT_LINT_CONF,
     "!value-misread@1 value-misread@2", "", 0},
    /* values and pairs */
    {"a.conf", "NCCL_LL128_BUFFSIZE=131072\n", NT_LINT_CONF, "value-outside@1", "", 0},
    {"a.conf", "NCCL_PROTO=^LL\n", NT_LINT_CONF, "ll128-forced@1", "", 0},
    {"a.conf", "NCCL_PROTO=^LL128\n", NT_LINT_CONF, "!ll128-forced", "", 0},
    {"a.conf", "NCCL_ALGO=Tree\n", NT_LINT_CONF, "no-algorithm@1", "", 0},
    {"a.conf", "NCCL_ALGO=allreduce:tree\n", NT_LINT_CONF, "!no-algorithm !value-fails", "", 0},
    {"a.conf", "NCCL_ALGO=allreduce:tree\n", NT_LINT_CONF, "value-misread@1", "", NT_V(2, 21, 5)},
    {"a.conf", "NCCL_ALGO=Ring, Tree\n", NT_LINT_CONF, "value-fails@1", "", 0},
    {"a.conf", "NCCL_MIN_NCHANNELS=16\nNCCL_MAX_NCHANNELS=8\n", NT_LINT_CONF, "contradiction@1", "",
     0},
    {"a.conf", "NCCL_PROTO=LL\nNCCL_BUFFSIZE=8388608\n", NT_LINT_CONF, "inert@2", "", 0},
    {"a.conf", "NCCL_BUFFSIZE=67108864\n", NT_LINT_CONF, "memory-price@1", "", 0},
    {"a.conf", "NCCL_TUNER_PLUGIN=libx.so\nNCCL_ALGO=Ring\n", NT_LINT_CONF, "masks-tuner@2", "", 0},
    {"a.conf", "NCCL_P2P_LEVEL=SYS\nNCCL_NET_GDR_LEVEL=PIX\n", NT_LINT_CONF, "risky@1 !risky@2", "",
     0},
    {"a.conf", "NCCL_P2P_LEVEL=sys\n", NT_LINT_CONF, "value-refused@1", "", 0},
    {"a.conf", "NCCL_ALGO=\n", NT_LINT_CONF, "value-empty@1", "", 0},
    /* env files */
    {"a.env", "NCCL_CROSS_NIC=1   # two rails\nNCCL_PROTO='Simple'\n", NT_LINT_ENV,
     "depends-on-consumer@1 depends-on-consumer@2 !value-fails",
     "NCCL_CROSS_NIC=1 NCCL_PROTO=Simple", 0},
    {"a.env", "NCCL_CROSS_NIC=1\nNCCL_CROSS_NIC=0\n", NT_LINT_ENV, "duplicate@1",
     "NCCL_CROSS_NIC=0", 0},
    {"docker.env",
     "NCCL_PROTO='Simple'\nexport NCCL_DEBUG=INFO\nNCCL_NTHREADS\nNCCL_NET=AWS Libfabric\n",
     NT_LINT_DOCKER_ENV, "quotes-kept@1 export-kept@2 from-host@3 !blanks-kept@4", "", 0},
    {"docker.env", "NCCL_CROSS_NIC=1\r\n", NT_LINT_DOCKER_ENV, "!crlf !blanks-kept",
     "NCCL_CROSS_NIC=1", 0},
    /* shells */
    {"a.sh", "export NCCL_NET=\"AWS Libfabric\" NCCL_CROSS_NIC=1 # x\nNCCL_NTHREADS=256\n",
     NT_LINT_SHELL, "not-exported@2", "NCCL_NET=AWS NCCL_CROSS_NIC=1", 0},
    {"a.sh", "NCCL_NTHREADS=256\nexport NCCL_NTHREADS\n", NT_LINT_SHELL, "!not-exported",
     "NCCL_NTHREADS=256", 0},
    {"a.sh", "set -a\nNCCL_NTHREADS=256\n", NT_LINT_SHELL, "!not-exported", "", 0},
    {"a.sh", "D=/x\nexport NCCL_TOPO_FILE=${D}/t.xml\nexport NCCL_NTHREADS=$(nproc)\n. ./more.sh\n",
     NT_LINT_SHELL, "not-resolved@3 sourced@4 !not-resolved@2", "NCCL_TOPO_FILE=/x/t.xml", 0},
    {"a.sh", "export NCCL_TOPO_FILE=<put yours here>\n", NT_LINT_SHELL, "redirection@1", "", 0},
    {"a.sh", "mpirun -x NCCL_ALGO=Ring \\ \n  -x NCCL_PROTO=Simple ./a\n", NT_LINT_SHELL,
     "command-ends@1", "NCCL_ALGO=Ring", 0},
    {"a.sh", "mpirun -np 2 -x NCCL_CROSS_NIC=1 -x NCCL_IB_TC ./a : -np 2 env NCCL_IB_SL=1 ./a\n",
     NT_LINT_SHELL, "from-host@1", "NCCL_CROSS_NIC=1 NCCL_IB_SL=1", 0},
    {"a.sh", "#!/bin/sh\ndocker run -e NCCL_CROSS_NIC=1 --env=NCCL_IB_SL=2 --env-file x img\n",
     NT_LINT_SHELL, "sourced@2", "NCCL_CROSS_NIC=1 NCCL_IB_SL=2", 0},
    {"a.sh", "#!/bin/sh\nNCCL_CROSS_NIC=1 ./a\nNCCL_CROSS_NIC=0 ./a\n", NT_LINT_SHELL, "!duplicate",
     "", 0},
    {"a.sh", "#!/bin/sh\necho NCCL_CROSS_NIC=1 >> /etc/nccl.conf\nexport NCCL_CROSS_NIC=0\n",
     NT_LINT_SHELL, "overridden@2", "NCCL_CROSS_NIC=0", 0},
    {"a.sh", "#!/bin/sh\ncat > /etc/nccl.conf <<EOF\nNCCL_ALGO = Ring\nEOF\necho done\n",
     NT_LINT_SHELL, "blanks-kept@3", "", 0},
    {"a.sh", "#!/bin/sh\necho 'NCCL_BUFFSIZE=4M' | sudo tee -a /etc/nccl.conf\n", NT_LINT_SHELL,
     "value-misread@2", "", 0},
    {"a.sh", "#!/bin/sh\nbash -c 'export NCCL_BUFFSIZE=4M; ./a'\n", NT_LINT_SHELL,
     "value-misread@2", "", 0},
    {"a.sh", "#!/bin/sh\nexport NCCL_DEBUG=INFO\nunset NCCL_DEBUG\n", NT_LINT_SHELL,
     "!value-misread", "", 0},
    {"a.sh", "#!/bin/sh\nexport NCCL_PROTO=\"Simple\n", NT_LINT_SHELL, "bad-syntax@2", "", 0},
    {"a.sh", "export NCCL_ALGO=Ring\r\nexport NCCL_DEBUG=INFO\r\n", NT_LINT_SHELL, "crlf@1", "", 0},
    {"job.sh",
     "#!/bin/bash\n#SBATCH --export=ALL,NCCL_IB_HCA=mlx5_0,mlx5_1\nsrun "
     "--export=ALL,NCCL_CROSS_NIC=1 a\n",
     NT_LINT_SLURM, "value-cut@2", "NCCL_IB_HCA=mlx5_0 NCCL_CROSS_NIC=1", 0},
    {"Dockerfile",
     "FROM x\nENV NCCL_CROSS_NIC=1 \\\n    NCCL_BUFFSIZE=4M\nENV NCCL_NET AWS Libfabric\n"
     "RUN export NCCL_NTHREADS=256 && \\\n    echo NCCL_IB_TC=4x >> /etc/nccl.conf\n",
     NT_LINT_DOCKERFILE, "value-misread@3 not-exported@5 value-misread@6",
     "NCCL_CROSS_NIC=1 NCCL_NET=AWS", 0},
    {"Dockerfile", "FROM x\nENV D=/a\nENV NCCL_TOPO_FILE=$D/t.xml NCCL_SOCKET_IFNAME=\"eth0\"\n",
     NT_LINT_DOCKERFILE, "!not-resolved", "NCCL_TOPO_FILE=/a/t.xml NCCL_SOCKET_IFNAME=eth0", 0},
    {"a.sh",
     "#!/bin/sh\nif true; then\n  export NCCL_CROSS_NIC=1\nelse\n  export NCCL_CROSS_NIC=2\nfi\n"
     "case $x in a) export NCCL_IB_SL=1;; b) export NCCL_IB_SL=2;;\nesac\nexport "
     "NCCL_IB_TC=1\nexport NCCL_IB_TC=2\n",
     NT_LINT_SHELL, "!duplicate@3 !duplicate@7 duplicate@9", "NCCL_IB_TC=2", 0},
    {"a.sh", "#!/bin/sh\nkubectl set env deploy/x NCCL_BUFFSIZE=4M\ngrep NCCL_NTHREADS=1 x\n",
     NT_LINT_SHELL, "value-misread@2 !value-outside", "", 0},
    {"a.py", "import os\nos.environ['NCCL_ALGO'] = 'Ring'\n", NT_LINT_UNKNOWN,
     "other-kind !blanks-kept", "", 0},
    {"a.conf", "NCCL_IB_GID_INDEX=03\n", NT_LINT_CONF, "!value-misread", "", 0},
    {"t.csv",
     "collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks\n"
     "allreduce,0,1,ring,ll,1,1,8\n",
     NT_LINT_TUNER_CSV, "rule-unknown-text@1 !value-misread !rule-shadowed", "", 0},
    {"a.sh",
     "#!/bin/sh\nargs=\" -x NCCL_BUFFSIZE=4M\"\nargs+=\" -x NCCL_CROSS_NIC=1 \"\nmpirun -np 8 "
     "$args ./a\n"
     "F=\"-x NCCL_IB_TC=4x\"\nmpirun \"$F\" ./a\n",
     NT_LINT_SHELL, "value-misread@4 !value-misread@6 !several-in-one", "NCCL_CROSS_NIC=1", 0},
    {"a.sh",
     "#!/bin/sh\nA=\"-x NCCL_IB_TC=$((1 << 2)) -x NCCL_BUFFSIZE=4M\"\nA+=\" -x NCCL_IB_SL=$SL -x "
     "NCCL_CROSS_NIC=1\"\nmpirun $A ./a\n",
     NT_LINT_SHELL, "value-misread@4 not-resolved@4", "NCCL_CROSS_NIC=1", 0},
    {"a.sh", "#!/bin/sh\nNCCL_ARGS=\"-x NCCL_ALGO=Ring\"\nmpirun $NCCL_ARGS ./a\n", NT_LINT_SHELL,
     "!several-in-one", "", 0},
    {"a.sh", "#!/bin/sh\nexport NCCL_IB_HCA=mlx5_0\nexport NCCL_IB_HCA+=,mlx5_1\n", NT_LINT_SHELL,
     "!duplicate", "NCCL_IB_HCA=mlx5_0,mlx5_1", 0},
    {"a.sh",
     "#!/bin/sh\necho NCCL_BUFFSIZE=4M >> /etc/environment\ncat > run.env <<EOF\nNCCL_IB_TC=4x\n"
     "NCCL_NET=$NET\nEOF\n",
     NT_LINT_SHELL, "value-misread@2 value-misread@4 !not-exported", "", 0},
    {"x.txt", "mpiexec -n 8 -genv NCCL_BUFFSIZE=4M -env NCCL_PROTO LL ./a\n", NT_LINT_SHELL,
     "value-misread@1", "NCCL_PROTO=LL", 0},
    {"a.sh",
     "#!/bin/sh\nexport NCCL_BUFFSIZE=${NCCL_BUFFSIZE:-4M}\nexport "
     "NCCL_IB_TC=${TC:-$OTHER}\nexport NCCL_NET=${NET:+IB}\n",
     NT_LINT_SHELL, "from-host@2 value-misread@2 not-resolved@3 not-resolved@4", "", 0},
    {"x.txt", "sudo docker run -eNCCL_BUFFSIZE=4M x\n", NT_LINT_SHELL, "value-misread@1", "", 0},
    {"x.txt", "apptainer exec --env NCCL_CROSS_NIC=1,NCCL_IB_TC=41 x.sif ./a\n", NT_LINT_SHELL, "",
     "NCCL_CROSS_NIC=1 NCCL_IB_TC=41", 0},
    {"x.txt", "NCCL_CROSS_NIC=1 NCCL_NET=IB ./all_reduce_perf -b 8\n", NT_LINT_SHELL,
     "!depends-on-consumer", "NCCL_CROSS_NIC=1 NCCL_NET=IB", 0},
    {"x.txt", "declare -x HOME=\"/root\"\ndeclare -x NCCL_BUFFSIZE=\"4M\"\n", NT_LINT_SHELL,
     "value-misread@2", "", 0},
    {"a.fish", "set -gx NCCL_BUFFSIZE 4M\nset -x NCCL_CROSS_NIC 1\n", NT_LINT_SHELL,
     "value-misread@1", "NCCL_CROSS_NIC=1", 0},
    /* other languages */
    {"a.toml", "[env]\nNCCL_CROSS_NIC = \"1\"\nNCCL_IB_TC = 41 # why\n# NCCL_ALGO = \"Rng\"\n",
     NT_LINT_SETTINGS, "!blanks-kept !value-fails", "NCCL_CROSS_NIC=1 NCCL_IB_TC=41", 0},
    {"a.hcl", "env {\n  NCCL_BUFFSIZE = \"4M\"\n}\n", NT_LINT_SETTINGS,
     "value-misread@2 !blanks-kept", "", 0},
    {"a.lua",
     "setenv(\"NCCL_NET\", \"AWS "
     "Libfabric\")\npushenv('NCCL_BUFFSIZE','4M')\nos.getenv(\"NCCL_ALGO\")\n",
     NT_LINT_SETTINGS, "value-misread@2", "NCCL_NET=AWS", 0},
    {"a.ps1", "$env:NCCL_BUFFSIZE = '4M'\n", NT_LINT_SETTINGS, "value-misread@1", "", 0},
    {"a.toml", "[a]\nb = 1\n", NT_LINT_SETTINGS, "other-kind", "", 0},
    {"Makefile", "NCCL_HOME ?= /usr\nCFLAGS = -O2\n", NT_LINT_UNKNOWN, "other-kind !blanks-kept",
     "", 0},
    /* manifests */
    {"user-data.yaml",
     "write_files:\n- path: /etc/nccl.conf\n  content: |\n    NCCL_CROSS_NIC=1\n    NCCL_ALGO = "
     "Ring\n"
     "- path: /etc/environment\n  content: |\n    NCCL_BUFFSIZE=4M\n- path: /x.sh\n  content: |\n  "
     "  NCCL_IB_TC=41\n",
     NT_LINT_YAML, "blanks-kept@5 value-misread@8 not-exported@11 !not-exported@4 !not-exported@8",
     "NCCL_CROSS_NIC=1", 0},
    {"values.yaml",
     "image: x\nenv:\n  NCCL_CROSS_NIC: 1\n  NCCL_IB_DISABLE: true\n  NCCL_ALGO: null\n",
     NT_LINT_YAML, "!not-a-string depends-on-consumer@4 !value-fails", "NCCL_CROSS_NIC=1", 0},
    {"compose.yaml",
     "services:\n  a:\n    environment:\n      - NCCL_CROSS_NIC=${NIC:-1}\n      - "
     "NCCL_IB_TC=${TC}\n"
     "      - NCCL_BUFFSIZE=${B-4M}\n",
     NT_LINT_YAML, "from-host@4 !value-misread@4 not-resolved@5 !value-misread@5 value-misread@6",
     "NCCL_CROSS_NIC=1", 0},
    {"jobs.yaml",
     "a:\n  run: |\n    export NCCL_CROSS_NIC=1\nb:\n  run: |\n    export NCCL_CROSS_NIC=2\n",
     NT_LINT_YAML, "!duplicate", "", 0},
    {"rccl.yaml", "environment:\n  NCCL_MAX_NCHANNELS: 112\n  RCCL_X: 1\n", NT_LINT_YAML,
     "version-dependent@2 !value-outside", "", 0},
    {"README.md", "It's:\n```\nexport NCCL_ALGO=Rng\n```\n", NT_LINT_UNKNOWN,
     "other-kind !bad-syntax", "", 0},
    {"README.md", "NCCL_ALGO = Ring is\n- a choice = mine\n", NT_LINT_UNKNOWN,
     "other-kind !blanks-kept", "", 0},
    {"runtime_env.yaml", "env_vars:\n  NCCL_CROSS_NIC: 1\n", NT_LINT_YAML, "not-a-string@2", "", 0},
    {"conf.yaml", "name: x\nenv_vars:\n  NCCL_CROSS_NIC: 1\n", NT_LINT_YAML, "!not-a-string", "",
     0},
    {"compose.yaml", "services:\n  a:\n    environment:\n      NCCL_CROSS_NIC:\n", NT_LINT_YAML,
     "!not-a-string from-host@4", "", 0},
    {"task.yaml",
     "C:\n- Name: a\n  Command:\n  - mpirun\n  - -x\n  - NCCL_IB_TC=4x\n  Environment:\n  - Name: "
     "NCCL_BUFFSIZE\n"
     "    Value: 4M\n",
     NT_LINT_YAML, "value-misread@6 value-misread@9", "", 0},
    {"form.yaml", "body:\n- description: what's NCCL_DEBUG=INFO?\n", NT_LINT_YAML, "!bad-syntax",
     "", 0},
    {"r.json", "{\"apiVersion\": \"v1\", \"env\": [{\"name\": \"NCCL_CROSS_NIC\", \"value\": 1}]}",
     NT_LINT_JSON_ENV, "not-a-string@1", "", 0},
    {"pod.yaml",
     "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: a\n    image: x\n    env:\n"
     "    - name: NCCL_CROSS_NIC\n      value: 1\n    - name: OTHER\n      value: true\n"
     "    - name: NCCL_BUFFSIZE\n      value: \"4M\"\n    command: [\"sh\", \"-c\", \"export "
     "NCCL_ALGO=Tree; ./a\"]\n",
     NT_LINT_YAML, "not-a-string@9 not-a-string@11 value-misread@13 no-algorithm@14",
     "NCCL_CROSS_NIC=1", 0},
    {"map.yaml",
     "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x\ndata:\n  NCCL_CROSS_NIC: 1\n  "
     "nccl.conf: |\n"
     "    NCCL_IB_TC=41\n    NCCL_ALGO = Ring\n",
     NT_LINT_YAML, "not-a-string@6 blanks-kept@9", "NCCL_IB_TC=41", 0},
    {"compose.yaml",
     "services:\n  a:\n    image: x\n    environment:\n      NCCL_CROSS_NIC: 1\n      "
     "NCCL_IB_DISABLE: true\n"
     "  b:\n    image: x\n    environment:\n      - NCCL_CROSS_NIC=0\n",
     NT_LINT_YAML, "!not-a-string@5 not-a-string@6 !duplicate", "", 0},
    {"t.yaml", "env:\n- name: NCCL_ALGO\n  value: {{ .Values.algo }}\n", NT_LINT_YAML, "", "", 0},
    {"bad.yaml", "a: [1,\nb: }\n", NT_LINT_YAML, "bad-syntax", "", 0},
    {"r.json", "{\"env_vars\":\n{\"NCCL_ALGO\": \"Tree\",\n\"X\": 1}}", NT_LINT_JSON_ENV,
     "not-a-string@3 no-algorithm@2", "", 0},
    {"r.json", "{\"Env\": [\"NCCL_BUFFSIZE=4M\"]}", NT_LINT_JSON_ENV, "value-misread@1", "", 0},
    {"r.json", "{\"env\": {", NT_LINT_JSON_ENV, "bad-syntax", "", 0},
    {"a.service",
     "[Service]\nEnvironment=NCCL_BUFFSIZE=4M \"NCCL_NET=AWS Libfabric\"\n"
     "Environment=NCCL_DEBUG_FILE=/tmp/%h.%p\nEnvironmentFile=/etc/x\n",
     NT_LINT_SYSTEMD, "value-misread@2 not-resolved@3 sourced@4", "NCCL_NET=AWS", 0},
    /* logs, policies, tuner files, other kinds */
    {"a.log",
     "h:1:2 [0] NCCL INFO NCCL_P2P_LEVEL set by environment to 0\n"
     "h:1:2 [0] NCCL INFO Failed to find ncclTunerPlugin_v4 symbol, using internal tuner instead.\n"
     "h:1:2 [0] NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 1: CUDA "
     "error 401\n",
     NT_LINT_LOG, "version-dependent@1 tuner-not-active@2 multicast-unavailable@3", "", 0},
    {"a.log", "h:1:2 [0] NCCL INFO NCCL_IB_HCA set to mlx5_0\nh:1:2 [0] NCCL INFO root set to 1\n",
     NT_LINT_LOG, "set-in-log@1 !set-in-log@2", "", 0},
    {"p.txt",
     "env_var {\n check_policy: POLICY_ENFORCED\n name: \"NCCL_ALGO\"\n value: \"Ring\"\n}\n",
     NT_LINT_POLICY, "policy@3", "", 0},
    {"t.txt", "communicator_configs {\n coll_configs { msg_size_tuning_rules { } }\n}\n",
     NT_LINT_TUNER_PROTO, "other-kind !bad-syntax", "", 0},
    {"t.conf",
     "# "
     "rules\nallreduce,0,65536,ring,simple,2,1,-1\nallreduce,0,1024,tree,ll,2,1,8\nAllreduce,0,1,"
     "ring,simple,2,1,8\n"
     "allgather,0,1,tree,ll,2,1,8\nallgather,9,1,ring,ll,-1,1,8\nallgather,,,ring\nalltoall,0,1,"
     "ring,ll,2,1,8\n"
     "reduce,0,64K,ring,ll,2,1,8\n",
     NT_LINT_TUNER_CSV,
     "rule-shadowed@3 rule-unknown-text@4 rule-no-kernel@5 rule-never-matches@6 rule-one-channel@6 "
     "rule-skipped@7 rule-unknown-text@7 rule-unknown-text@8 value-misread@9",
     "", 0},
    {"t.conf", "allreduce,,,,,,,", NT_LINT_TUNER_CSV, "rule-skipped@1 no-final-newline@1", "", 0},
    {"u.conf", "UCC_TL_UCP_TUNE=allreduce:0-4k:@0\n", NT_LINT_UCC, "other-kind !name-unknown", "",
     0},
    {"g.xml", "<graphs version=\"1\"/>\n", NT_LINT_GRAPH_XML, "other-kind", "", 0},
    {"v.json", "{\"MAX\": {\"9.0\": 1}}", NT_LINT_THRESHOLDS, "other-kind", "", 0},
    {"m.csv", "size_bytes,backend,time_us\n", NT_LINT_MEASUREMENTS, "other-kind", "", 0},
    {"x", "", NT_LINT_UNKNOWN, "other-kind", "", 0},
};

static bool found(const struct nt_lint_file *f, const char *spec, size_t len)
{
    const char *at = memchr(spec, '@', len);
    size_t n = at != NULL ? (size_t)(at - spec) : len;
    unsigned line = 0;
    if (at != NULL) {
        (void)sscanf(at + 1, "%5u", &line);
    }
    for (size_t i = 0; i < f->nfindings; i++) {
        const char *id = nt_lint_rule_id(f->findings[i].rule);
        if (strlen(id) == n && strncmp(id, spec, n) == 0 &&
            (at == NULL || f->findings[i].line == line)) {
            return true;
        }
    }
    return false;
}

static unsigned failed; /* rows: all are shown before the test fails */

static void show(const struct lint_case *c, const struct nt_lint_file *f, const char *what,
                 size_t len)
{
    struct nt_buf b;
    nt_buf_init(&b, 1 << 20);
    nt_lint_text(f, &b);
    print_error("%s\n%s", c->text, nt_buf_str(&b));
    nt_buf_done(&b);
    print_error("%s: %.*s\n", c->name, (int)len, what);
    failed++;
}

static void want(const struct lint_case *c, const struct nt_lint_file *f)
{
    struct nt_buf b;
    nt_buf_init(&b, 1 << 20);
    for (const char *p = c->finds; *p != '\0'; p += *p == ' ') {
        size_t n = strcspn(p, " ");
        bool no = *p == '!';
        if (found(f, p + no, n - no) == no) {
            show(c, f, p, n);
        }
        p += n;
    }
    nt_lint_text(f, &b);
    for (const char *p = c->takes; *p != '\0'; p += *p == ' ') {
        size_t n = strcspn(p, " "), name = strcspn(p, "=");
        char as_is[200], changed[200], dead[240];
        (void)snprintf(as_is, sizeof(as_is), "%.*s = %.*s", (int)name, p, (int)(n - name - 1),
                       p + name + 1);
        (void)snprintf(changed, sizeof(changed), "-> %.*s\n", (int)(n - name - 1), p + name + 1);
        (void)snprintf(dead, sizeof(dead), "%s  -> loses", as_is);
        if ((strstr(nt_buf_str(&b), as_is) == NULL || strstr(nt_buf_str(&b), dead) != NULL) &&
            strstr(nt_buf_str(&b), changed) == NULL) {
            show(c, f, p, n);
        }
        p += n;
    }
    nt_buf_done(&b);
}

static void test_cases(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct lint_case *c = &cases[i];
        struct nt_lint_opts o = {.version = c->version != 0 ? c->version : NT_V(2, 28, 9),
                                 .form = -1};
        struct nt_lint_file *f = NULL;
        size_t len = strlen(c->text);
        assert_int_equal(nt_lint_read(c->name, c->text, len, &o, &f, NULL), 0);
        if (c->form != NT_LINT_UNKNOWN && f->form != c->form) {
            show(c, f, nt_lint_form_words[f->form], strlen(nt_lint_form_words[f->form]));
        }
        want(c, f);
        nt_lint_free(f);
    }
    assert_int_equal(failed, 0);
}

static struct nt_lint_file *read_as(const char *name, const char *text, int form)
{
    struct nt_lint_opts o = {.version = NT_V(2, 28, 9), .form = form};
    struct nt_lint_file *f = NULL;
    assert_int_equal(nt_lint_read(name, text, strlen(text), &o, &f, NULL), 0);
    return f;
}

static void test_environ(void **state)
{
    static const char text[] = "NCCL_CROSS_NIC=1\0NCCL_BUFFSIZE=4M";
    struct nt_lint_opts o = {.version = NT_V(2, 28, 9), .form = -1};
    struct nt_lint_file *f = NULL;
    (void)state;
    assert_int_equal(nt_lint_read("environ", text, sizeof(text) - 1, &o, &f, NULL), 0);
    assert_int_equal(f->form, NT_LINT_ENVIRON);
    assert_int_equal(f->nvars, 2);
    assert_true(found(f, "value-misread@2", 15));
    nt_lint_free(f);
}

/* Bytes that are no text, and text of a wide encoding, were once read as an environment without a
 * word. */
static void test_no_text(void **state)
{
#define BYTES(s) s, sizeof(s) - 1
    static const struct {
        const char *name, *text;
        size_t len;
        enum nt_lint_form form;
        const char *rule;
    } rows[] = {
        {"x",
         BYTES("\x7f"
               "ELF\2\1\1\0 a=b\0"),
         NT_LINT_UNKNOWN, "other-kind"},
        {"x", BYTES("\0\0\0="), NT_LINT_UNKNOWN, "other-kind"},
        {"nccl.conf", BYTES("# one\nNCCL_ALGO\0=Ring\n"), NT_LINT_CONF, "bad-syntax@2"},
        {"nccl.conf", BYTES("\xff\xfeN\0C\0C\0L\0"), NT_LINT_CONF, "bad-syntax@1"},
        {"nccl.conf", BYTES("N\0C\0C\0L\0_\0A\0=\0"), NT_LINT_CONF, "bad-syntax@1"},
        {"topo.txt", BYTES("\tGPU0\tCPU Affinity\nGPU0\t X \t0-7\n\nLegend:\n\n  X    = Self\n"),
         NT_LINT_UNKNOWN, "other-kind"},
    };
#undef BYTES
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nt_lint_opts o = {.version = NT_V(2, 28, 9), .form = -1};
        struct nt_lint_file *f = NULL;
        assert_int_equal(nt_lint_read(rows[i].name, rows[i].text, rows[i].len, &o, &f, NULL), 0);
        if (f->form != rows[i].form || !found(f, rows[i].rule, strlen(rows[i].rule))) {
            fail_msg("row %zu: %s", i, nt_lint_form_words[f->form]);
        }
        nt_lint_free(f);
    }
}

/* libyaml's time grows with the square of the open brackets: 100 kB once took minutes. */
static void test_deep_brackets(void **state)
{
    enum { DEEP = 100000 };
    char *text = malloc(DEEP + 8);
    struct nt_lint_file *f;
    (void)state;
    assert_non_null(text);
    memcpy(text, "env:\n  ", 7);
    memset(text + 7, '[', DEEP);
    text[7 + DEEP] = '\0';
    f = read_as("deep.yaml", text, -1);
    assert_true(found(f, "bad-syntax@2", 12));
    nt_lint_free(f);
    free(text);
}

/* The line of each key was once looked for from the top: minutes for a file of many. */
static void test_many_json_keys(void **state)
{
#ifdef __SANITIZE_THREAD__ /* where a search in a string reads all of it: quadratic */
    enum { KEYS = 25000 };
#else
    enum { KEYS = 150000 };
#endif
    (void)state;
    for (size_t k = 0; k < 2; k++) {
        struct nt_buf b;
        struct nt_lint_file *f;
        nt_buf_init(&b, NT_LINT_MAX_BYTES);
        nt_buf_puts(&b, "{\"env\":{");
        for (int i = 0; i < KEYS; i++) {
            char key[40];
            (void)snprintf(key, sizeof(key),
                           k == 0 ? "\n\"NCCL_A%d\":\"1\"," : "\n\"NCCL\\u005fA%d\":\"1\",", i);
            nt_buf_puts(&b, key);
        }
        nt_buf_puts(&b, "\n\"NCCL_Z\":\"1\"}}");
        assert_false(b.failed);
        f = read_as("env.json", nt_buf_str(&b), NT_LINT_JSON_ENV);
        assert_int_equal(f->nvars, NT_LINT_MAX_VARS);
        assert_int_equal(f->vars[1000].line, k == 0 ? 1002 : 1);
        nt_lint_free(f);
        nt_buf_done(&b);
    }
}

/* A NUL once stopped the shell's reader for good. */
static void test_nul_in_shell(void **state)
{
    static const char text[] = "export NCCL_CROSS_NIC=1\0 \0\nexport NCCL_BUFFSIZE=4M\n";
    struct nt_lint_opts o = {.version = NT_V(2, 28, 9), .form = NT_LINT_SHELL};
    struct nt_lint_file *f = NULL;
    (void)state;
    assert_int_equal(nt_lint_read("a", text, sizeof(text) - 1, &o, &f, NULL), 0);
    assert_true(found(f, "value-misread@2", 15));
    nt_lint_free(f);
}

static void test_wrong_kind(void **state)
{
    struct nt_lint_file *f = read_as("t.csv", "communicator_configs { }\n", NT_LINT_TUNER_CSV);
    (void)state;
    assert_true(found(f, "bad-syntax", 10));
    assert_non_null(strstr(f->findings[0].text, "exclusive"));
    nt_lint_free(f);
}

static void test_across(void **state)
{
    struct nt_lint_file *f[4] = {read_as("a.conf", "NCCL_ALGO=Ring\nNCCL_CROSS_NIC=1\n", -1),
                                 read_as("b.conf", "NCCL_CROSS_NIC=2\n", -1),
                                 read_as("c.sh", "export NCCL_ALGO=Ring,Tree\n", -1),
                                 read_as("p.txt",
                                         "env_var {\n check_policy: POLICY_ENFORCED\n name: "
                                         "\"NCCL_ALGO\"\n value: \"Ring\"\n}\n",
                                         -1)};
    (void)state;
    nt_lint_across(f, 4);
    assert_true(found(f[0], "overridden@1", 12)); /* the environment beats the file */
    assert_true(found(f[1], "overridden@1", 12)); /* the file read first wins */
    assert_true(found(f[2], "policy-broken@1", 15));
    assert_false(found(f[0], "policy-broken@1", 15));
    for (int i = 0; i < 4; i++) {
        nt_lint_free(f[i]);
    }
}

static void test_output(void **state)
{
    struct nt_lint_file *f = read_as("a.conf", "NCCL_BUFFSIZE=4M\nNCCL_NET_PLUGIN=\xff{{\n", -1);
    json_t *j = nt_lint_json(f), *s = nt_lint_sarif(&f, 1, "0");
    const json_t *run = json_array_get(json_object_get(s, "runs"), 0);
    (void)state;
    assert_non_null(j);
    assert_string_equal(json_string_value(json_object_get(
                            json_array_get(json_object_get(j, "variables"), 0), "taken")),
                        "4");
    assert_int_equal(json_array_size(json_object_get(run, "results")), f->nfindings);
    assert_int_equal(nt_lint_errors(f), 2);
    json_decref(j);
    json_decref(s);
    nt_lint_free(f);
}

static void test_bounds(void **state)
{
    struct nt_buf b;
    struct nt_lint_file *f;
    (void)state;
    nt_buf_init(&b, NT_LINT_MAX_BYTES);
    for (unsigned i = 0; i < 30000; i++) {
        nt_buf_printf(&b, "NCCL_A%u=1\n", i);
    }
    f = read_as("a.conf", nt_buf_str(&b), -1);
    assert_int_equal(f->nfindings, NT_LINT_MAX_FINDINGS);
    assert_true(found(f, "limit", 5));
    nt_lint_free(f);
    nt_buf_done(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),          cmocka_unit_test(test_environ),
        cmocka_unit_test(test_no_text),        cmocka_unit_test(test_deep_brackets),
        cmocka_unit_test(test_many_json_keys), cmocka_unit_test(test_across),
        cmocka_unit_test(test_wrong_kind),     cmocka_unit_test(test_output),
        cmocka_unit_test(test_bounds),         cmocka_unit_test(test_nul_in_shell)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
