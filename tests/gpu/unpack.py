"""Unpacks a pack, unless it is already unpacked, and prints the tree's folder.

    unpack.py PACK WORK

It uses only the standard library, and works with any Python that torch runs on.
"""

import hashlib
import json
import lzma
import pathlib
import shutil
import sys
import tarfile


def unpack(pack, manifest, folder):
    for part in manifest["parts"]:
        content = (pack / part["file"]).read_bytes()
        if hashlib.sha256(content).hexdigest() != part["sha256"]:
            sys.exit(f"{pack / part['file']} is not what was packed: its SHA-256 differs from the manifest's; copy the pack again")
        with tarfile.open(fileobj=lzma.open(pack / part["file"])) as archive:
            # Older releases of Python have no filters.
            archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))


def main():
    pack, work = map(pathlib.Path, sys.argv[1:])
    try:
        text = (pack / "manifest.json").read_bytes()
        manifest = json.loads(text)
    except (OSError, ValueError) as error:
        sys.exit(f"{pack} holds no pack ({error}); make one with tests/gpu/pack.sh, and name it with --pack")
    tree = work / f"pack-{hashlib.sha256(text).hexdigest()[:12]}"
    if not tree.exists():
        aside = tree.with_name(tree.name + ".tmp")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        try:
            unpack(pack, manifest, aside)
        except OSError as error:
            sys.exit(f"{pack} cannot be unpacked to {aside}: {error}; DAPD_GPU_WORK names another folder")
        (aside / "manifest.json").write_bytes(text)
        aside.rename(tree)
    print(tree)


main()
