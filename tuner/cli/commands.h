/* commands - one row a subcommand, each in its own cmd_<name>.c; main.c holds the table. */
#pragma once
#include "tuner/base/cli.h"
