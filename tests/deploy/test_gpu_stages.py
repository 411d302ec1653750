"""Tests the program that runs the stages of tests/gpu, with stand-ins for the stages and for the programs that they start."""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import pytest

from waiting import wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]
GPU = ROOT / "tests/gpu"

MANIFEST = {"commit": "x", "torch": "2.11.0", "cuda": "13.0", "needs": {"GLIBC": "2.36", "GLIBCXX": "3.4.30"}, "tests": [], "left_out": [], "parts": []}
# This duration distinguishes this test's processes from other tests' processes.
SLEEP = f"1000.{os.getpid()}"
STAND_INS = {
    "machine.py": 'class Unusable(Exception):\n    pass\n\n\ndef examine(*_):\n    return {"no_gpu": None, "gpu": {"name": "x"}, "python_path": [], '
                  '"peers_left_out": {"peft": "no room"}}\n\n\ndef last_line(text):\n    return text.strip().splitlines()[-1]\n'
                  '\n\ndef nvidia_tool(_):\n    return None\n',
    "kernel_tests.py": 'from duel import Row\n\n\ndef main():\n    row = Row("kernels", "title")\n    row.check("error", 1e-3, 1e-2)\n'
                  '    row.figure("share", "0.9", ">= 0.7", True)\n',
    "parity.py": 'import sys\n\nfrom duel import Row\n\n\ndef main():\n    Row("parity", "title").check("error", 1, 0)\n    print("x" * 100, file=sys.stderr)\n',
    "determinism.py": 'import subprocess\nimport time\n\nfrom duel import Row\n\n\ndef main():\n    Row("determinism", "title").figure("begun", 1)\n'
                      '    subprocess.Popen(["sleep", "' + SLEEP + '"], start_new_session=True)\n    time.sleep(1000)\n',
    "whole_run.py": "def main():\n    pass\n",
}


def left_behind():
    """Returns the processes that this test's stages have started and nobody has ended."""
    return subprocess.run(["pgrep", "-fx", f"sleep {SLEEP}"], capture_output=True, text=True).stdout


@pytest.fixture
def stood_in(tmp_path):
    """Returns a function that runs run.py with stand-ins for the stages and returns its result, and the results by stage."""
    gpu = tmp_path / "tree/tests/gpu"
    shutil.copytree(GPU, gpu)
    shutil.copytree(ROOT / "tests/benchmarks", gpu.parent / "benchmarks")
    (tmp_path / "tree/manifest.json").write_text(json.dumps(MANIFEST))
    for name, text in STAND_INS.items():
        (gpu / name).write_text(text)
    for folder in ("work", "results"):
        (tmp_path / folder).mkdir()

    def run(*arguments, seconds=5):
        result = subprocess.run([sys.executable, gpu / "run.py", tmp_path / "work", tmp_path / "results", str(seconds), *arguments], capture_output=True, text=True)
        content = json.loads((tmp_path / "results/results.json").read_text()) if (tmp_path / "results/results.json").exists() else {"stages": []}
        return result, {stage["stage"]: stage for stage in content["stages"]}

    return run


def test_a_stage_that_fails_or_hangs_does_not_keep_the_others_from_running(stood_in, tmp_path):
    result, stages = stood_in("determinism", "parity", "kernels", "G3", "run")
    assert result.returncode == 1
    # The stages run in their fixed order, not in the order of the call.
    assert list(stages) == ["kernels", "parity", "run", "determinism", "G3"]
    assert stages["kernels"]["state"] == "passed" and [line.get("ok") for line in stages["kernels"]["lines"]] == [None, True, None]
    assert stages["parity"]["state"] == "failed" and stages["parity"]["reason"] == "checks failed: parity: error"
    assert stages["determinism"]["state"] == "failed" and stages["determinism"]["reason"] == "not done after 5 s"
    # A stage's findings are kept, and the processes that it started are ended.
    assert stages["determinism"]["lines"][1]["figure"] == "begun"
    wait_for(lambda: not left_behind(), "the end of what a stage started")
    assert stages["G3"]["state"] == "not run" and stages["G3"]["reason"] == "its peer is left out: peft: no room"
    assert stages["run"]["state"] == "failed" and "measured nothing" in stages["run"]["reason"]
    text = (tmp_path / "results/results.txt").read_text()
    assert "share: 0.9   [target >= 0.7: met]" in text and "== determinism  failed: not done after 5 s" in text
    assert "==== parity" in (tmp_path / "results/log.txt").read_text()


