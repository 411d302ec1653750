"""Makes a copy of NCCL that a pack can carry: with the machine code of one kind of GPU.

torch 2.11 demands NCCL 2.28.9, which joins no two ranks on one GPU; from 2.30.3 on NCCL does, if
NCCL_MULTI_RANK_GPU_ENABLE=1. Both have the same interface (libnccl.so.2), so the stage `ranks` preloads the newer one.

A CUDA library holds the code of each kind of GPU as an image of its own ("fatbin"), of which the driver reads the one
that fits. Here the other images become zeros: the library stays as it is in memory, and compresses to a twentieth.
"""

import re
import struct
import subprocess

# Every image begins with this header: magic, version, bytes of this header, bytes of the entries behind it.
HEADER = struct.Struct("<IHHQ")
MAGIC = 0xBA55ED50
# An entry, as far as it is needed: kind, version, bytes of its header and of its content, and at ARCHITECTURE the
# GPU, 90 for sm_90.
ENTRY = struct.Struct("<HHIQ")
ARCHITECTURE, NUMBER = 28, struct.Struct("<I")
MACHINE_CODE = 2  # the other kind is PTX
# The second section is for programs that link the library's code into their own.
IMAGES, FOR_LINKING = ".nv_fatbin", "__nv_relfatbin"


def sections(library):
    """Returns {name: (offset, bytes)} of the library's sections."""
    listed = subprocess.run(["readelf", "--section-headers", "--wide", library], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"\]\s+(\S+)\s+\S+\s+[0-9a-f]+\s+([0-9a-f]+)\s+([0-9a-f]+)", listed)
    return {name: (int(offset, 16), int(size, 16)) for name, offset, size in found}


def entries(content, begin, size):
    """Yields (is machine code, architecture, begin, end) of the content of each image in a section."""
    place, end = begin, begin + size
    while place + HEADER.size <= end:
        magic, _, header, length = HEADER.unpack_from(content, place)
        if magic != MAGIC:
            place += 8  # images are aligned
            continue
        place += header
        while length > 0:
            kind, _, header, payload = ENTRY.unpack_from(content, place)
            yield kind == MACHINE_CODE, NUMBER.unpack_from(content, place + ARCHITECTURE)[0], place + header, place + header + payload
            place += header + payload
            length -= header + payload


def keep_only(architecture, source, target):
    """Writes the library without the code of other GPUs and without what debuggers need. Returns the bytes of code that
    it keeps. An architecture that the library has no code for is an error."""
    subprocess.run(["strip", "--strip-unneeded", "-o", target, source], check=True)
    content = bytearray(target.read_bytes())
    kept = 0
    places = sections(target)
    for name in IMAGES, FOR_LINKING:
        for is_code, own, begin, end in entries(content, *places.get(name, (0, 0))):
            if name == IMAGES and is_code and own == architecture:
                kept += end - begin
            else:
                content[begin:end] = bytes(end - begin)
    if kept == 0:
        raise ValueError(f"{source} has no code for sm_{architecture}")
    target.write_bytes(content)
    return kept
