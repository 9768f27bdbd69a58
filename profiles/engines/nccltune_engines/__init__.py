"""Plugins through which SGLang and vLLM take the backend that a profile names, per size class and mode.

vllm_plugin and sglang_plugin are entry points (vllm.general_plugins, sglang.srt.plugins). They do nothing unless
NCCLTUNE_BACKENDS (a hash) and NCCLTUNE_BACKENDS_TABLE (the file that `nccltune export --format sglang|vllm` wrote) are
set; whatever is in the way is said in the log and in the receipt, and the engine goes on as without a plugin.
"""
__version__ = "1.0"


def sglang_plugin():
    from . import plugin, sglang
    plugin.start(sglang.Door)


def vllm_plugin():
    from . import plugin, vllm
    plugin.start(vllm.Door)
