"""Says what programs and libraries for Linux need, according to binutils and the dynamic loader."""

import pathlib
import re
import subprocess


def version_key(version):
    """Sorts '2.9' before '2.36'."""
    return [int(part) for part in version.split(".")]


def newest(versions):
    return max(versions, key=version_key, default="0")


def needed_version(files, family):
    """Returns the newest version of `family` (GLIBC, GLIBCXX) that a symbol of the files needs."""
    listed = subprocess.run(["readelf", "--version-info", "--wide", *files], capture_output=True, text=True, check=True).stdout
    needs = [section for section in re.split(r"\nVersion (?=definition|needs|symbols)", listed) if section.startswith("needs")]
    return newest(re.findall(rf"Name: {family}_([0-9.]+)", "\n".join(needs)))


def provided_version(library, family):
    """Returns the newest version of `family` that a library names. It reads bytes, because a bare machine has no
    binutils."""
    return newest({found.decode() for found in re.findall(rb"\0" + family.encode() + rb"_([0-9.]+)(?=\0)", pathlib.Path(library).read_bytes())})


def loaded_libraries(files):
    """Returns the paths by name that the loader finds for the files, and the names that it does not find."""
    found, missing = {}, set()
    for line in subprocess.run(["ldd", *files], capture_output=True, text=True, check=True).stdout.splitlines():
        if match := re.match(r"\s+(\S+) => (/\S+) ", line):
            found[match[1]] = match[2]
        elif match := re.match(r"\s+(\S+) => not found", line):
            missing.add(match[1])
    return found, missing
