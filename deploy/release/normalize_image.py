#!/usr/bin/env python3
"""Rewrites the output of `docker save` so that the same files and settings give the same bytes.

    deploy/release/normalize_image.py IMAGE.tar --time EPOCH >NORMALIZED.tar

An engine dates every layer and gives it a random name. In the result, files have the time EPOCH and are sorted,
every layer is named by its digest, and the configuration has only what a container needs. Docker, Podman, skopeo and
Apptainer (docker-archive) read the result.
"""

import argparse
import datetime
import hashlib
import io
import json
import sys
import tarfile
import tempfile

# Everything else in an image's configuration describes the machine that built it.
KEPT = ("architecture", "os", "config")


def header(name, size, time):
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = size, time, 0o644
    return entry


def normalize_layer(source, target, time):
    """Copies a layer; returns the SHA-256 of what was written. Owners and modes stay; hard links come after the files
    that they name."""
    with tarfile.open(fileobj=source) as layer, tarfile.open(fileobj=target, mode="w", format=tarfile.PAX_FORMAT) as written:
        for entry in sorted(layer.getmembers(), key=lambda entry: (entry.islnk(), entry.name)):
            content = layer.extractfile(entry) if entry.isreg() else None
            # A PAX header is written again only for a name that needs one.
            entry.mtime, entry.uname, entry.gname, entry.pax_headers = time, "", "", {}
            written.addfile(entry, content)
    target.seek(0)
    digest = hashlib.file_digest(target, "sha256").hexdigest()
    target.seek(0)
    return digest


def normalize(image, output, time):
    with tarfile.open(image) as saved, tarfile.open(fileobj=output, mode="w|", format=tarfile.PAX_FORMAT) as written:

        def add(name, data):
            written.addfile(header(name, len(data), time), io.BytesIO(data))

        (manifest,) = json.load(saved.extractfile("manifest.json"))
        digests = []
        for layer in manifest["Layers"]:
            with tempfile.TemporaryFile() as target:
                digests.append(normalize_layer(saved.extractfile(layer), target, time))
                target.seek(0, io.SEEK_END)
                size = target.tell()
                target.seek(0)
                # Two layers may be equal, for example empty ones.
                if digests[-1] not in digests[:-1]:
                    written.addfile(header(f"{digests[-1]}.tar", size, time), target)
        config = json.load(saved.extractfile(manifest["Config"]))
        kept = {name: config[name] for name in KEPT if name in config}
        kept["config"] = {name: value for name, value in kept["config"].items() if value and name not in ("Hostname", "Image")}
        kept["created"] = datetime.datetime.fromtimestamp(time, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        kept["history"] = [{"created": kept["created"], "created_by": "deploy/Dockerfile"} for _ in digests]
        kept["rootfs"] = {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]}
        text = json.dumps(kept, sort_keys=True, separators=(",", ":")).encode()
        name = f"{hashlib.sha256(text).hexdigest()}.json"
        add(name, text)
        layers = [f"{digest}.tar" for digest in digests]
        add("manifest.json", json.dumps([{"Config": name, "RepoTags": manifest["RepoTags"], "Layers": layers}], sort_keys=True).encode())


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("image")
    arguments.add_argument("--time", type=int, required=True, help="seconds since 1970, of the commit")
    options = arguments.parse_args()
    normalize(options.image, sys.stdout.buffer, options.time)
    return 0


if __name__ == "__main__":
    sys.exit(main())
