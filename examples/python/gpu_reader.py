#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the pinned gpu_* maps with nothing but Python: GPUs, then processes. Usage: gpu_reader.py [PIN-DIR]

The bpf system call is made through the C library. It needs read permission on the pins and no more, except on kernels that keep bpf from
users without CAP_BPF.
"""

import ctypes
import os
import platform
import struct
import sys
import time

SYS_BPF = {"x86_64": 321, "aarch64": 280}[platform.machine()]
MAP_LOOKUP_ELEM, MAP_GET_NEXT_KEY, OBJ_GET = 1, 4, 7
BPF_F_RDONLY = 1 << 3
DEVICES, ENTRIES = 16, 4096

META = struct.Struct("<IIQIIq")  # schema_version, n_devices, last_update_boottime_ns, helper_pid, _reserved, clock_offset_ns
DEVICE = struct.Struct("<QIIQQQIIIIQQQIIQQQQII")  # timestamp_ns, sm_util_pct, mem_util_pct, mem_total, mem_used, ...
PROCESS = struct.Struct("<QQIIBBH4x")  # timestamp_ns, memory, sm_util_pct_max, mem_util_pct_max, device, device_count, _pad
STALE_NS = 300_000_000

libc = ctypes.CDLL(None, use_errno=True)


def bpf(command, attributes):
    result = libc.syscall(SYS_BPF, command, attributes, len(attributes))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def open_map(path):
    name = ctypes.create_string_buffer(os.fsencode(path))
    try:
        return bpf(OBJ_GET, struct.pack("<QII", ctypes.addressof(name), 0, BPF_F_RDONLY))
    except OSError as error:
        sys.exit(f"cannot open {path}: {error.strerror} (is a bridge running, and may you read its pins?)")


def lookup(map_fd, key, value_size):
    """The value, or None when the map has no such key."""
    key = ctypes.create_string_buffer(key, len(key))
    value = ctypes.create_string_buffer(value_size)
    try:
        bpf(MAP_LOOKUP_ELEM, struct.pack("<IIQQQ", map_fd, 0, ctypes.addressof(key), ctypes.addressof(value), 0))
    except FileNotFoundError:
        return None
    return value.raw


def keys(map_fd, key_size):
    """All keys, each once. One that is deleted meanwhile starts the walk anew, so it has a limit."""
    key, following, seen = None, ctypes.create_string_buffer(key_size), set()
    for _ in range(4 * ENTRIES):
        at = ctypes.addressof(key) if key else 0
        try:
            bpf(MAP_GET_NEXT_KEY, struct.pack("<IIQQ", map_fd, 0, at, ctypes.addressof(following)))
        except FileNotFoundError:
            break
        key = ctypes.create_string_buffer(following.raw, key_size)
        seen.add(following.raw)
    return seen


def main():
    pin_dir = sys.argv[1] if len(sys.argv) > 1 else "/sys/fs/bpf"
    meta, device, per_pid = (open_map(os.path.join(pin_dir, name)) for name in ("gpu_meta", "gpu_device", "gpu_per_pid"))

    _, _, last_update, _, _, clock_offset = META.unpack(lookup(meta, struct.pack("<I", 0), META.size))
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    age = max(now - last_update, 0)
    if not last_update or age > STALE_NS:
        sys.exit("stale: the bridge is gone, or waits for its driver")
    print(f"fresh, {age // 1_000_000} ms old")

    for index in range(DEVICES):
        record = DEVICE.unpack(lookup(device, struct.pack("<I", index), DEVICE.size))
        if record[0]:
            print(f"GPU {index}: {record[1]} % busy, {record[4] >> 20} of {record[3] >> 20} MiB used, {record[7] / 1000:.0f} W")
    for key in sorted(keys(per_pid, 4), key=lambda key: struct.unpack("<I", key)):
        value = lookup(per_pid, key, PROCESS.size)
        if value is None:
            continue
        timestamp, memory, sm_util, _, primary, count, _ = PROCESS.unpack(value)
        where = f"GPU {primary}" if primary != 0xFF else f"{count} GPUs"
        # Their samples are on the wall clock.
        sampled = f"{sm_util} % busy {(now - (timestamp - clock_offset)) // 1_000_000} ms ago" if timestamp else "not sampled yet"
        print(f"process {struct.unpack('<I', key)[0]}: {memory >> 20} MiB on {where}, {sampled}")


if __name__ == "__main__":
    main()
