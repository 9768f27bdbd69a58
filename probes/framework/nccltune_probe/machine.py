"""What a rank says of itself before PyTorch is imported: device, driver and libnccl, through ctypes."""
import ctypes
import importlib.util
import os
import re


def _cuda_call(lib, name, *args):
    if getattr(lib, name)(*args) != 0:
        raise OSError(f"{name} failed")


def device(index):
    """Members of hello for the device, or None where there is no CUDA driver or device."""
    try:
        lib = ctypes.CDLL("libcuda.so.1")
        _cuda_call(lib, "cuInit", 0)
        count, handle, version = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        _cuda_call(lib, "cuDeviceGetCount", ctypes.byref(count))
        _cuda_call(lib, "cuDeviceGet", ctypes.byref(handle), index % count.value)
        name, pci, uuid, total = (ctypes.create_string_buffer(64), ctypes.create_string_buffer(32), (ctypes.c_ubyte * 16)(),
                                  ctypes.c_size_t())
        _cuda_call(lib, "cuDeviceGetName", name, 64, handle)
        _cuda_call(lib, "cuDeviceGetPCIBusId", pci, 32, handle)
        _cuda_call(lib, "cuDeviceGetUuid", uuid, handle)
        _cuda_call(lib, "cuDeviceTotalMem_v2", ctypes.byref(total), handle)
        _cuda_call(lib, "cuDriverGetVersion", ctypes.byref(version))
    except (OSError, AttributeError, ZeroDivisionError):
        return None
    h = bytes(uuid).hex()
    return {"gpu_uuid": f"GPU-{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}", "gpu_pci": pci.value.decode().lower(),
            "gpu_name": name.value.decode(errors="replace"), "gpu_memory_bytes": total.value, "driver": version.value}


def mapped(pattern):
    """Files mapped into this process whose name matches, in order."""
    found = []
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            path = line.rstrip("\n").partition("/")
            path = path[1] + path[2]
            if re.search(pattern, os.path.basename(path)) and path not in found:
                found.append(path)
    return found


def libnccl():
    """(library, path, version) that PyTorch will use too, as the name is mapped only once: the one that the driver names,
    one already mapped (LD_PRELOAD), that of PyTorch's wheel, the loader's. (None, "", 0): there is none."""
    names = [os.environ["NCCLTUNE_NCCL_LIB"]] if os.environ.get("NCCLTUNE_NCCL_LIB") else mapped(r"^libnccl\.so")
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        names.append(os.path.join(folder, "nccl", "lib", "libnccl.so.2"))
    for name in [*names, "libnccl.so.2"]:
        try:
            lib = ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
            version = ctypes.c_int()
            if lib.ncclGetVersion(ctypes.byref(version)) == 0:
                path = (mapped(r"^libnccl\.so") or [name])[0]
                return lib, path, version.value
        except (OSError, AttributeError):
            continue
    return None, "", 0
