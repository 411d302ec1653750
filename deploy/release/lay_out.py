#!/usr/bin/env python3
"""Lays out the content of a release's tarball.

    deploy/release/lay_out.py PACKAGE FOLDER --flavour cpu|cuda --version VERSION --time EPOCH [--lock update|ignore]

PACKAGE was made by deploy/package.sh. FOLDER, which must not exist yet, gets: bin/ (launchers), libexec/ (programs),
lib/ (all libraries that they load; lib/glibc/ has the C library), configs/, demo/, docs/, dashboards/, deploy/ (what
a run needs beside its programs), licences/, and parts.cdx.json, the list of parts as CycloneDX 1.6. The program must
run on the machine that PACKAGE was compiled on. Its Debian packages must match debian.lock unless --lock says
to write the lock or to ignore it.
"""

import argparse
import pathlib
import shutil
import subprocess
import sys

from claims import Claims, c_library, claim_kernels, claim_wheel_libraries, glibc_version, take_system_libraries
from licences import SOURCES_AND_TERMS, write_licences
from list_of_parts import write_list
from lock import check_lock
from parts import Unknown, wheel_names

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The documents and scripts of the repository that are useful without its sources.
TAKEN = ["README.md", "docs", "dashboards", "deploy/fetch.sh", "deploy/fetch_from_hub.py", "deploy/follow.py", "deploy/make_certificates.sh",
         "deploy/slurm", "deploy/requirements.txt", "deploy/requirements-copy.txt", "deploy/requirements-follow.txt",
         "deploy/requirements-grading.txt"]


def copy_programs(package, folder):
    launcher = (ROOT / "deploy/release/launch.sh").read_text().replace("GLIBC_VERSION", glibc_version())
    for name in ("bin", "libexec", "lib/glibc"):
        (folder / name).mkdir(parents=True)
    for program in sorted((package / "bin").iterdir()):
        shutil.copy(program, folder / "libexec")
        (folder / "bin" / program.name).write_text(launcher)
        (folder / "bin" / program.name).chmod(0o755)
    for library in sorted((package / "lib").iterdir()):
        shutil.copy(library, folder / "lib")
    for name in ("configs", "demo"):
        shutil.copytree(package / name, folder / name)


def copy_repository(folder):
    """Copies the files of the commit; other files in these folders are ignored."""
    archive = subprocess.run(["git", "-C", ROOT, "archive", "HEAD", "--", *TAKEN], capture_output=True, check=True)
    subprocess.run(["tar", "--extract", "--file", "-", "--directory", folder], input=archive.stdout, check=True)


def copy_licences(parts, folder):
    write_licences(parts, folder / "licences")
    (folder / "licences/README").write_text(
        "A folder for each part of this release, with the licence that its makers give it; ../parts.cdx.json says which files are whose.\n" +
        SOURCES_AND_TERMS)


def find_parts(folder, site_packages):
    """Fills lib/ with the libraries that the programs load from this machine; returns the package of each."""
    claims = Claims()
    claim_wheel_libraries(claims, folder, wheel_names(ROOT / "deploy/requirements.txt") + wheel_names(ROOT / "deploy/requirements-cuda.txt"), site_packages)
    claim_kernels(claims, folder)
    c_package, c_libraries = c_library()
    take_system_libraries(claims, folder, [folder / "lib"], lambda package: "lib/glibc" if package == c_package else "lib", c_libraries)
    (folder / "lib/glibc" / "ld-linux-x86-64.so.2").chmod(0o755)
    return claims.sorted()


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("package", type=pathlib.Path)
    arguments.add_argument("folder", type=pathlib.Path)
    arguments.add_argument("--flavour", choices=("cpu", "cuda"), required=True)
    arguments.add_argument("--version", required=True)
    arguments.add_argument("--time", type=int, required=True, help="seconds since 1970, of the commit")
    arguments.add_argument("--site-packages", type=pathlib.Path, help="of the environment that PACKAGE's libraries are from")
    arguments.add_argument("--lock", choices=("obey", "update", "ignore"), default="obey")
    options = arguments.parse_args()
    folder = options.folder.absolute()
    folder.mkdir(parents=True)
    site_packages = options.site_packages or next((ROOT / ".deps/venv/lib").glob("python3*/site-packages"))
    try:
        copy_programs(options.package, folder)
        copy_repository(folder)
        parts = find_parts(folder, site_packages)
        check_lock(parts, options.lock)
        copy_licences(parts, folder)
    except Unknown as problem:
        print(f"lay_out.py: {problem}", file=sys.stderr)
        return 1
    write_list(folder / "parts.cdx.json", folder, parts, version=options.version, flavour=options.flavour, time=options.time)
    return 0


if __name__ == "__main__":
    sys.exit(main())
