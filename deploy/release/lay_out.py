#!/usr/bin/env python3
"""Lays out what a release's tarball holds.

    deploy/release/lay_out.py PACKAGE FOLDER --flavour cpu|cuda --version VERSION --time EPOCH [--lock update|ignore]

PACKAGE was made by deploy/package.sh. FOLDER, which must not be there yet, becomes: bin/ (launchers), libexec/ (programs), lib/ (all that
they load, lib/glibc/ the C library), configs/, demo/, docs/, dashboards/, deploy/ (what a run needs beside its programs), licences/, and
parts.cdx.json, the list of parts as CycloneDX 1.6. Runs on the machine that PACKAGE was compiled on, whose Debian packages have to be those of
debian.lock unless --lock says to write it or to go on.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys

import lock
from list_of_parts import write_list
from parts import COMPILED_IN, Unknown, debian_part, owners, system_libraries, wheel_names, wheel_part, wheels

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOCK = ROOT / "deploy/release/debian.lock"
OWN_LIBRARIES = {"libdapd_cuda.so"}
# What documents and scripts of the repository are of use without its sources.
TAKEN = ["README.md", "docs", "dashboards", "deploy/fetch.sh", "deploy/fetch_from_hub.py", "deploy/follow.py", "deploy/make_certificates.sh",
         "deploy/slurm", "deploy/requirements.txt", "deploy/requirements-copy.txt", "deploy/requirements-follow.txt",
         "deploy/requirements-grading.txt"]


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def c_library():
    """The shared libraries of glibc's package, by name, the loader among them."""
    libc = system_libraries(["/bin/true"], [])["libc.so.6"]
    package = owners([libc])[libc]
    listed = subprocess.run(["dpkg-query", "--listfiles", package], capture_output=True, text=True, check=True).stdout.split()
    libraries = {os.path.basename(path): path for path in listed
                 if ".so" in os.path.basename(path) and "/gconv/" not in path and "/audit/" not in path and not path.startswith("/lib64/")}
    return package, {name: path for name, path in libraries.items() if os.path.isfile(path) and is_elf(path)}


def glibc_version():
    return subprocess.run(["getconf", "GNU_LIBC_VERSION"], capture_output=True, text=True, check=True).stdout.split()[1]


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
    """As the commit has it: what else lies there is nobody's business."""
    archive = subprocess.run(["git", "-C", ROOT, "archive", "HEAD", "--", *TAKEN], capture_output=True, check=True)
    subprocess.run(["tar", "--extract", "--file", "-", "--directory", folder], input=archive.stdout, check=True)


def copy_licences(parts, folder):
    for part in parts:
        own = folder / "licences" / f"{part.name}-{part.version}".replace(":", "_")
        own.mkdir(parents=True)
        for file in part.licence_files:
            target = own
            if str(file).startswith("/usr/share/common-licenses/"):
                target = folder / "licences/common-licences"
                target.mkdir(exist_ok=True)
            elif file.parent.name not in ("licenses", part.name):
                # Some wheels keep one file of a name in each of several folders.
                target = own / file.parent.name
                target.mkdir(exist_ok=True)
            shutil.copy(file, target / file.name)
    (folder / "licences/README").write_text(
        "A folder for each part of this release, with the licence that its makers give it; ../parts.cdx.json says which files are whose.\n"
        "Debian's copyright files refer to /usr/share/common-licenses, which is common-licences here.\n\n"
        "The sources of every Debian package, of the very version: `apt-get source NAME=VERSION` by the source package that the list names,\n"
        "or https://snapshot.debian.org/. Libraries under the LGPL are separate files in lib/: another build of one may take its place.\n"
        "For this repository's own programs no licence has been chosen yet.\n")


def find_parts(folder, site_packages):
    """Fills lib/ with what the programs load from this machine; returns whose everything is."""
    parts = {}

    def claim(part, file):
        parts.setdefault((part.kind, part.name), part).files.append(file)

    found = wheels(wheel_names(ROOT / "deploy/requirements.txt") + wheel_names(ROOT / "deploy/requirements-cuda.txt"), site_packages)
    wheel_libraries = sorted(path.name for path in (folder / "lib").iterdir() if path.is_file() and path.name not in OWN_LIBRARIES)
    for name in wheel_libraries:
        distribution = next((one for one, libraries in found if name in libraries), None)
        if distribution is None:
            raise Unknown(f"lib/{name} is not in any wheel of deploy/requirements.txt or deploy/requirements-cuda.txt")
        claim(wheel_part(distribution), f"lib/{name}")

    c_package, c_libraries = c_library()
    elves = [path for place in ("libexec", "lib") for path in sorted((folder / place).iterdir()) if path.is_file() and is_elf(path)]
    taken = {**c_libraries, **system_libraries(elves, [folder / "lib"])}
    packages = owners(taken.values())
    debian_parts = {package: debian_part(package) for package in sorted({*packages.values(), *COMPILED_IN})}
    for name, path in taken.items():
        package = packages[path]
        place = "lib/glibc" if package == c_package else "lib"
        shutil.copy(os.path.realpath(path), folder / place / name)
        claim(debian_parts[package], f"{place}/{name}")
    (folder / "lib/glibc" / "ld-linux-x86-64.so.2").chmod(0o755)
    for package in COMPILED_IN:
        parts["deb", package] = debian_parts[package]
    return sorted(parts.values(), key=lambda part: (part.kind, part.name))


def check_lock(parts, what):
    versions = lock.present(parts)
    if what == "update":
        lock.update(LOCK, versions)
    problems = lock.differences(versions, lock.read(LOCK))
    if not problems:
        return
    text = f"this machine has different packages from {LOCK.relative_to(ROOT)}:\n  " + "\n  ".join(problems)
    if what != "ignore":
        raise Unknown(f"{text}\nInstall those, or take these with --update-lock and commit the file")
    print(f"lay_out.py: {text}\nThis release cannot be reproduced from its commit.", file=sys.stderr)


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
    write_list(folder, parts, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