def test_what_a_stage_has_found_is_there_while_it_runs_and_when_the_call_is_ended(stood_in, tmp_path):
    """The owner of the machine may end the call without a warning."""
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
    """A stage has its own session, so a signal that kills the call may not reach it."""
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
    (tmp_path / "tree/tests/gpu/kernel_tests.py").write_text('import os\n\nfrom duel import Row\n\n\ndef main():\n'
                                                        '    Row("kernels", "title").figure("set", [name for name in os.environ if "TF32" in name])\n')
    assert stood_in("kernels")[1]["kernels"]["lines"][1]["value"] == "[]"


def test_a_call_ends_with_the_time_that_it_has(stood_in):
    result, stages = stood_in("--total", "7", "determinism", "G5")
    assert result.returncode == 1 and stages["determinism"]["reason"] == "not done after 5 s"
    assert stages["G5"]["state"] == "not run" and stages["G5"]["reason"] == "no time was left of the call's 7 s"
    # A stage without time now keeps the result of an earlier call.
    _, before = stood_in("kernels")
    result, again = stood_in("--total", "1", "kernels")
    assert result.returncode == 0 and before["kernels"]["state"] == "passed" and again["kernels"] == before["kernels"]


@pytest.mark.parametrize("total, state", [("58", "not run"), ("70", "passed")])
def test_a_stage_begins_with_a_minute_left_however_long_it_may_take(stood_in, total, state):
    assert stood_in("--total", total, "kernels", seconds=540)[1]["kernels"]["state"] == state


def test_what_runs_said_in_a_stage_that_was_ended_is_in_its_log(stood_in, tmp_path):
    (tmp_path / "tree/tests/gpu/determinism.py").write_text(
        'import pathlib\nimport tempfile\nimport time\n\n\ndef main():\n    logs = pathlib.Path(tempfile.mkdtemp()) / "runs/whole/logs"\n'
        '    logs.mkdir(parents=True)\n    (logs / "teacher.log").write_text("x" * 2**17 + "waits for the GPU\\n")\n    time.sleep(1000)\n')
    _, stages = stood_in("determinism")
    log = (tmp_path / "results/log.txt").read_text()
    assert stages["determinism"]["reason"] == "not done after 5 s"
    assert "runs/whole/logs/teacher.log" in log and "waits for the GPU" in log and len(log) < 2**17
    assert not (tmp_path / "work/tmp").exists()


# A run whose teacher, in its own process group, prints a line and hangs; the run waits for it or fails.
FAILING_RUN = f"""#!{sys.executable}
import pathlib, subprocess, sys
if sys.argv[1] == "problems":
    pathlib.Path(sys.argv[sys.argv.index("--output") + 1]).write_text("")
elif sys.argv[1] == "run":
    settings = dict(setting.split("=", 1) for setting in sys.argv if "=" in setting)
    logs = pathlib.Path(settings["run.output_dir"], settings["run.name"], "logs")
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "teacher.log").write_text("no memory for the teacher\\n")
    if HANGS:
        subprocess.run(["sleep", "{SLEEP}"], process_group=0)
    sys.exit("the teacher ended")
"""


@pytest.mark.parametrize("hangs, why", [(False, r"dapd run ended with code 1: the teacher ended"), (True, r"dapd run was not done after \d+ s: no output")])
@pytest.mark.parametrize("stage, parts", [("run", ["until it is stopped", "continued"]), ("determinism", ["a whole run"])])
def test_a_run_that_fails_or_hangs_leaves_its_logs_in_the_output(tmp_path, stage, parts, hangs, why):
    program = FAILING_RUN.replace("HANGS", str(hangs))
    if stage == "determinism":  # asks for a key before the run
        program = program.replace("elif", 'elif sys.argv[1] == "config-reference":\n    print("`model.deterministic`")\nelif', 1)
    (tmp_path / "dapd").write_text(program)
    (tmp_path / "dapd").chmod(0o755)
    record = tmp_path / "record"
    result = subprocess.run([sys.executable, GPU / "stage.py", stage], capture_output=True, text=True, env={
        **os.environ, "DAPD_BIN": str(tmp_path), "DAPD_GPU_REHEARSAL": "1", "DAPD_BENCHMARK_RECORD": str(record),
        "DAPD_BENCHMARK_DEADLINE": str(time.time() + 14)})
    figures = {line["figure"]: line["value"] for line in map(json.loads, record.read_text().splitlines()) if "figure" in line}
    assert all(re.fullmatch(f"not known: {why}", figures[part]) for part in parts), result.stderr
    assert "no memory for the teacher" in result.stderr and result.returncode == 1
    assert left_behind() == ""


# A test program: one test fails and takes the GPU from the tests after it, one ends the process, and one does not end.
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


