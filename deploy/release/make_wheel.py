#!/usr/bin/env python3
"""Makes a release's wheel, a package that pip installs.

    deploy/release/make_wheel.py PACKAGE WHEEL --version VERSION --time EPOCH [--lock update|ignore]

PACKAGE was made by deploy/package.sh, WHEEL is named by wheel_name.py. The package dapd in the wheel has the modules
of deploy/python/dapd, bin/ (launchers), libexec/ (programs), lib/ (the libraries that they load, except those of
torch and those that every Linux with the C library of the wheel's tag has), configs/ and demo/. The licences and the
list of parts are where PEP 639 and PEP 770 require them. The same PACKAGE and commit give the same bytes. The
program must run on the machine that PACKAGE was compiled on. Its Debian packages must match debian.lock unless
--lock says to write the lock or to ignore it.
"""

import argparse
import base64
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

from claims import Claims, claim_kernels, claim_wheel_libraries, owner_of_library, take_system_libraries
from licences import SOURCES_AND_TERMS, write_licences
from list_of_parts import write_list
from lock import check_lock
from parts import Unknown, wheel_names, wheels
from wheel_name import wheel_tag, wheel_version

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ("dapd", "dapd-rollout", "dapd-teacher", "dapd-trainer")
# The only package whose libraries are shipped; the environment has the libraries of torch and NVIDIA.
SHIPPED_WHEEL = "pyarrow"
# Libraries that every machine of the tag has, and that torch relies on as well: glibc and GCC's libraries. The
# machine's are never older.
PLATFORM = re.compile(r"libc6|libgcc-s\d+|libstdc\+\+\d+")
LIMIT = 100 * 10**6

DESCRIPTION = """\
DAPD (Dual-Anchored Policy Distillation) fine-tunes a language model on its own answers. This package has the programs (the command `dapd` and three
services), their configurations, a demonstration that trains on a CPU in minutes, and a Python module for notebooks and scripts:

    python -m dapd.demonstrate
    dapd run demonstration/laboratory.yaml

LibTorch and CUDA are those of the `torch` in the same environment, a CPU build or a CUDA build.
"""


def torch_series():
    """Returns the series of the torch that deploy/requirements.txt pins, such as '2.11'."""
    return re.search(r"^torch==(\d+\.\d+)\.", (ROOT / "deploy/requirements.txt").read_text(), re.MULTILINE)[1]


def copy_from_commit(path, target):
    """Copies a folder of the repository as the commit has it; other files there are ignored."""
    target.mkdir(parents=True)
    archive = subprocess.run(["git", "-C", ROOT, "archive", f"HEAD:{path}"], capture_output=True, check=True)
    subprocess.run(["tar", "--extract", "--file", "-", "--directory", target], input=archive.stdout, check=True)


def copy_programs(package, root):
    launcher = (ROOT / "deploy/release/launch_beside_torch.sh").read_text().replace("TORCH_SERIES", torch_series())
    for name in ("bin", "libexec", "lib"):
        (root / name).mkdir()
    for program in PROGRAMS:
        shutil.copy(package / "bin" / program, root / "libexec")
        (root / "bin" / program).write_text(launcher)
        (root / "bin" / program).chmod(0o755)


def copy_libraries(package, root, site_packages):
    """Copies the libraries of SHIPPED_WHEEL and our own."""
    names = wheel_names(ROOT / "deploy/requirements.txt") + wheel_names(ROOT / "deploy/requirements-cuda.txt")
    found = wheels(names, site_packages)
    for library in sorted((package / "lib").iterdir()):
        if library.name == "libdapd_cuda.so" or owner_of_library(library.name, found).metadata["Name"] == SHIPPED_WHEEL:
            shutil.copy(library, root / "lib")


def find_parts(package, root, site_packages):
    claims = Claims()
    claim_wheel_libraries(claims, root, [SHIPPED_WHEEL], site_packages)
    claim_kernels(claims, root)
    take_system_libraries(claims, root, [root / "lib", package / "lib"], lambda name: None if PLATFORM.fullmatch(name) else "lib")
    return claims.sorted()


