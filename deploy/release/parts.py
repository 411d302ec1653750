"""Finds the parts of a release: the Debian package or Python wheel that each of its libraries came with, and its
licence."""

import dataclasses
import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "deploy"))
import fetch_flash_attention  # noqa: E402

COMMON_LICENCES = pathlib.Path("/usr/share/common-licenses")
# The programs contain code of these headers, which no library shows.
COMPILED_IN = ("libcli11-dev", "nlohmann-json3-dev")


class Unknown(Exception):
    """A file that nothing on this machine claims."""


@dataclasses.dataclass
class Part:
    name: str
    version: str
    kind: str  # deb or pypi
    licence: str  # as its makers write it; "" if they write none that programs can read
    licence_files: list  # on this machine
    source: str = ""  # for a Debian package: the source package and its version
    files: list = dataclasses.field(default_factory=list)  # in the release


def wheel_names(requirements):
    """Returns the distributions that a requirements file pins."""
    return re.findall(r"^([A-Za-z0-9_.-]+)==", pathlib.Path(requirements).read_text(), re.MULTILINE)


def wheels(names, site_packages):
    """Returns the installed distributions of these names with the names of their shared libraries."""
    found = []
    for distribution in importlib.metadata.distributions(path=[str(site_packages)]):
        if distribution.metadata["Name"].lower().replace("_", "-") in {name.lower().replace("_", "-") for name in names}:
            libraries = {path.name for path in distribution.files or [] if ".so" in path.name}
            found.append((distribution, libraries))
    return sorted(found, key=lambda pair: pair[0].metadata["Name"].lower())


def wheel_part(distribution):
    metadata = distribution.metadata
    licence = metadata["License-Expression"] or metadata["License"] or ""
    named = [path for path in distribution.files if re.match(r"(licen[cs]e|notice|copying)s?(\.(txt|md|rst))?$", path.name, re.IGNORECASE)]
    # A wheel's licences belong in its .dist-info; some wheels of NVIDIA have them elsewhere.
    chosen = [path for path in named if ".dist-info/" in str(path)] or named
    files = [pathlib.Path(distribution.locate_file(path)) for path in chosen]
    if not files:
        raise Unknown(f"{metadata['Name']} {distribution.version} contains no licence")
    return Part(metadata["Name"].lower().replace("_", "-"), distribution.version, "pypi", licence.split("\n")[0], sorted(files))


def kernel_part():
    """Returns the source distribution that has FlashAttention-3 and CUTLASS. It leaves FlashAttention-3's own licence out, which is
    therefore in this repository."""
    folder = ROOT / ".deps/flash-attention-3/licences"
    files = [*sorted(folder.glob("*.txt")), pathlib.Path(__file__).with_name("licences") / "flash-attention.txt"]
    if len(files) < 3:
        raise Unknown(f"{folder} lacks the licences of FlashAttention-3's source: deploy/install.sh --cuda")
    name, version = fetch_flash_attention.FILE.removesuffix(".tar.gz").rsplit("-", 1)
    return Part(name, version, "pypi", "BSD-3-Clause", files)


def dpkg_field(package, field):
    return subprocess.run(["dpkg-query", "--show", f"--showformat={field}", package], capture_output=True, text=True, check=True).stdout


def owners(libraries):
    """Returns the Debian package of each of these files. dpkg knows a file by the path that it had before /lib became a
    link."""
    spellings = {library: {path for one in (str(library), os.path.realpath(library)) for path in (one, one.removeprefix("/usr"))}
                 for library in libraries}
    paths = sorted(set().union(*spellings.values()))
    found = subprocess.run(["dpkg-query", "--search", *paths], capture_output=True, text=True).stdout
    packages = {path: names.split(",")[0].split(":")[0] for names, path in (line.split(": ", 1) for line in found.splitlines() if ": /" in line)}
    owned = {library: next((packages[path] for path in sorted(spelling) if path in packages), None) for library, spelling in spellings.items()}
    nobodys = sorted(str(library) for library, package in owned.items() if package is None)
    if nobodys:
        raise Unknown(f"these files belong to no Debian package, and a release must name the package of each file: {', '.join(nobodys)}")
    return owned


def declared_licence(copyright_text):
    """Returns the licence of `Files: *` from a copyright file in the machine-readable format."""
    for stanza in re.split(r"\n\s*\n", copyright_text):
        if re.search(r"^Files:\s*\*\s*$", stanza, re.MULTILINE):
            licence = re.search(r"^License:[ \t]*(\S.*)$", stanza, re.MULTILINE)
            return licence[1].strip() if licence else ""
    return ""


def debian_part(package):
    copyright_file = pathlib.Path("/usr/share/doc", package, "copyright")
    if not copyright_file.exists():
        raise Unknown(f"{copyright_file} is missing, and with it the licence of {package}: `apt-get install --reinstall {package}`")
    text = copyright_file.read_text(errors="replace")
    # The file refers to these texts, which every Debian machine has.
    named = sorted(set(re.findall(rf"{COMMON_LICENCES}/([A-Za-z0-9.+-]*[A-Za-z0-9])", text)))
    common = [COMMON_LICENCES / name for name in named if (COMMON_LICENCES / name).exists()]
    return Part(package, dpkg_field(package, "${Version}"), "deb", declared_licence(text), [copyright_file, *common],
                dpkg_field(package, "${source:Package} ${source:Version}"))


def system_libraries(files, folders):
    """Returns the libraries that ELF files load from this machine: name -> path. It leaves out the loader and
    everything in `folders`."""
    command = ["env", f"LD_LIBRARY_PATH={':'.join(map(str, folders))}", "ldd", *map(str, files)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    found = {}
    for line in lines:
        name, arrow, target = line.strip().partition(" => ")
        if not arrow or name.startswith("libcuda.so"):  # comes with the driver
            continue
        path = target.split(" (")[0]
        if path == "not found":
            raise Unknown(f"the programs load {name}, which this machine lacks; install the Debian package that it is in")
        if not any(path.startswith(f"{folder}/") for folder in folders):
            found[name] = path
    return found
