"""Makes the pack. See pack.sh.

    pack.py PYTHON LEVEL MIB OUT [--ranks]

OUT gets run.sh, unpack.py, manifest.json and one xz file per part. Unpacked together they form a tree that looks
like the repository where tests read it, with programs in programs/, libraries in libraries/ and the peers in peers/.
"""

import concurrent.futures
import hashlib
import importlib.metadata
import io
import json
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

import elf
import nccl

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
PROGRAMS = ["dapd", "dapd-rollout", "dapd-teacher", "dapd-trainer",
            *(f"dapd_{name}_benchmark" for name in ("decode", "gpu_kernels", "loss", "scoring", "training"))]
# Every machine has the system's libraries, and torch brings everything below its own folder.
OF_THE_SYSTEM = re.compile(r"(ld-linux-x86-64|lib(c|m|dl|rt|pthread|util|resolv|anl|nsl|mvec|cuda))\.so")
# These are taken from the pack only if the machine has none, or older ones.
OF_THE_COMPILER = ("libstdc++.so.6", "libgcc_s.so.1", "libgomp.so.1")
FILES = ["configs/qwen3-1.7b.yaml", "deploy/models/laboratory", "tests/benchmarks", "tests/gpu", "tests/oracle/make_qwen_tokenizer.py",
         "tests/oracle/reference_objective.py"]
# The rows run Qwen3; importing transformers and peft loads the others.
MODELS = {"__init__.py", "auto", "bloom", "deprecated", "encoder_decoder", "gemma", "gemma2", "llama", "mistral", "qwen2", "qwen3", "timm_backbone"}
DICTIONARY_BYTES = 32 << 20
# A pack for the stage `ranks` has these programs and no peers; its NCCL is for the H100 and the H200.
SERVICES = PROGRAMS[:4]
RANKS_CAPABILITY = [9, 0]
# The platform tags that wheels of manylinux may have; pip takes no range.
PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in (28, 27, 26, 24, 18, 17, 12, 5)] + ["manylinux2014_x86_64", "manylinux1_x86_64"]


def gpu_tests():
    """Returns the test programs with a test that skips itself if there is no CUDA device."""
    found = set()
    for path in sorted((ROOT / "tests").rglob("*_test.cc")):
        text = path.read_text()
        skips_itself = "GTEST_SKIP" in text and "DeviceOf(DeviceChoice::kCuda)" in text
        if not skips_itself and '#include "tests/fakes/cuda_precisions.h"' not in text:
            continue
        lists = ROOT / path.parent.relative_to(ROOT / "tests") / "CMakeLists.txt"
        listed = lists.read_text() if lists.exists() else ""
        modules = [module for module in re.findall(r"dapd_module\(([^)]*)\)", listed) if path.name in module.split()]
        if not modules:
            sys.exit(f"{path.relative_to(ROOT)} needs a GPU, and {lists.relative_to(ROOT)} does not say which program it is in")
        found |= {f"dapd_{module.split()[0]}_test" for module in modules}
    return sorted(found)


def require(paths):
    missing = [str(path.relative_to(ROOT)) for path in paths if not path.exists()]
    if missing:
        sys.exit(f"not built: {', '.join(missing)}; run deploy/install.sh --tests and deploy/build.sh --tests")


def collect_programs(folder, programs):
    """Collects stripped programs, tests and the CUDA backend in the layout of placement.cc: lib/ beside bin/."""
    library = BUILD / "lib/libdapd_cuda.so"
    require([*(BUILD / "bin" / name for name in programs), library])
    if b"DapdCudaSample\0" not in library.read_bytes():
        sys.exit("build/lib/libdapd_cuda.so has no kernels of its own: build where nvcc 13 is (docs/gpu.md)")
    sources = {**{f"programs/bin/{name}": BUILD / "bin" / name for name in programs}, "programs/lib/libdapd_cuda.so": library}
    for name, source in sources.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["strip", "--strip-unneeded", "-o", folder / name, source], check=True)
    (folder / "bin").mkdir()
    for name in programs:
        (folder / "bin" / name).symlink_to("../tests/gpu/with_libraries.sh")
    return list(sources.values())


