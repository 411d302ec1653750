"""Runs the pack of tests/gpu on a machine without the build's packages, up to the first operation that needs a GPU."""

import fcntl
import importlib.metadata
import json
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import pytest

from bare_machine import BareMachine, python_version
from debian_root import debian_root

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPU = ROOT / "tests/gpu"
sys.path.insert(0, str(GPU))

import elf  # noqa: E402
import machine  # noqa: E402
import nccl  # noqa: E402
import stage  # noqa: E402

MOST_BYTES = 50 * 2**20  # for a pack that is made for a machine with a GPU
LARGER = 1.4  # the compression level of these tests takes a tenth of the time and makes a pack larger by this factor
needs_backend = pytest.mark.skipif(not (ROOT / "build/lib/libdapd_cuda.so").exists(), reason="the build has no CUDA backend")
needs_root = pytest.mark.skipif(os.geteuid() != 0 or any(shutil.which(name) is None for name in ("debootstrap", "unshare", "ip")),
                                reason="needs root, debootstrap, unshare and ip")


@pytest.fixture(scope="module")
def pack(tmp_path_factory):
    """Makes the pack as for a machine with a GPU, but for the Python of this release's Debian and with less compression."""
    out = tmp_path_factory.mktemp("pack") / "out"
    python = python_version(debian_root({"python3"}))
    result = subprocess.run([GPU / "pack.sh", "--python", python, "--level", "1", "--most", "90", out], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    print(result.stdout)
    out.parent.chmod(0o755)
    yield out
    shutil.rmtree(out)


def call_without_a_pack(tmp_path, **environment):
    """Runs run.sh with a stand-in for a Python that has torch; it prints the command that it is asked to run."""
    (tmp_path / "a python").write_text('#!/bin/sh\n[ "$1" = -c ] || echo "$@"\n')
    (tmp_path / "a python").chmod(0o755)
    return subprocess.run([GPU / "run.sh", "--results", tmp_path / "results"], capture_output=True, text=True,
                          env={"PATH": os.environ["PATH"], "DAPD_PYTHON": str(tmp_path / "a python"), **environment})


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a folder of another user")
def test_it_runs_nothing_out_of_another_users_folder(tmp_path):
    work = tmp_path / f"dapd-gpu-{os.getuid()}"
    work.mkdir()
    assert call_without_a_pack(tmp_path, TMPDIR=str(tmp_path)).returncode == 0
    os.chown(work, 65534, 65534)
    result = call_without_a_pack(tmp_path, TMPDIR=str(tmp_path))
    assert result.returncode == 1 and result.stdout == "" and f"{work} is a link or another user's" in result.stderr
    # A folder that the user names may belong to another user.
    assert call_without_a_pack(tmp_path, TMPDIR=str(tmp_path), DAPD_GPU_WORK=str(work)).returncode == 0


def test_two_calls_do_not_share_a_folder(tmp_path):
    (tmp_path / "work").mkdir()
    with open(tmp_path / "work/lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = call_without_a_pack(tmp_path, DAPD_GPU_WORK=str(tmp_path / "work"))
        assert result.returncode == 1 and result.stdout == "" and "another call uses" in result.stderr
    assert call_without_a_pack(tmp_path, DAPD_GPU_WORK=str(tmp_path / "work")).returncode == 0


@needs_backend
@needs_root
def test_a_bare_machine_comes_as_far_as_the_card(pack, tmp_path):
    manifest = json.loads((pack / "manifest.json").read_text())
    assert {"dapd_generation_test", "dapd_model_test", "dapd_objective_test"} <= set(manifest["tests"])
    bare = BareMachine(tmp_path, pack)
    start = time.monotonic()
    result = bare.run("/mnt/run.sh", "--results", "/srv/results")
    print(result.stdout, result.stderr, f"{time.monotonic() - start:.0f} s")
    results = json.loads((bare.work / "results/results.json").read_text())
    # Programs start, every symbol is found, and all peers can be imported: only the GPU is missing.
    assert result.returncode == 1
    assert results["machine"]["programs"] and results["machine"]["gpu"] is None
    assert set(results["machine"]["peers"]) == {"transformers", "peft", "liger-kernel"} and not results["machine"]["peers_left_out"]
    assert [stage["stage"] for stage in results["stages"]] == ["kernels", "parity", "run", "determinism", "ranks", "G5", "G6", "G1", "G2", "G3", "G4", "G7", "G8", "profile", "sanitizer"]
    for stage in results["stages"]:
        assert stage["state"] == "not run" and stage["reason"].startswith("no CUDA device: ")
    assert "no CUDA device" in (bare.work / "results/results.txt").read_text()
    # The programs themselves also run until they need the GPU.
    (tree,) = bare.work.glob("pack-*")
    asked = bare.run(f"/srv/{tree.name}/bin/dapd", "score", "--model", f"/srv/{tree.name}/deploy/models/laboratory", "--input", "/dev/null", "--output",
                     "/tmp/out", "--device", "cuda")
    assert asked.returncode == 3 and "no GPU can be used" in asked.stderr
    for name in manifest["tests"]:
        listed = bare.run(f"/srv/{tree.name}/bin/{name}", "--gtest_list_tests")
        assert listed.returncode == 0 and re.search("Cuda|Gpu|GPU", listed.stdout), f"{name} has no test that the stage 'kernels' would find"
    # A missing library is named before anything runs.
    (library,) = (tree / "libraries").glob("libyaml-cpp.so*")
    library.unlink()
    result = bare.run("/mnt/run.sh", "--results", "/srv/again")
    assert result.returncode == 1 and f"do not fit the libraries of this machine: {library.name} is not found." in result.stderr


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the repository's list of files")
def test_a_pack_travels_with_the_repository():
    """The default parts together take less than 64 MiB, as the header and the page say."""
    script = (GPU / "pack.sh").read_text()
    most = int(re.search(r" most=(\d+)$", script, re.MULTILINE)[1])
    assert most << 20 == MOST_BYTES and f"in MiB ({most})" in script
    assert f"at most {most} MiB" in (ROOT / "docs/gpu.md").read_text() and f"to {most} MiB by default" in (ROOT / "docs/gpu.md").read_text()
    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0")
    assert MOST_BYTES + sum((ROOT / name).lstat().st_size for name in files if name and (ROOT / name).exists()) < 64 * 2**20


@needs_backend
@needs_root
def test_the_whole_pack_is_small_enough_to_carry(pack):
    manifest = json.loads((pack / "manifest.json").read_text())
    assert manifest["left_out"] == []
    assert [part["file"] for part in manifest["parts"]] == [f"{name}.tar.xz" for name in ("programs", "libraries", "peers", "numpy")]
    # numpy may be left out, because such machines have it.
    assert sum(path.stat().st_size for path in pack.iterdir() if path.name != "numpy.tar.xz") <= LARGER * MOST_BYTES


@needs_backend
def test_a_pack_that_was_damaged_on_its_way_is_refused(pack, tmp_path):
    copy = shutil.copytree(pack, tmp_path / "copy")
    part = copy / "programs.tar.xz"
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    result = subprocess.run([copy / "run.sh", "--results", tmp_path / "results"], capture_output=True, text=True,
                            env={**os.environ, "DAPD_GPU_WORK": str(tmp_path / "work"), "DAPD_PYTHON": sys.executable})
    assert result.returncode == 1 and "is not what was packed" in result.stderr
    assert not list((tmp_path / "work").glob("pack-*[0-9a-f]"))


@needs_backend
def test_stages_rehearse_on_the_cpu(pack, tmp_path):
    """Comparing, stopping and continuing must work before anybody pays for a GPU."""
    environment = {**os.environ, "DAPD_GPU_WORK": str(tmp_path / "work"), "DAPD_PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}
    result = subprocess.run([pack / "run.sh", "--results", tmp_path / "results", "--rehearse", "G5", "parity", "determinism", "run", "ranks"], capture_output=True, text=True,
                            env=environment)
    print(result.stdout, result.stderr)
    stages = {stage["stage"]: stage for stage in json.loads((tmp_path / "results/results.json").read_text())["stages"]}
    assert result.returncode == 0, (tmp_path / "results/log.txt").read_text()
    assert {stages[name]["state"] for name in ("parity", "determinism", "run", "ranks")} == {"passed"} and stages["G5"]["state"] == "not run"
    checks = [line["check"] for line in stages["parity"]["lines"] if "check" in line]
    assert any("logit" in check for check in checks) and any("worst gradient" in check for check in checks) and any("adapter after 10 steps" in check for check in checks)
    assert (tmp_path / "results/results.txt").read_text().startswith("REHEARSAL")


def test_nccl_with_the_code_of_one_gpu_is_small_and_whole(tmp_path):
    """Also where the library is larger than a pack may be. The version of torch stands in for the newer one."""
    library = nccl_of_torch()
    lean = tmp_path / "libnccl.so.2"
    kept = nccl.keep_only(90, library, lean)
    places, lean_places = nccl.sections(library), nccl.sections(lean)
    before, after = library.read_bytes(), lean.read_bytes()
    images = [(is_code, own, before[begin:end]) for is_code, own, begin, end in nccl.entries(before, *places[nccl.IMAGES])]
    lean_images = [(is_code, own, after[begin:end]) for is_code, own, begin, end in nccl.entries(after, *lean_places[nccl.IMAGES])]
    assert [image[:2] for image in lean_images] == [image[:2] for image in images] and any(own != 90 for _, own, _ in images)
    for (is_code, own, content), (_, _, lean_content) in zip(images, lean_images, strict=True):
        assert lean_content == (content if is_code and own == 90 else bytes(len(content)))
    compressed = len(lzma.compress(after, preset=1))
    print(f"{len(before) / 2**20:.0f} MiB, code for sm_90 {kept / 2**20:.1f} MiB, compressed {compressed / 2**20:.1f} MiB")
    assert compressed < 20 * 2**20
    with pytest.raises(ValueError, match="no code for sm_42"):
        nccl.keep_only(42, library, tmp_path / "none")
    # The library still loads, in front of torch's own.
    asked = subprocess.run([sys.executable, "-c", "import ctypes; v = ctypes.c_int(); print(ctypes.CDLL(None).ncclGetVersion(ctypes.byref(v)), v.value)"],
                           env={**os.environ, "LD_PRELOAD": str(lean)}, capture_output=True, text=True)
    assert re.fullmatch(r"0 2\d{4}\n", asked.stdout), asked.stderr


def nccl_of_torch():
    return pathlib.Path(importlib.metadata.distribution("nvidia-nccl-cu13").locate_file("nvidia/nccl/lib/libnccl.so.2"))


def test_programs_take_the_nccl_that_is_named(tmp_path):
    """The stage `ranks` names a newer one than torch's, which the loader would find first."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "programs/bin").mkdir(parents=True)
    (tmp_path / "library_path").write_text("/nowhere")
    (tmp_path / "bin/asked").symlink_to(GPU / "with_libraries.sh")
    (tmp_path / "tests/gpu").mkdir(parents=True)
    (tmp_path / "programs/bin/asked").write_text("#!/bin/sh\necho $LD_PRELOAD\n")
    (tmp_path / "programs/bin/asked").chmod(0o755)
    own = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    for setting, expected in ({}, ""), ({"DAPD_NCCL": "/nowhere/libnccl.so.2"}, "/nowhere/libnccl.so.2"):
        assert subprocess.run([tmp_path / "bin/asked"], env={**own, **setting}, capture_output=True, text=True).stdout.strip() == expected


def test_a_stage_names_the_part_that_its_pack_lacks():
    gpu = {"name": "NVIDIA H200", "capability": [9, 0]}
    assert stage.want_of_part("ranks", {}, gpu) == "this pack has no nccl: make one with tests/gpu/pack.sh --ranks"
    assert stage.want_of_part("ranks", {"nccl": {"capability": [9, 0]}}, gpu) is None and stage.want_of_part("parity", {}, gpu) is None
    other = stage.want_of_part("ranks", {"nccl": {"capability": [8, 0]}}, gpu)
    assert other == "the pack's nccl is for capability [8, 0], and NVIDIA H200 has [9, 0]"


def test_another_torch_or_an_older_loader_is_one_clear_error(monkeypatch):
    with pytest.raises(machine.Unusable, match="glibc .* and the programs need 9.99: build and pack"):
        machine.check_loader({"needs": {"GLIBC": "9.99"}})
    machine.check_loader({"needs": {"GLIBC": "2.2.5"}})
    for version, cuda in ("2.12.0+cu130", "13.0"), ("2.11.0+cu128", "12.8"), ("2.11.0+cpu", None):
        said = json.dumps({"version": version, "cuda": cuda, "folder": "/x", "libstdc++": None, "no_gpu": "none"})
        monkeypatch.setattr(machine, "python", lambda code, said=said: subprocess.CompletedProcess([], 0, said + "\n", ""))
        with pytest.raises(machine.Unusable, match=r"has torch .* and the programs are built with 2\.11\.0 \(CUDA 13\.0\)"):
            machine.check_torch({"torch": "2.11.0", "cuda": "13.0"})


def test_a_driver_that_hangs_is_one_clear_error(monkeypatch):
    monkeypatch.setattr(machine, "SECONDS", 1)
    monkeypatch.setattr(machine, "PROBE", "import time; time.sleep(1000)")
    with pytest.raises(machine.Unusable, match="cannot import torch: no answer within 1 s"):
        machine.check_torch({"torch": "2.11.0", "cuda": "13.0"})


def test_a_gpu_that_cannot_do_is_refused_by_what_it_lacks():
    gpu = {"gpu": {"name": "H100", "capability": [9, 0]}}
    assert machine.why_no_gpu(gpu, "580.65.06") is None
    assert machine.why_no_gpu(gpu, "550.54.14") is None  # with the compatibility package
    assert "driver is 550.54.14, and CUDA 13 needs 580" in machine.why_no_gpu({"no_gpu": "too old"}, "550.54.14")
    assert "V100 has compute capability [7, 0]" in machine.why_no_gpu({"gpu": {"name": "V100", "capability": [7, 0]}}, "580.65.06")
    assert machine.why_no_gpu({"no_gpu": "Found no NVIDIA driver"}, None) == "no CUDA device: Found no NVIDIA driver (driver: none)"


def test_the_newest_symbol_version_counts():
    assert elf.newest(["2.9", "2.36", "2.4"]) == "2.36"
    needed = elf.needed_version([sys.executable], "GLIBC")
    provided = os.confstr("CS_GNU_LIBC_VERSION").split()[1]
    assert [2, 2] < elf.version_key(needed) <= elf.version_key(provided)
    found, missing = elf.loaded_libraries([pathlib.Path(sys.executable).resolve()])
    assert not missing and elf.provided_version(found["libc.so.6"], "GLIBC") != "0"
