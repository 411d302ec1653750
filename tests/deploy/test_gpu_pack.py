"""tests/gpu: the pack on a machine without the build's packages, up to the first thing that needs a card, and what runs its stages."""

import fcntl
import json
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
from waiting import wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPU = ROOT / "tests/gpu"
sys.path.insert(0, str(GPU))

import elf  # noqa: E402
import machine  # noqa: E402

MOST_BYTES = 60 * 2**20  # as it is made for a machine with a GPU
LARGER = 1.3  # than that is one of the level that is used here, which takes a tenth of the time
needs_backend = pytest.mark.skipif(not (ROOT / "build/lib/libdapd_cuda.so").exists(), reason="the build has no CUDA backend")
needs_root = pytest.mark.skipif(os.geteuid() != 0 or any(shutil.which(name) is None for name in ("debootstrap", "unshare", "ip")),
                                reason="needs root, debootstrap, unshare and ip")


@pytest.fixture(scope="module")
def pack(tmp_path_factory):
    """As it is made for a machine with a GPU, but for the Python of this release's Debian, and packed less tightly."""
    out = tmp_path_factory.mktemp("pack") / "out"
    python = python_version(debian_root({"python3"}))
    result = subprocess.run([GPU / "pack.sh", "--python", python, "--level", "1", "--most", "90", out], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    print(result.stdout)
    out.parent.chmod(0o755)
    yield out
    shutil.rmtree(out)


def call_without_a_pack(tmp_path, **environment):
    """run.sh with a stand-in for Python, which takes itself for one with torch; it prints what it is asked to run."""
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
    # One that was named may belong to a group.
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
    # Programs start, every symbol is found, all peers can be imported: it is the card that is missing.
    assert result.returncode == 1
    assert results["machine"]["programs"] and results["machine"]["gpu"] is None
    assert set(results["machine"]["peers"]) == {"transformers", "peft", "liger-kernel"} and not results["machine"]["peers_left_out"]
    assert [stage["stage"] for stage in results["stages"]] == ["kernels", "parity", "run", "determinism", "sanitizer", "G5", "G6", "G1", "G2", "G3", "G4", "G7", "G8"]
    for stage in results["stages"]:
        assert stage["state"] == "not run" and stage["reason"].startswith("no CUDA device: ")
    assert "no CUDA device" in (bare.work / "results/results.txt").read_text()
    # The programs themselves come as far.
    (tree,) = bare.work.glob("pack-*")
    asked = bare.run(f"/srv/{tree.name}/bin/dapd", "score", "--model", f"/srv/{tree.name}/deploy/models/laboratory", "--input", "/dev/null", "--output",
                     "/tmp/out", "--device", "cuda")
    assert asked.returncode == 3 and "no GPU can be used" in asked.stderr
    for name in manifest["tests"]:
        listed = bare.run(f"/srv/{tree.name}/bin/{name}", "--gtest_list_tests")
        assert listed.returncode == 0 and re.search("Cuda|Gpu|GPU", listed.stdout), f"{name} has no test that the stage 'kernels' would find"
    # A library that is missing is named, before anything runs.
    (library,) = (tree / "libraries").glob("libyaml-cpp.so*")
    library.unlink()
    result = bare.run("/mnt/run.sh", "--results", "/srv/again")
    assert result.returncode == 1 and f"do not fit the libraries of this machine: {library.name} is not found." in result.stderr


@needs_backend
@needs_root
def test_the_whole_pack_is_small_enough_to_carry(pack):
    manifest = json.loads((pack / "manifest.json").read_text())
    assert manifest["left_out"] == []
    assert [part["file"] for part in manifest["parts"]] == [f"{name}.tar.xz" for name in ("programs", "libraries", "peers", "numpy")]
    assert sum(path.stat().st_size for path in pack.iterdir()) <= LARGER * MOST_BYTES


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
    """What compares, stops and continues works before a GPU is paid for."""
    environment = {**os.environ, "DAPD_GPU_WORK": str(tmp_path / "work"), "DAPD_PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}
    result = subprocess.run([pack / "run.sh", "--results", tmp_path / "results", "--rehearse", "G5", "parity", "determinism", "run"], capture_output=True, text=True,
                            env=environment)
    print(result.stdout, result.stderr)
    stages = {stage["stage"]: stage for stage in json.loads((tmp_path / "results/results.json").read_text())["stages"]}
    assert result.returncode == 0, (tmp_path / "results/log.txt").read_text()
    assert stages["parity"]["state"] == stages["determinism"]["state"] == stages["run"]["state"] == "passed" and stages["G5"]["state"] == "not run"
    checks = [line["check"] for line in stages["parity"]["lines"] if "check" in line]
    assert any("logit" in check for check in checks) and any("worst gradient" in check for check in checks) and any("adapter after 10 steps" in check for check in checks)
    assert (tmp_path / "results/results.txt").read_text().startswith("REHEARSAL")


MANIFEST = {"commit": "x", "torch": "2.11.0", "cuda": "13.0", "needs": {"GLIBC": "2.36", "GLIBCXX": "3.4.30"}, "tests": [], "left_out": [], "parts": []}


def test_another_torch_or_an_older_loader_is_one_clear_error(monkeypatch):
    with pytest.raises(machine.Unusable, match="glibc .* and the programs need 9.99: build and pack"):
        machine.check_loader({"needs": {"GLIBC": "9.99"}})
    machine.check_loader({"needs": {"GLIBC": "2.2.5"}})
    for version, cuda in ("2.12.0+cu130", "13.0"), ("2.11.0+cu128", "12.8"), ("2.11.0+cpu", None):
        said = json.dumps({"version": version, "cuda": cuda, "folder": "/x", "libstdc++": None, "no_gpu": "none"})
        monkeypatch.setattr(machine, "python", lambda code, said=said: subprocess.CompletedProcess([], 0, said + "\n", ""))
        with pytest.raises(machine.Unusable, match=r"has torch .* and the programs are built with 2\.11\.0 \(CUDA 13\.0\)"):
            machine.check_torch(MANIFEST)


def test_a_gpu_that_cannot_do_is_refused_by_what_it_lacks():
    gpu = {"gpu": {"name": "H100", "capability": [9, 0]}}
    assert machine.why_no_gpu(gpu, "580.65.06") is None
    assert "driver is 550.54.14, and CUDA 13 needs 580" in machine.why_no_gpu(gpu, "550.54.14")
    assert "V100 has compute capability [7, 0]" in machine.why_no_gpu({"gpu": {"name": "V100", "capability": [7, 0]}}, "580.65.06")
    assert machine.why_no_gpu({"no_gpu": "Found no NVIDIA driver"}, None) == "no CUDA device: Found no NVIDIA driver (driver: none)"


def test_the_newest_symbol_version_counts():
    assert elf.newest(["2.9", "2.36", "2.4"]) == "2.36"
    needed = elf.needed_version([sys.executable], "GLIBC")
    provided = os.confstr("CS_GNU_LIBC_VERSION").split()[1]
    assert [2, 2] < elf.version_key(needed) <= elf.version_key(provided)
    found, missing = elf.loaded_libraries([pathlib.Path(sys.executable).resolve()])
    assert not missing and elf.provided_version(found["libc.so.6"], "GLIBC") != "0"


# By which processes of this test are known from those of others.
SLEEP = f"1000.{os.getpid()}"
STAND_INS = {
    "machine.py": 'class Unusable(Exception):\n    pass\n\n\ndef examine(*_):\n    return {"no_gpu": None, "gpu": {"name": "x"}, "python_path": [], '
                  '"peers_left_out": {"peft": "no room"}}\n\n\ndef last_line(text):\n    return text.strip().splitlines()[-1]\n'
                  '\n\ndef compute_sanitizer():\n    return None\n',
    "kernels.py": 'from duel import Row\n\n\ndef main():\n    row = Row("kernels", "title")\n    row.check("error", 1e-3, 1e-2)\n'
                  '    row.figure("share", "0.9", ">= 0.7", True)\n',
    "parity.py": 'import sys\n\nfrom duel import Row\n\n\ndef main():\n    Row("parity", "title").check("error", 1, 0)\n    print("x" * 100, file=sys.stderr)\n',
    "determinism.py": 'import subprocess\nimport time\n\nfrom duel import Row\n\n\ndef main():\n    Row("determinism", "title").figure("begun", 1)\n'
                      '    subprocess.Popen(["sleep", "' + SLEEP + '"], start_new_session=True)\n    time.sleep(1000)\n',
    "whole_run.py": "def main():\n    pass\n",
}


def left_behind():
    """What stages of this test have started and nobody has ended."""
    return subprocess.run(["pgrep", "-fx", f"sleep {SLEEP}"], capture_output=True, text=True).stdout


@pytest.fixture
def stood_in(tmp_path):
    """Runs run.py on stages that are stand-ins; its code and results by stage."""
    gpu = tmp_path / "tree/tests/gpu"
    shutil.copytree(GPU, gpu)
    shutil.copytree(ROOT / "tests/benchmarks", gpu.parent / "benchmarks")
    (tmp_path / "tree/manifest.json").write_text(json.dumps(MANIFEST))
    for name, text in STAND_INS.items():
        (gpu / name).write_text(text)
    for folder in ("work", "results"):
        (tmp_path / folder).mkdir()

    def run(*arguments):
        result = subprocess.run([sys.executable, gpu / "run.py", tmp_path / "work", tmp_path / "results", "5", *arguments], capture_output=True, text=True)
        content = json.loads((tmp_path / "results/results.json").read_text()) if (tmp_path / "results/results.json").exists() else {"stages": []}
        return result, {stage["stage"]: stage for stage in content["stages"]}

    return run


def test_a_stage_that_fails_or_hangs_does_not_keep_the_others_from_running(stood_in, tmp_path):
    result, stages = stood_in("determinism", "parity", "kernels", "G3", "run")
    assert result.returncode == 1
    # In the order of what proves what, not of the call.
    assert list(stages) == ["kernels", "parity", "run", "determinism", "G3"]
    assert stages["kernels"]["state"] == "passed" and [line.get("ok") for line in stages["kernels"]["lines"]] == [None, True, None]
    assert stages["parity"]["state"] == "failed" and stages["parity"]["reason"] == "checks failed: parity: error"
    assert stages["determinism"]["state"] == "failed" and stages["determinism"]["reason"] == "not done after 5 s"
    # What it had found is kept, and what it had started is gone.
    assert stages["determinism"]["lines"][1]["figure"] == "begun"
    wait_for(lambda: not left_behind(), "the end of what a stage started")
    assert stages["G3"]["state"] == "not run" and stages["G3"]["reason"] == "its peer is left out: peft: no room"
    assert stages["run"]["state"] == "failed" and "measured nothing" in stages["run"]["reason"]
    text = (tmp_path / "results/results.txt").read_text()
    assert "share: 0.9   [target >= 0.7: met]" in text and "== determinism  failed: not done after 5 s" in text
    assert "==== parity" in (tmp_path / "results/log.txt").read_text()


def test_what_a_stage_has_found_is_there_while_it_runs_and_when_the_call_is_ended(stood_in, tmp_path):
    """Who lends the machine may end the call, and need not say so first."""
    call = subprocess.Popen([sys.executable, tmp_path / "tree/tests/gpu/run.py", tmp_path / "work", tmp_path / "results", "60", "determinism", "parity"])
    path = tmp_path / "results/results.json"

    def stage():
        stages = json.loads(path.read_text())["stages"] if path.exists() else []
        return next((each for each in stages if each["stage"] == "determinism"), {"lines": []})

    wait_for(lambda: len(stage()["lines"]) >= 2, "the stage's first figure", 50)
    running = stage()
    assert (running["stage"], running["state"], running["lines"][1]["figure"]) == ("determinism", "running", "begun")
    assert "==== determinism" in (tmp_path / "results/log.txt").read_text()
    call.terminate()
    assert call.wait(30) == 1
    ended = stage()
    assert (ended["state"], ended["reason"], ended["lines"]) == ("failed", "the call was ended", running["lines"])
    wait_for(lambda: not left_behind(), "the end of what a stage started")


def test_what_a_killed_call_leaves_behind_is_ended_by_the_next(stood_in, tmp_path):
    """A stage has a session of its own, so that what kills the call may not reach it."""
    call = subprocess.Popen([sys.executable, tmp_path / "tree/tests/gpu/run.py", tmp_path / "work", tmp_path / "results", "60", "determinism"])
    wait_for(left_behind, "a stage under way", 50)
    call.kill()
    call.wait()
    assert left_behind()
    result, stages = stood_in("kernels")
    assert result.returncode == 0 and stages["determinism"]["state"] == "running"
    wait_for(lambda: not left_behind(), "the end of what it left behind")


def test_float32_is_float32_whatever_the_machine_sets(stood_in, tmp_path, monkeypatch):
    for name in "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE":
        monkeypatch.setenv(name, "1")
    (tmp_path / "tree/tests/gpu/kernels.py").write_text('import os\n\nfrom duel import Row\n\n\ndef main():\n'
                                                        '    Row("kernels", "title").figure("set", [name for name in os.environ if "TF32" in name])\n')
    assert stood_in("kernels")[1]["kernels"]["lines"][1]["value"] == "[]"


def test_a_call_ends_with_the_time_that_it_has(stood_in):
    result, stages = stood_in("--total", "7", "determinism", "G5")
    assert result.returncode == 1 and stages["determinism"]["reason"] == "not done after 5 s"
    assert stages["G5"]["state"] == "not run" and stages["G5"]["reason"] == "no time was left of the call's 7 s"
    # What has no time now may have had some before.
    _, before = stood_in("kernels")
    result, again = stood_in("--total", "1", "kernels")
    assert result.returncode == 0 and before["kernels"]["state"] == "passed" and again["kernels"] == before["kernels"]


# A program of tests, of which one fails and takes the GPU from those behind it, one ends the process and one does not end.
TESTS = """#!/usr/bin/env python3
import os, sys, time
names = ["Passes", "Fails", "FailsBehindIt", "Aborts", "Skips", "Hangs", "PassesToo"]
if "--gtest_list_tests" in sys.argv:
    print("Running main() from gtest_main.cc\\nKinds/CudaTest.  # TypeParam = int")
    print("\\n".join(f"  {name}/0  # GetParam() = 1" for name in names))
    sys.exit()
wanted = next(argument for argument in sys.argv if argument.startswith("--gtest_filter=")).split("=")[1].split(":")
failed = False
for name in names:
    full = f"Kinds/CudaTest.{name}/0"
    if full not in wanted:
        continue
    print(f"[ RUN      ] {full}", flush=True)
    if failed:
        print(f"[  SKIPPED ] {full} (0 ms)", flush=True)
        continue
    if name == "Aborts":
        os.abort()
    if name == "Hangs":
        time.sleep(1000)
    failed = name == "Fails"
    state = "  FAILED  " if failed else "  SKIPPED " if name == "Skips" else "       OK "
    print(f"[{state}] {full}" + (", where GetParam() = 1" if failed else "") + " (1 ms)", flush=True)
print("[  FAILED  ] 1 test, listed below:")
"""


def test_a_test_that_ends_its_process_costs_no_other_its_result(tmp_path):
    (tmp_path / "dapd_x_test").write_text(TESTS)
    (tmp_path / "dapd_x_test").chmod(0o755)
    record = tmp_path / "record"
    result = subprocess.run([sys.executable, GPU / "stage.py", "kernels"], capture_output=True, text=True, env={
        **os.environ, "DAPD_BIN": str(tmp_path), "DAPD_GPU_TESTS": "dapd_x_test", "DAPD_BENCHMARK_RECORD": str(record),
        "DAPD_GPU_TEST_SECONDS": "8"})
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert lines[1]["value"] == "3 passed", result.stderr
    checks = {line["check"]: line["error"] for line in lines[2:]}
    (lost,) = [check for check in checks if "without a result" in check]
    assert checks.pop(lost) == 2
    assert re.search(r"Kinds/CudaTest\.Aborts/0: ended the process with SIGABRT, Kinds/CudaTest\.Hangs/0: not done after \d+ s\)", lost)
    assert checks == {"dapd_x_test: tests that failed (Kinds/CudaTest.Fails/0)": 1, "dapd_x_test: tests that skipped themselves (Kinds/CudaTest.Skips/0)": 1,
                      "dapd_x_test: tests for which there was no time": 0, "dapd_x_test: no test at all": 0}
    assert result.returncode == 1


# One that finds a race in a kernel of ours and one in another's, unless it looks at memory.
SANITIZER = """#!/bin/sh
if [ "$2" = memcheck ]; then echo "========= ERROR SUMMARY: 0 errors"; exit; fi
[ "$2" = synccheck ] && exit 1
echo "========= Error: Race reported between Write access at void dapd::AttendSplit<float, 4>(dapd::DecodeAttentionArgs)+0x10"
echo "========= Error: Race reported between Write access at void at::native::reduce_kernel<512>()+0x20"
echo "========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)"
"""


def run_sanitizer(tmp_path, text, **environment):
    """The stage with a stand-in for compute-sanitizer; its code, what it said on stderr, and its lines."""
    record = tmp_path / "record"
    record.write_text("")
    (tmp_path / "compute-sanitizer").write_text(text)
    (tmp_path / "compute-sanitizer").chmod(0o755)
    result = subprocess.run([sys.executable, GPU / "stage.py", "sanitizer"], capture_output=True, text=True, env={
        **os.environ, "PATH": f"{tmp_path}:/usr/bin:/bin", "DAPD_BIN": str(tmp_path), "DAPD_BENCHMARK_RECORD": str(record), **environment})
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    return result, lines, [line["check"] for line in lines if line.get("ok") is False]


def test_without_a_sanitizer_its_stage_says_so(stood_in):
    _, stages = stood_in("sanitizer")
    assert stages["sanitizer"]["state"] == "passed" and stages["sanitizer"]["lines"][1]["value"] == "this machine has no compute-sanitizer"


def test_what_the_sanitizer_finds_counts_in_our_kernels(tmp_path):
    result, _, failed = run_sanitizer(tmp_path, SANITIZER)
    assert result.returncode == 1 and len(failed) == 6, result.stderr
    assert sum(check.startswith("racecheck") and "findings in our kernels (Error: Race" in check and "dapd::AttendSplit" in check for check in failed) == 3
    assert sum(check.startswith("synccheck") and check.endswith("it did not come to its end") for check in failed) == 3


def test_a_sanitizer_that_hangs_keeps_what_it_found_and_leaves_the_others_their_time(tmp_path):
    finding = next(line for line in SANITIZER.splitlines(keepends=True) if "dapd::" in line)
    # As the real one does, it runs the program beside itself.
    hangs = f'#!/bin/sh\nif [ "$2" = memcheck ]; then\n{finding}sleep {SLEEP} &\nwait\nfi\necho "========= ERROR SUMMARY: 0 errors"\n'
    result, lines, failed = run_sanitizer(tmp_path, hangs, DAPD_BENCHMARK_DEADLINE=str(time.time() + 18))
    said = [line["value"] for line in lines if "figure" in line]
    assert [re.fullmatch(r"not done after \d+ s", value) is not None for value in said] == [True] * 3 + [False] * 6, result.stderr
    assert said[3:] == ["0 errors"] * 6
    assert result.returncode == 1 and len(failed) == 3 and all("findings in our kernels (Error: Race" in check for check in failed)
    assert left_behind() == ""


@pytest.mark.parametrize("place", ["home/bin", "home/compute-sanitizer", "toolkits/cuda-13.0/bin", "toolkits/cuda/compute-sanitizer", "packages/nvidia/cu13/bin"])
def test_a_sanitizer_is_found_where_toolkits_and_packages_have_it(tmp_path, monkeypatch, place):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "packages")])
    toolkits = str(tmp_path / "toolkits/cuda*")
    assert machine.compute_sanitizer(toolkits) is None
    program = tmp_path / place / "compute-sanitizer"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert machine.compute_sanitizer(toolkits) == str(program)


def test_results_of_several_calls_come_together(stood_in):
    assert stood_in("kernels")[0].returncode == 0
    result, stages = stood_in("parity")
    assert result.returncode == 1 and list(stages) == ["kernels", "parity"]
    assert stood_in("run")[1]["kernels"] == stages["kernels"]


def test_results_that_do_not_belong_together_are_all_kept(stood_in, tmp_path):
    """Those of a rehearsal and those of a GPU, in turns."""
    for arguments in (["kernels"], ["--rehearse", "G5"], ["kernels"], ["--rehearse", "G5"]):
        stood_in(*arguments)
    kept = [json.loads((tmp_path / "results" / f"{name}.json").read_text()) for name in ("results-before", "results-before-1", "results-before-2", "results")]
    assert [(content["rehearsal"], content["stages"][0]["stage"]) for content in kept] == [(False, "kernels"), (True, "G5")] * 2


def test_an_unknown_stage_is_a_usage_error(stood_in):
    result, stages = stood_in("G9")
    assert result.returncode == 2 and "no such stage: G9; there are kernels parity" in result.stderr and not stages
