#!/usr/bin/env python3
"""Names a release's wheel.

    deploy/release/wheel_name.py VERSION      prints the file's name

VERSION is the first line of `dapd --version`: 0.1.0-55aa7a07abcd for a commit, 0.1.0-v0.1.0 for the commit that has
that tag. The platform tag follows from this machine, whose C library the programs are linked against.
"""

import re
import sys

from claims import glibc_version


def wheel_version(version):
    """Returns the version in the form of Python's packages (PEP 440): the commit is a local version, and the tag of a
    release adds nothing."""
    release, _, commit = version.partition("-")
    if commit in ("", release, f"v{release}"):
        return release
    # A commit of digits only would lose its leading zeros.
    commit = commit if commit.startswith("v") else f"g{commit}"
    return f"{release}+{re.sub('[^a-z0-9]+', '.', commit.lower())}"


def wheel_tag():
    return f"py3-none-manylinux_{glibc_version().replace('.', '_')}_x86_64"


def wheel_name(version):
    return f"dapd-{wheel_version(version)}-{wheel_tag()}.whl"


if __name__ == "__main__":
    print(wheel_name(sys.argv[1]))
