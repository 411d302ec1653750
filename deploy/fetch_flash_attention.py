#!/usr/bin/env python3
"""Fetches the source of FlashAttention-3, which deploy/install.sh --cuda needs for sm_90.

    deploy/fetch_flash_attention.py FOLDER

FOLDER gets hopper/ (the kernels' headers), cutlass/ (the version of CUTLASS that they are written for) and licences/.
No package of Python's index has FlashAttention-3's sources under its own name: the source distribution of flash-attn
leaves the CUDA files of its hopper folder out. The source distribution of xformers contains them as a part of its
own, with CUTLASS. The version is pinned by its digest. The index is the one that pip is configured for; pip itself
fetches no source distribution without running its setup.py, which here needs the whole of Python's torch.
"""

import hashlib
import html.parser
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.parse
import urllib.request

PROJECT = "xformers"
FILE = "xformers-0.0.34.tar.gz"
SHA256 = "716bd9ffe61f46c2cc0536abf8b8c43ec594bea47a49394ea5cfa417e9de6a6f"
# Folders and files of the archive, below its own folder, and their places.
PARTS = {
    "third_party/flash-attention/hopper": "hopper",
    "third_party/flash-attention/csrc/cutlass/include": "cutlass/include",
    "third_party/flash-attention/csrc/cutlass/LICENSE.txt": "licences/cutlass.txt",
    "LICENSE": "licences/xformers.txt",
}
ENDINGS = (".h", ".hpp", ".cuh", ".cu", ".inl", ".txt", "LICENSE")
# Files that compile kernels which nobody needs here; common/kernels/cuda instantiates its own.
LEFT_OUT = "/instantiations/"
TIMEOUT_SECONDS = 60
ATTEMPTS = 3


class Links(html.parser.HTMLParser):
    """Collects the links of a page."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        target = dict(attributes).get("href")
        if tag == "a" and target:
            self.found.append(target)


def index_url():
    """Returns pip's index, from its files and its environment."""
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True).stdout
    settings = dict(line.split("=", 1) for line in listed.splitlines() if "=" in line)
    for key in (":env:.index-url", "install.index-url", "global.index-url"):
        if key in settings:
            return settings[key].strip("'\"").rstrip("/")
    return "https://pypi.org/simple"


def read(url):
    for attempt in range(ATTEMPTS):
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as response:
                return response.read()
        except OSError as error:
            if attempt + 1 == ATTEMPTS:
                sys.exit(f"fetch_flash_attention: {url}: {error}; PIP_INDEX_URL names another index")


def archive():
    """Returns the bytes of the archive, from the index."""
    page = f"{index_url()}/{PROJECT}/"
    links = [urllib.parse.urljoin(page, link) for link in Links(read(page).decode()).found]
    for link in links:
        if urllib.parse.urlparse(link).path.endswith(f"/{FILE}"):
            return read(urllib.parse.urldefrag(link).url)
    sys.exit(f"fetch_flash_attention: {page} has no {FILE}")


def unpack(data, folder):
    """Writes PARTS into `folder`."""
    top = FILE.removesuffix(".tar.gz")
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        with tarfile.open(fileobj=file) as tar:
            for member in tar:
                for part, place in PARTS.items():
                    inside = member.name.removeprefix(f"{top}/")
                    is_taken = (inside == part or inside.startswith(f"{part}/")) and inside.endswith(ENDINGS) and LEFT_OUT not in inside
                    if not member.isfile() or not is_taken:
                        continue
                    target = folder / (place + inside.removeprefix(part))
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(tar.extractfile(member).read())
    missing = [place for place in PARTS.values() if not (folder / place).exists()]
    if missing:
        sys.exit(f"fetch_flash_attention: {FILE} has no {', '.join(missing)}")


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        sys.exit(2)
    folder = pathlib.Path(sys.argv[1])
    data = archive()
    digest = hashlib.sha256(data).hexdigest()
    if digest != SHA256:
        sys.exit(f"fetch_flash_attention: {FILE} has the SHA-256 {digest}, and {SHA256} is expected; nothing was unpacked")
    aside = folder.with_name(folder.name + ".tmp")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    unpack(data, aside)
    shutil.copy(__file__, aside / "fetched-by.py")
    shutil.rmtree(folder, ignore_errors=True)
    aside.rename(folder)


if __name__ == "__main__":
    main()
