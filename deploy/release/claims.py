"""Fills a release's lib/ with the libraries that its programs load from the machine that compiled them, and records the
package of each file."""

import os
import shutil
import subprocess

from parts import COMPILED_IN, Unknown, debian_part, kernel_part, owners, system_libraries, wheel_part, wheels

OWN_LIBRARIES = {"libdapd_cuda.so"}


class Claims:
    """The parts of a release, each with its files."""

    def __init__(self):
        self.parts = {}

    def add(self, part, file=None):
        kept = self.parts.setdefault((part.kind, part.name), part)
        if file is not None:
            kept.files.append(file)

    def sorted(self):
        return sorted(self.parts.values(), key=lambda part: (part.kind, part.name))


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def owner_of_library(name, found):
    """Returns, of `found` (the result of wheels()), the distribution that the library `name` came with."""
    distribution = next((one for one, libraries in found if name in libraries), None)
    if distribution is None:
        raise Unknown(f"lib/{name} is not in any wheel of deploy/requirements.txt or deploy/requirements-cuda.txt")
    return distribution


def claim_wheel_libraries(claims, root, names, site_packages):
    """Claims the files in root/lib that came with Python wheels of these names."""
    found = wheels(names, site_packages)
    for path in sorted((root / "lib").iterdir()):
        if path.is_file() and path.name not in OWN_LIBRARIES:
            claims.add(wheel_part(owner_of_library(path.name, found)), f"lib/{path.name}")


def take_system_libraries(claims, root, folders, place_of, also=None):
    """Copies the libraries that the files of root/libexec and root/lib load from this machine, except those that
    `folders` contain. `place_of` returns the folder below `root` for the libraries of a Debian package, or None to
    leave them out. `also` has further libraries, name -> path."""
    elves = [path for place in ("libexec", "lib") for path in sorted((root / place).iterdir()) if path.is_file() and is_elf(path)]
    taken = {**(also or {}), **system_libraries(elves, folders)}
    packages = owners(taken.values())
    parts = {package: debian_part(package) for package in sorted({*packages.values(), *COMPILED_IN}) if place_of(package)}
    for name, path in taken.items():
        package = packages[path]
        if package not in parts:
            continue
        place = place_of(package)
        shutil.copy(os.path.realpath(path), root / place / name)
        claims.add(parts[package], f"{place}/{name}")
    for package in COMPILED_IN:
        claims.add(parts[package])


def claim_kernels(claims, root):
    """Claims the source distribution whose kernels are compiled into the CUDA backend, if they are."""
    backend = root / "lib/libdapd_cuda.so"
    if backend.exists() and b"DapdCudaFlashAttention3Forward" in backend.read_bytes():
        claims.add(kernel_part())


def c_library():
    """Returns glibc's package, and its shared libraries by name, with the loader."""
    libc = system_libraries(["/bin/true"], [])["libc.so.6"]
    package = owners([libc])[libc]
    listed = subprocess.run(["dpkg-query", "--listfiles", package], capture_output=True, text=True, check=True).stdout.split()
    libraries = {os.path.basename(path): path for path in listed
                 if ".so" in os.path.basename(path) and "/gconv/" not in path and "/audit/" not in path and not path.startswith("/lib64/")}
    return package, {name: path for name, path in libraries.items() if os.path.isfile(path) and is_elf(path)}


def glibc_version():
    """Returns the glibc version of this machine, such as '2.36'."""
    return subprocess.run(["getconf", "GNU_LIBC_VERSION"], capture_output=True, text=True, check=True).stdout.split()[1]