def write_metadata(info, version):
    licence_files = sorted(str(path.relative_to(info / "licenses")) for path in (info / "licenses").rglob("*") if path.is_file())
    lines = ["Metadata-Version: 2.4", "Name: dapd", f"Version: {wheel_version(version)}",
             "Summary: Fine-tunes language models on their own answers (Dual-Anchored Policy Distillation)",
             "Classifier: Environment :: Console", "Classifier: Environment :: GPU :: NVIDIA CUDA :: 13", "Classifier: Operating System :: POSIX :: Linux",
             "Classifier: Programming Language :: C++", "Classifier: Programming Language :: Python :: 3",
             "Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence", "Classifier: Typing :: Typed",
             "Requires-Python: >=3.10", f"Requires-Dist: torch=={torch_series()}.*",
             "Provides-Extra: tables", 'Requires-Dist: pyarrow; extra == "tables"',
             *(f"License-File: {name}" for name in licence_files), "Description-Content-Type: text/markdown"]
    (info / "METADATA").write_text("\n".join(lines) + "\n\n" + DESCRIPTION)
    (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: dapd-make-wheel\nRoot-Is-Purelib: false\nTag: {wheel_tag()}\n")
    entries = "".join(f"{program} = dapd.programs:{program.replace('-', '_')}\n" for program in PROGRAMS)
    (info / "entry_points.txt").write_text(f"[console_scripts]\n{entries}")


def lay_out(tree, options, site_packages):
    """Fills the folder `tree` with the content of the wheel, except RECORD; returns its dist-info folder."""
    root, info = tree / "dapd", tree / f"dapd-{wheel_version(options.version)}.dist-info"
    copy_from_commit("deploy/python/dapd", root)
    copy_from_commit("configs", root / "configs")
    copy_from_commit("deploy/models/laboratory", root / "demo/laboratory")
    shutil.copytree(options.package / "demo/tiny-qwen3", root / "demo/tiny-qwen3")
    copy_programs(options.package, root)
    copy_libraries(options.package, root, site_packages)
    parts = find_parts(options.package, root, site_packages)
    check_lock(parts, options.lock)
    licences = info / "licenses/licences"
    write_licences(parts, licences)
    (licences / "README").write_text(
        "A folder for each part of this package, with the licence that its makers give it; ../../sboms/dapd.cdx.json says which files are whose.\n" +
        SOURCES_AND_TERMS)
    (info / "sboms").mkdir()
    write_list(info / "sboms/dapd.cdx.json", root, parts, version=options.version, flavour="wheel", time=options.time)
    write_metadata(info, options.version)
    return info


def record_line(name, data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


def write_wheel(tree, info, path, epoch):
    """Zips the tree: all times are `epoch`, files are sorted by name with dist-info last, and of the modes only the
    executable bit is kept. The file is written aside and renamed."""
    record_name = f"{info.name}/RECORD"
    files = sorted((file for file in tree.rglob("*") if file.is_file()), key=lambda file: (file.is_relative_to(info), str(file.relative_to(tree))))
    date = time.gmtime(max(epoch, 315532800))[:6]  # zip begins in 1980
    record = ""
    aside = path.with_name(f"{path.name}.tmp")
    with zipfile.ZipFile(aside, "w", zipfile.ZIP_DEFLATED) as archive:

        def add(name, data, executable):
            entry = zipfile.ZipInfo(name, date)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # the modes below are Unix modes
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            archive.writestr(entry, data)

        for file in files:
            name, data = str(file.relative_to(tree)), file.read_bytes()
            add(name, data, os.access(file, os.X_OK) and file.parent.name in ("bin", "libexec", "lib"))
            record += record_line(name, data)
        add(record_name, f"{record}{record_name},,\n".encode(), False)
    aside.rename(path)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("package", type=pathlib.Path)
    arguments.add_argument("wheel", type=pathlib.Path)
    arguments.add_argument("--version", required=True)
    arguments.add_argument("--time", type=int, required=True, help="seconds since 1970, of the commit")
    arguments.add_argument("--site-packages", type=pathlib.Path, help="of the environment that PACKAGE's libraries are from")
    arguments.add_argument("--lock", choices=("obey", "update", "ignore"), default="obey")
    options = arguments.parse_args()
    site_packages = options.site_packages or next((ROOT / ".deps/venv/lib").glob("python3*/site-packages"))
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder)
        try:
            info = lay_out(tree, options, site_packages)
        except Unknown as problem:
            print(f"make_wheel.py: {problem}", file=sys.stderr)
            return 1
        write_wheel(tree, info, options.wheel, options.time)
    size = options.wheel.stat().st_size
    print(f"{options.wheel.name}: {size / 1e6:.1f} MB")
    if size > LIMIT:
        options.wheel.unlink()
        print(f"make_wheel.py: {size} bytes are more than the {LIMIT} that a wheel may have", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
