"""Finds out what the pack can use on this machine: loader, torch, libraries, peers, the GPU.

examine() raises Unusable if no program of the pack can run here. A machine without a usable GPU gives the answer
"no_gpu", because everything else can still be checked there.
"""

import concurrent.futures
import glob
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys

import elf

OLDEST_DRIVER = 580
LOWEST_CAPABILITY = (8, 0)
PROBE = """
import json, torch
facts = {"version": torch.__version__, "cuda": torch.version.cuda, "folder": torch.__path__[0]}
facts["libstdc++"] = next((line.split()[-1] for line in open("/proc/self/maps") if "/libstdc++.so.6" in line), None)
try:
    torch.cuda.init()
    of = torch.cuda.get_device_properties(0)
    facts["gpu"] = {"name": of.name, "bytes": of.total_memory, "capability": [of.major, of.minor], "processors": of.multi_processor_count,
                    "count": torch.cuda.device_count()}
except Exception as error:
    facts["no_gpu"] = str(error).strip().splitlines()[0]
print(json.dumps(facts))
"""
# The first code of each peer that a row uses.
PEERS = {"transformers": "from transformers import AutoModelForCausalLM, AutoTokenizer; import transformers.models.qwen3.modeling_qwen3",
         "peft": "from peft import LoraConfig, PeftModel, get_peft_model",
         "liger-kernel": "from liger_kernel.ops import LigerFusedLinearJSDFunction"}


# Time limit of one question: a driver that hangs never answers.
SECONDS = 120


class Unusable(Exception):
    """Nothing of the pack can run here; the text says why and what to do."""


def ask(command, env=None):
    """Returns the ended process with its texts. A process that did not end in time counts as failed and says so on
    stderr."""
    try:
        return subprocess.run(command, capture_output=True, text=True, env=env, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"no answer within {SECONDS} s")


