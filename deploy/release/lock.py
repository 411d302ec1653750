"""Pins what a release's bytes depend on beside the commit: the Debian packages that it contains, and what compiled it.

deploy/requirements*.txt pin the rest, nvcc among it. Debian's mirrors replace a package with every update of a release; https://snapshot.debian.org/ keeps all.
"""

import subprocess

from parts import dpkg_field

# What compiles, what headers it reads, what packs.
TOOLS = ("binutils", "cmake", "cpp-12", "g++-12", "gcc-12", "gzip", "libabsl-dev", "libc6-dev", "libcurl4-openssl-dev", "libgcc-12-dev", "libgrpc++-dev",
         "libgrpc-dev", "libicu-dev", "libprotobuf-dev", "libssl-dev", "libstdc++-12-dev", "libxxhash-dev", "libyaml-cpp-dev", "ninja-build",
         "prometheus-cpp-dev", "protobuf-compiler", "protobuf-compiler-grpc", "python3.11", "tar", "zlib1g-dev")


def version(package):
    try:
        return dpkg_field(package, "${Version}")
    except subprocess.CalledProcessError:
        return "none"


def present(parts):
    """Of this machine: name -> version."""
    found = {part.name: part.version for part in parts if part.kind == "deb"}
    return found | {name: version(name) for name in TOOLS}


def update(path, versions):
    """What the other flavour has beside these stays."""
    versions = read(path) | versions
    path.write_text("# What deploy/release.sh compiles with and packs; made by its --update-lock.\n" +
                    "".join(f"{name} {version}\n" for name, version in sorted(versions.items())))


def read(path):
    lines = path.read_text().splitlines() if path.exists() else []
    return dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))


def differences(versions, locked):
    """A line for each that is here in another version than in the lock, or that the lock does not name."""
    return [f"{name} {version}, locked: {locked.get(name, 'not named')}" for name, version in sorted(versions.items()) if locked.get(name) != version]
