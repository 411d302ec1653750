"""Reads the safetensors that `dapd score` writes into torch's tensors."""

from __future__ import annotations

import json
import os
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def read_tensors(path: str | os.PathLike[str]) -> dict[str, torch.Tensor]:
    """Returns the float32 tensors of a file by name. The file has 8 bytes with the length of a JSON header, the header,
    and the tensors' bytes."""
    import torch

    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = bytearray(file.read())
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        if entry["dtype"] != "F32":
            raise ValueError(f"{path}: {name} is {entry['dtype']}, and float32 is expected")
        begin, end = entry["data_offsets"]
        flat = torch.frombuffer(data, dtype=torch.float32, count=(end - begin) // 4, offset=begin) if end > begin else torch.empty(0)
        tensors[name] = flat.reshape(entry["shape"])
    return tensors
