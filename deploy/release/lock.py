"""Pins what a release's bytes depend on beside the commit: the Debian packages that it contains, and the tools that
compiled it.

deploy/requirements*.txt pin the rest, nvcc included. Debian's mirrors replace a package with every update of a
release; https://snapshot.debian.org/ keeps all versions.
"""

import pathlib
import subprocess
import sys

from parts import Unknown, dpkg_field

LOCK = pathlib.Path(__file__).with_name("debian.lock")

# The compilers, the packages of headers, and the packers.
TOOLS = ("binutils", "cmake", "cpp-12", "g++-12", "gcc-12", "gzip", "libabsl-dev", "libc6-dev", "libcpp-httplib-dev", "libcurl4-openssl-dev",
         "libgcc-12-dev", "libgrpc++-dev", "libgrpc-dev", "libicu-dev", "libprotobuf-dev", "libssl-dev", "libstdc++-12-dev", "libxxhash-dev", "libyaml-cpp-dev", "ninja-build",
         "prometheus-cpp-dev", "protobuf-compiler", "protobuf-compiler-grpc", "python3.11", "tar", "zlib1g-dev")


def version(package):
    try:
        return dpkg_field(package, "${Version}")
    except subprocess.CalledProcessError:
        return "none"


def present(parts):
    """Returns the packages of this machine: name -> version."""
    found = {part.name: part.version for part in parts if part.kind == "deb"}
    return found | {name: version(name) for name in TOOLS}


def update(path, versions):
    """Updates these packages; further packages of the other flavour stay."""
    versions = read(path) | versions
    path.write_text("# What deploy/release.sh compiles with and packs; made by its --update-lock.\n" +
                    "".join(f"{name} {version}\n" for name, version in sorted(versions.items())))


def read(path):
    lines = path.read_text().splitlines() if path.exists() else []
    return dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))


def differences(versions, locked):
    """Returns a line for each package whose version differs from the lock, or that the lock does not name."""
    return [f"{name} {version}, locked: {locked.get(name, 'not named')}" for name, version in sorted(versions.items()) if locked.get(name) != version]


def check_lock(parts, what):
    """Compares the parts and this machine's tools with debian.lock. `what` is "obey" (raises Unknown if they differ),
    "update" (writes the file anew) or "ignore" (prints the differences and continues)."""
    versions = present(parts)
    if what == "update":
        update(LOCK, versions)
    problems = differences(versions, read(LOCK))
    if not problems:
        return
    text = "this machine has different packages from deploy/release/debian.lock:\n  " + "\n  ".join(problems)
    if what != "ignore":
        raise Unknown(f"{text}\nInstall those, or take these with --update-lock and commit the file")
    print(f"{text}\nThis release cannot be reproduced from its commit.", file=sys.stderr)