def python(code, path=()):
    """Runs code in a new Python, with the folders `path` in front of its own packages."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([*map(str, path), *filter(None, [os.environ.get("PYTHONPATH")])])
    return ask([sys.executable, "-c", code], environment)


def last_line(text):
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no output")


def check_loader(manifest):
    """Returns glibc's version. If it is older than the glibc that the programs were linked against, no library of the
    pack can help."""
    if platform.machine() != "x86_64":
        raise Unusable(f"the programs are for x86_64, and this machine is {platform.machine()}")
    try:
        name, version = os.confstr("CS_GNU_LIBC_VERSION").split()
    except (ValueError, AttributeError):
        raise Unusable("this machine's C library is not the GNU one, which the programs and torch's wheels need") from None
    if elf.version_key(version) < elf.version_key(manifest["needs"]["GLIBC"]):
        raise Unusable(f"this machine has {name} {version}, and the programs need {manifest['needs']['GLIBC']}: build and pack on a machine with {name} "
                       f"{version} or older, or run this on a newer release (Debian 12, Ubuntu 22.04.5 or 24.04)")
    return version


def check_torch(manifest):
    """Returns what torch says about itself. C++ programs fit only the release that they were built with."""
    probe = python(PROBE)
    if probe.returncode != 0:
        raise Unusable(f"{sys.executable} cannot import torch: {last_line(probe.stderr)}")
    facts = json.loads(probe.stdout.splitlines()[-1])
    release = facts["version"].split("+")[0]
    if release.split(".")[:2] != manifest["torch"].split(".")[:2] or (facts["cuda"] or "").split(".")[0] != manifest["cuda"].split(".")[0]:
        raise Unusable(f"{sys.executable} has torch {facts['version']} (CUDA {facts['cuda'] or 'none'}), and the programs are built with {manifest['torch']} "
                       f"(CUDA {manifest['cuda']}): name a Python that has it with DAPD_PYTHON, or build and pack with this one's release")
    return facts


def library_path(tree, manifest, torch):
    """Returns the folders that programs search, in order. The pack's compiler libraries come in only if this machine
    has none, or older ones."""
    here = pathlib.Path(torch["folder"]).resolve()
    chosen = tree / "libraries-chosen"
    shutil.rmtree(chosen, ignore_errors=True)
    chosen.mkdir()
    own = torch["libstdc++"]
    if own is None or elf.version_key(elf.provided_version(own, "GLIBCXX")) < elf.version_key(manifest["needs"]["GLIBCXX"]):
        take = ["libstdc++.so.6", "libgcc_s.so.1"]
    else:
        (chosen / "libstdc++.so.6").symlink_to(own)
        take = []
    if not (here / "lib/libgomp.so.1").exists():
        take.append("libgomp.so.1")
    for name in take:
        (chosen / name).symlink_to(tree / "libraries-of-the-compiler" / name)
    nvidia = sorted(glob.glob(f"{here.parent}/nvidia/*/lib"))
    return [chosen, tree / "libraries", here / "lib", *nvidia]


def check_links(tree, names):
    """Lets the loader resolve every symbol of every program, as it does when they start."""
    paths = os.pathsep.join([(tree / "library_path").read_text(), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
    environment = {**os.environ, "LD_LIBRARY_PATH": paths, "LD_TRACE_LOADED_OBJECTS": "1", "LD_WARN": "yes", "LD_BIND_NOW": "yes"}
    missing, unresolved = set(), set()
    programs = [tree / "programs/bin" / name for name in names]

    def load(file):
        # A library is not a program, but the loader takes both.
        command = [file] if file in programs else ["/lib64/ld-linux-x86-64.so.2", file]
        return file, ask(command, environment)

    # They run at the same time, because each looks up every symbol of a gigabyte of libraries.
    with concurrent.futures.ThreadPoolExecutor() as pool:
        loaded = list(pool.map(load, [*programs, tree / "programs/lib/libdapd_cuda.so"]))
    for file, result in loaded:
        text = result.stdout + result.stderr
        missing |= {f"{name} is not found" for name in re.findall(r"(\S+) => not found", text)}
        unresolved |= {f"{pathlib.Path(path).name} misses {symbol}" for symbol, path in re.findall(r"undefined symbol: (\S+?),?\s+\((\S+)\)", text)
                       if path.startswith(f"{tree}/")}
        unresolved |= {line.split(": ", 1)[1] for line in text.splitlines() if "version `" in line}
        if result.returncode != 0 and not missing | unresolved:
            unresolved.add(f"{file.name}: {last_line(text)}")
    # A symbol that belongs to a missing library adds nothing to the message.
    problems = sorted(missing or unresolved)
    if problems:
        raise Unusable("the programs do not fit the libraries of this machine: " + "; ".join(problems[:4])
                       + (f"; and {len(problems) - 4} more" if len(problems) > 4 else "") + ". They are built with torch's wheel of PyPI: install that one"
                       " here, or build and pack with the torch of this machine")


def driver():
    """Returns the NVIDIA driver's version, or None."""
    try:
        return re.search(r"(\d+\.\d+(\.\d+)?)", pathlib.Path("/proc/driver/nvidia/version").read_text())[1]
    except (OSError, TypeError):
        pass
    if shutil.which("nvidia-smi") is None:
        return None
    result = ask(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    return result.stdout.split()[0] if result.returncode == 0 and result.stdout.strip() else None


def nvidia_tool(name, toolkits="/usr/local/cuda*"):
    """Returns one of NVIDIA's tools (compute-sanitizer, ncu), or None. Toolkits and Python packages install them
    outside of PATH."""
    roots = [*filter(None, [os.environ.get("CUDA_HOME")]), *sorted(glob.glob(toolkits), reverse=True)]
    folders = [f"{root}/{part}" for root in roots for part in ("bin", name)]
    folders += sorted(glob.glob("/opt/nvidia/nsight-compute/*"), reverse=True)
    for path in sys.path:
        folders += sorted(glob.glob(f"{glob.escape(path)}/nvidia/*/bin"))
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", os.defpath), *folders]))


def why_no_gpu(torch, version):
    """Returns None if there is a GPU that the programs can use. Where torch computes, the driver is new enough, or has
    CUDA's compatibility package."""
    if "gpu" not in torch and version and int(version.split(".")[0]) < OLDEST_DRIVER:
        return f"the driver is {version}, and CUDA 13 needs {OLDEST_DRIVER} or newer: {torch['no_gpu']}"
    if "gpu" not in torch:
        return f"no CUDA device: {torch['no_gpu']} (driver: {version or 'none'})"
    if tuple(torch["gpu"]["capability"]) < LOWEST_CAPABILITY:
        return f"{torch['gpu']['name']} has compute capability {torch['gpu']['capability']}, and the kernels are for 8.0 and newer"
    return None


def find_peers(tree):
    """Returns the folders of packages from which the most peers can be imported, and for each peer its version or why
    it is left out."""
    peers, numpy, liger = (tree / "peers" / name for name in ("peers", "numpy", "liger"))
    best = None
    # The pack's own packages come first, with this machine's numpy if that fits; then this machine's packages.
    for path in [peers, numpy], [peers], [liger], []:
        if not all(folder.exists() for folder in path):
            continue
        found, left_out = {}, {}
        with concurrent.futures.ThreadPoolExecutor() as pool:
            results = pool.map(lambda peer: python(f"import importlib.metadata\n{peer[1]}\nprint(importlib.metadata.version('{peer[0]}'))", path), PEERS.items())
        for name, result in zip(PEERS, results):
            if result.returncode == 0:
                found[name] = result.stdout.split()[-1]
            else:
                left_out[name] = last_line(result.stderr)
        if best is None or len(found) > len(best[1]):
            best = path, found, left_out
        if not left_out:
            break
    return best


def find_packages(tree):
    """Checks with the loader that the programs find everything they need, and returns the peers that exist."""
    check_links(tree, sorted(path.name for path in (tree / "bin").iterdir()))
    path, found, left_out = find_peers(tree)
    return {"python_path": [str(folder) for folder in path], "peers": found, "peers_left_out": left_out}


def files_of(folders):
    """Returns what shows whether anything in the folders has changed."""
    return [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for folder in folders for path in sorted(folder.iterdir()) if path.is_file()]


def remembered(file, key, find):
    """Returns the result of find(), or its earlier result for the same key: find() loads gigabytes, and a machine may
    be paid by the second."""
    try:
        before = json.loads(file.read_text())
    except (OSError, ValueError):
        before = {}
    if before.get("key") != key:
        before = {"key": key, "found": find()}
        aside = file.with_suffix(".tmp")
        aside.write_text(json.dumps(before))
        aside.rename(file)
    return before["found"]


def examine(tree, work, manifest):
    """Returns all facts as a dictionary for the results; writes TREE/library_path for the programs."""
    facts = {"machine": platform.platform(), "glibc": check_loader(manifest), "python": f"{platform.python_version()} {sys.executable}", "cpus": os.cpu_count(),
             "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30), "disk_free_gib": shutil.disk_usage(work).free >> 30}
    torch = check_torch(manifest)
    facts.update(torch=torch["version"], driver=driver(), gpu=torch.get("gpu"), c_compiler=shutil.which("cc") or shutil.which("gcc"))
    libraries = [pathlib.Path(folder) for folder in library_path(tree, manifest, torch)]
    (tree / "library_path").write_text(os.pathsep.join(map(str, libraries)))
    key = [facts["python"], torch["version"], os.environ.get("PYTHONPATH"), os.environ.get("LD_LIBRARY_PATH"),
           files_of([*libraries, tree / "programs/bin", tree / "programs/lib"])]
    packages = remembered(tree / "packages.json", key, lambda: find_packages(tree))
    facts["programs"] = ask([tree / "bin/dapd", "--version"]).stdout.strip()
    facts.update(packages)
    facts["no_gpu"] = why_no_gpu(torch, facts["driver"])
    return facts