# This stand-in behaves as if the GPU did not work: it makes problems and fails where a GPU is needed.
DAPD = """#!/usr/bin/env python3
import json, pathlib, sys
if sys.argv[1] == "config-reference":
    print("`model.deterministic`")
elif sys.argv[1] == "problems":
    output = pathlib.Path(sys.argv[sys.argv.index("--output") + 1])
    output.write_text("".join(json.dumps({"problem": "p", "solution": "s"}) + "\\n" for _ in range(40)))
else:
    sys.exit("illegal access")
"""


@pytest.mark.parametrize("stage, parts", [
    ("parity", ["laboratory: logits", "laboratory: objective", "laboratory: steps", "answers"]),
    ("determinism", ["answers, float32", "answers, bfloat16", "steps", "a whole run"]),
])
def test_a_part_of_a_stage_that_fails_does_not_keep_the_others_from_running(tmp_path, stage, parts):
    (tmp_path / "dapd").write_text(DAPD)
    (tmp_path / "dapd").chmod(0o755)
    record = tmp_path / "record"
    result = subprocess.run([sys.executable, GPU / "stage.py", stage], capture_output=True, text=True, env={
        **os.environ, "DAPD_BIN": str(tmp_path), "DAPD_GPU_REHEARSAL": "1", "DAPD_BENCHMARK_RECORD": str(record)})
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert [line["figure"] for line in lines[1:]] == parts, result.stderr
    assert all(line["value"].startswith("not known: ") and "illegal access" in line["value"] for line in lines[1:])
    assert result.returncode == 1 and all(f"{stage}: {part}: " in result.stderr.strip().splitlines()[-1] for part in parts)


def test_a_program_that_hangs_takes_no_more_than_its_share(tmp_path):
    (tmp_path / "dapd").write_text(DAPD.replace("else:", 'elif sys.argv[1] == "generate":\n    __import__("time").sleep(600)\nelse:'))
    (tmp_path / "dapd").chmod(0o755)
    record, start = tmp_path / "record", time.time()
    result = subprocess.run([sys.executable, GPU / "stage.py", "parity"], capture_output=True, text=True, env={
        **os.environ, "DAPD_BIN": str(tmp_path), "DAPD_GPU_REHEARSAL": "1", "DAPD_BENCHMARK_RECORD": str(record),
        "DAPD_BENCHMARK_DEADLINE": str(start + 20)})
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert result.returncode == 1 and time.time() - start < 20
    assert lines[-1]["figure"] == "answers" and re.search(r"generate was not done after \d+ s", lines[-1]["value"]), result.stderr


def test_without_a_sanitizer_its_stage_says_so(stood_in):
    _, stages = stood_in("sanitizer")
    assert stages["sanitizer"]["state"] == "not run" and stages["sanitizer"]["reason"] == "left out: this machine has no compute-sanitizer"


def test_without_a_profiler_its_stage_says_so(stood_in):
    _, stages = stood_in("profile")
    assert stages["profile"]["state"] == "not run" and stages["profile"]["reason"] == "left out: this machine has no Nsight Compute"


def test_results_of_several_calls_come_together(stood_in):
    assert stood_in("kernels")[0].returncode == 0
    result, stages = stood_in("parity")
    assert result.returncode == 1 and list(stages) == ["kernels", "parity"]
    assert stood_in("run")[1]["kernels"] == stages["kernels"]


def test_results_that_do_not_belong_together_are_all_kept(stood_in, tmp_path):
    """Results of a rehearsal and of a GPU come in turns."""
    for arguments in (["kernels"], ["--rehearse", "G5"], ["kernels"], ["--rehearse", "G5"]):
        stood_in(*arguments)
    kept = [json.loads((tmp_path / "results" / f"{name}.json").read_text()) for name in ("results-before", "results-before-1", "results-before-2", "results")]
    assert [(content["rehearsal"], content["stages"][0]["stage"]) for content in kept] == [(False, "kernels"), (True, "G5")] * 2


def test_no_module_of_a_stage_has_the_name_of_a_package_that_transformers_looks_for():
    """Stages have these folders before all packages in their path, and transformers imports any module it finds to read its version."""
    source = importlib.util.find_spec("transformers").submodule_search_locations[0]
    wanted = set(re.findall(r'_is_package_available\("(\w+)"', pathlib.Path(source, "utils/import_utils.py").read_text()))
    assert "kernels" in wanted
    assert not wanted & {path.stem for folder in ("gpu", "benchmarks", "oracle") for path in (ROOT / "tests" / folder).glob("*.py")}


def test_an_unknown_stage_is_a_usage_error(stood_in):
    result, stages = stood_in("G9")
    assert result.returncode == 2 and "no such stage: G9; there are kernels parity" in result.stderr and not stages
