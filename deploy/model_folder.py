"""Writes a Hugging Face model folder in one piece: aside, synced, then renamed."""

import json
import os
import pathlib
import shutil

from safetensors.numpy import save_file


def sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_model_folder(output, documents, weights):
    """`documents`: JSON content by file name; `weights`: numpy arrays by checkpoint name."""
    output = pathlib.Path(output)
    aside = output.with_name(f"{output.name}.tmp-{os.getpid()}")
    aside.mkdir(parents=True)
    try:
        for name, content in documents.items():
            (aside / name).write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")
        save_file(weights, aside / "model.safetensors", metadata={"format": "pt"})
        (aside / "model.safetensors").chmod(0o644)
        for path in (*aside.iterdir(), aside):
            sync(path)
        aside.rename(output)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    print(f"wrote {output}")