def collect_libraries(folder, sources, site):
    """Collects the libraries that the programs load, except torch's and those that every machine has."""
    found, missing = elf.loaded_libraries(sources)
    if missing:
        sys.exit(f"the programs do not find {', '.join(sorted(missing))}: run deploy/install.sh --tests and build again")
    for name, path in sorted(found.items()):
        path = os.path.realpath(path)
        if OF_THE_SYSTEM.match(name) or (path.startswith((f"{site}/torch/", f"{site}/nvidia/")) and name not in OF_THE_COMPILER):
            continue
        target = folder / ("libraries-of-the-compiler" if name in OF_THE_COMPILER else "libraries") / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
        subprocess.run(["strip", "--strip-unneeded", target], check=True)


def made_once(kind, sources, make):
    """Returns build/gpu-pack/KIND-..., which make(folder) fills unless it exists for the same content of the sources."""
    digest = hashlib.sha256(b"\0".join(source if isinstance(source, bytes) else source.read_bytes() for source in sources)).hexdigest()[:12]
    folder = BUILD / "gpu-pack" / f"{kind}-{digest}"
    if not folder.exists():
        aside = folder.with_suffix(".tmp")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        make(aside)
        aside.rename(folder)
    return folder


def write_tokenizer(folder):
    sys.path.insert(0, str(ROOT / "tests/oracle"))
    import make_qwen_tokenizer
    make_qwen_tokenizer.write(folder)


def install_peers(name, python):
    """Installs packages of requirements*.txt for another Python. Returns None and the reason if PyPI does not have
    them."""
    requirements = ROOT / "tests/gpu" / f"{name}.txt"

    def install(folder):
        platforms = [part for platform in PLATFORMS for part in ("--platform", platform)]
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--disable-pip-version-check", "--no-input", "--target",
                        folder, "--python-version", python, "--only-binary=:all:", *platforms, "--requirement", requirements],
                       check=True, capture_output=True, text=True)
        shutil.rmtree(folder / "bin", ignore_errors=True)

    try:
        return made_once(f"{name}-{python}", [requirements], install), None
    except subprocess.CalledProcessError as error:
        return None, next((line for line in reversed(error.stderr.splitlines()) if line.startswith("ERROR")), "pip failed")


def add_nccl(folder, python):
    """Writes the NCCL that joins several ranks on one GPU. Returns what the manifest says about it."""
    wheel, why = install_peers("requirements-nccl", python)
    if wheel is None:
        sys.exit(f"NCCL for several ranks on one GPU cannot be packed: {why}")
    major, minor = RANKS_CAPABILITY
    (folder / "nccl").mkdir(parents=True)
    nccl.keep_only(10 * major + minor, wheel / "nvidia/nccl/lib/libnccl.so.2", folder / "nccl/libnccl.so.2")
    return {"version": (ROOT / "tests/gpu/requirements-nccl.txt").read_text().split("==")[1].strip(), "capability": RANKS_CAPABILITY}


def link_liger(links, peers):
    """Links liger-kernel by itself: it is pure Python, and fits also where the other packages have another release."""
    links.mkdir()
    for path in peers.glob("liger_kernel*"):
        (links / path.name).symlink_to(f"../peers/{path.name}")
    return links


def is_left_out(inside):
    """Returns whether a pack leaves out a peer's file: its tests, and transformers' models that no row runs, which are
    most of its bytes."""
    model = inside[2] if len(inside) > 3 and inside[:2] == ("transformers", "models") else None
    return "tests" in inside or (model is not None and model not in MODELS)


def add(archive, folder, under=""):
    """Adds the files of a folder without owners or times of this machine."""
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder).parts
        if path.is_dir() and not path.is_symlink() or path.suffix == ".pyi" or "__pycache__" in inside or (under.startswith("peers") and is_left_out(inside)):
            continue
        entry = archive.gettarinfo(path, str(pathlib.PurePath(under) / path.relative_to(folder)))
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = ""
        if entry.isreg():
            with open(path, "rb") as file:
                archive.addfile(entry, file)
        else:
            archive.addfile(entry)


def compress(folders, level):
    """Writes one xz stream of a part's folders, each under its name."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for folder, under in folders:
            add(archive, folder, under)
    # Jumps in machine code compress better once their targets are absolute.
    dictionary = {"dict_size": DICTIONARY_BYTES} if level >= 6 else {}
    return lzma.compress(plain.getbuffer(), filters=[{"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "preset": level, **dictionary}])


def git(*arguments):
    result = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return result.stdout.strip() if result.returncode == 0 else ""


def fit(parts, needed, most):
    """Returns parts in the order of their value that have at most that many bytes together, and the parts that were
    left out."""
    kept, left_out, total = [], [], 0
    for name, content in parts:
        if total + len(content) <= most:
            kept.append((name, content))
            total += len(content)
        elif name in needed:
            sys.exit(f"the pack is too large even without peers: {name} has {len(content) / 2**20:.1f} MiB, and all may have {most >> 20}")
        else:
            left_out.append({"what": name, "why": f"its {len(content) / 2**20:.1f} MiB do not fit beside {total / 2**20:.1f} MiB"})
    return kept, left_out


def write(out, manifest, parts):
    """Writes into a temporary folder that then replaces OUT."""
    if out.exists() and any(out.iterdir()) and not (out / "manifest.json").exists():
        sys.exit(f"{out} is there and is no pack: name a folder that is empty or not there")
    aside = out.with_name(out.name + ".tmp")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    for name, content in parts:
        (aside / f"{name}.tar.xz").write_bytes(content)
        manifest["parts"].append({"file": f"{name}.tar.xz", "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()})
    (aside / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    for name in ("run.sh", "unpack.py"):
        shutil.copy(ROOT / "tests/gpu" / name, aside)
    shutil.rmtree(out, ignore_errors=True)
    aside.rename(out)


def main():
    python, level, most, out = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) << 20, pathlib.Path(sys.argv[4]).absolute()
    for_ranks = sys.argv[5:] == ["--ranks"]
    tests = [] if for_ranks else gpu_tests()
    site = pathlib.Path(importlib.metadata.distribution("torch").locate_file("")).resolve()
    with tempfile.TemporaryDirectory() as name:
        stage = pathlib.Path(name)
        sources = collect_programs(stage / "programs", SERVICES if for_ranks else PROGRAMS + tests)
        collect_libraries(stage / "libraries", sources, site)
        for path in FILES:
            source, target = ROOT / path, stage / "files" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
        contents = {"programs": [(stage / "programs", ""), (stage / "files", "")], "libraries": [(stage / "libraries", "")]}
        if not for_ranks:
            tokenizer = made_once("qwen-tokenizer", [ROOT / "tests/oracle/make_qwen_tokenizer.py"], write_tokenizer)
            contents["programs"].append((tokenizer, "qwen-tokenizer"))
        left_out = []
        if b"DapdCudaFlashAttention3Forward\0" not in (stage / "programs/programs/lib/libdapd_cuda.so").read_bytes():
            left_out.append({"what": "FlashAttention-3", "why": "build/lib/libdapd_cuda.so was built without it: deploy/install.sh --cuda"})
        of_nccl = None
        if for_ranks:
            of_nccl = add_nccl(stage / "ranks", python)
            contents["nccl"] = [(stage / "ranks", "")]
        for part, what in () if for_ranks else (("peers", "requirements"), ("numpy", "requirements-numpy")):
            folder, why = install_peers(what, python)
            if folder is None:
                left_out.append({"what": part, "why": why})
            else:
                contents[part] = [(folder, f"peers/{part}")]
        if "peers" in contents:
            contents["peers"].append((link_liger(stage / "liger", contents["peers"][0][0]), "peers/liger"))
        with concurrent.futures.ThreadPoolExecutor() as pool:
            parts = list(zip(contents, pool.map(lambda folders: compress(folders, level), contents.values())))
        packed = [path for part in ("programs", "libraries") for path in (stage / part).rglob("*") if path.is_file() and not path.is_symlink()]
        needs = {family: elf.needed_version(packed, family) for family in ("GLIBC", "GLIBCXX")}
    kept, no_room = fit(parts, ("programs", "libraries", "nccl"), most)
    torch = {key: re.search(rf"^{key}.*?= '(.*)'", (site / "torch/version.py").read_text(), re.MULTILINE)[1] for key in ("__version__", "cuda")}
    manifest = {"commit": git("describe", "--tags", "--always", "--dirty"), "torch": torch["__version__"].split("+")[0], "cuda": torch["cuda"],
                "python": python, "needs": needs, "tests": tests, "left_out": left_out + no_room, "parts": []}
    if of_nccl is not None:
        manifest["nccl"] = of_nccl
    write(out, manifest, kept)
    for part in manifest["parts"]:
        print(f"{part['file']:<20} {part['bytes'] / 2**20:6.1f} MiB")
    for missing in manifest["left_out"]:
        print(f"left out: {missing['what']} ({missing['why']})")
    print(f"{out}: {sum(path.stat().st_size for path in out.iterdir()) / 2**20:.1f} MiB, for glibc {needs['GLIBC']} or newer and torch {manifest['torch']}")


main()
