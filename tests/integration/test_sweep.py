"""`dapd sweep` with real runs: all of them, a second call, after a failure, and after an interruption."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess

import pytest
from conftest import BIN, ROOT, set_flags, wait_for
from hold import Hold


def write_sweep(workspace, name, **keys):
    path = workspace.folder / f"{name}.yaml"
    path.write_text(json.dumps({"name": name, "config": str(workspace.config), **keys}))
    return path


def folder(workspace, name):
    return workspace.runs(name)


@pytest.fixture(scope="module")
def swept(workspace):
    path = write_sweep(workspace, "rates", set={"trainer.steps": 2}, grid={"trainer.learning_rate": [1e-4, 1e-2]}, seeds=[1, 2], parallel=2)
    return path, workspace.dapd("sweep", path, timeout=600)


def test_every_combination_is_run_and_compared(workspace, swept):
    _, result = swept
    runs = sorted(path.parent.name for path in folder(workspace, "rates").glob("*/summary.json"))
    assert runs == [f"learning_rate-{rate}-seed-{seed}" for rate in ("0.0001", "0.01") for seed in (1, 2)]
    assert all(run in result.stdout for run in runs)
    assert "curves: " in result.stderr and (folder(workspace, "rates") / "compare.html").stat().st_size > 10000


def test_all_that_lies_in_its_folder_can_be_compared(workspace, swept):
    everything = sorted(folder(workspace, "rates").iterdir())
    assert {"compare.html", "logs"} <= {path.name for path in everything}
    compared = json.loads(workspace.dapd("compare", *everything, "--json").stdout)
    assert len(compared["runs"]) == 4
    assert [(len(group["runs"]), group["seeds"]) for group in compared["groups"]] == [(2, 2), (2, 2)]
    nothing = workspace.dapd("compare", folder(workspace, "rates") / "compare.html", check=False)
    assert nothing.returncode == 2 and "no run's folder is named" in nothing.stderr


def test_a_run_of_a_sweep_is_the_run_by_itself(workspace, swept):
    workspace.run("one-of-the-rates", **{"trainer.steps": 2, "trainer.learning_rate": 0.01, "run.seed": 2})
    assert workspace.adapter_digest("one-of-the-rates") == workspace.adapter_digest("rates/learning_rate-0.01-seed-2")


def test_a_second_call_runs_nothing_again(workspace, swept):
    path, _ = swept
    before = {run: run.stat().st_mtime_ns for run in folder(workspace, "rates").glob("*/summary.json")}
    again = workspace.dapd("sweep", path)
    assert again.stderr.count("is already done") == 4 and " starts (" not in again.stderr
    assert {run: run.stat().st_mtime_ns for run in before} == before


def test_what_the_log_says_last_is_below_the_table(swept):
    path, _ = swept
    both = subprocess.run([BIN / "dapd", "sweep", path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240)
    assert both.returncode == 0 and "curves: " in both.stdout.splitlines()[-1]


def test_a_second_call_completes_the_copies_of_runs_that_are_done(workspace):
    copies = workspace.folder / "copies-of-sweeps"
    path = write_sweep(workspace, "copied", set={"trainer.steps": 1, "checkpoint.copy_to": str(copies)}, seeds=[1, 2])
    workspace.dapd("sweep", path)
    shutil.rmtree(copies)
    again = workspace.dapd("sweep", path)
    assert again.stderr.count("its copy is completed") == 2
    for seed in (1, 2):
        back = workspace.runs(f"seed-{seed}-of-a-copy")
        workspace.dapd("restore", copies / "copied" / f"seed-{seed}", back)
        assert (back / "summary.json").read_bytes() == (folder(workspace, "copied") / f"seed-{seed}/summary.json").read_bytes()


def test_a_failed_run_is_reported_and_the_rest_is_done(workspace):
    lost = workspace.folder / "lost-model"
    weights = workspace.model / "model.safetensors"
    shutil.copytree(workspace.model, lost, ignore=shutil.ignore_patterns(weights.name))
    path = write_sweep(workspace, "failing", set={"trainer.steps": 1},
                       list=[{"name": "bad", "set": {"model.path": str(lost)}}, {"name": "good"}])
    result = workspace.dapd("sweep", path, check=False)
    assert result.returncode == 4
    assert "bad failed with code 4" in result.stderr and str(lost) in result.stderr and "1 of 2 runs failed" in result.stderr
    assert (folder(workspace, "failing") / "good/summary.json").exists() and "good" in result.stdout
    shutil.copy(weights, lost)
    assert workspace.dapd("sweep", path).returncode == 0


def test_a_run_that_cannot_be_started_does_not_stop_those_beside_it(workspace):
    path = write_sweep(workspace, "unstarted", set={"trainer.steps": 2}, seeds=[1, 2, 3], parallel=2)
    in_the_way = folder(workspace, "unstarted") / "logs/seed-2.log"
    in_the_way.mkdir(parents=True)
    result = workspace.dapd("sweep", path, check=False)
    assert result.returncode == 4 and "1 of 3 runs failed: seed-2 (code 4)" in result.stderr, result.stderr
    assert "seed-2 cannot be started: cannot open the log" in result.stderr
    for seed in (1, 3):
        assert (folder(workspace, "unstarted") / f"seed-{seed}/summary.json").exists()
    in_the_way.rmdir()
    assert workspace.dapd("sweep", path).stderr.count("is already done") == 2


@pytest.fixture
def hold(tmp_path):
    hold = Hold(tmp_path / "hold")
    yield hold
    hold.release()


def test_an_interrupted_sweep_goes_on_where_it_was(workspace, hold):
    path = write_sweep(workspace, "stopped", set={"trainer.steps": 6, "trainer.schedule_steps": 10}, seeds=[1, 2])
    # The run waits after its second step until it has the signal, so it is interrupted in the middle on any machine.
    process = subprocess.Popen([BIN / "dapd", "sweep", path], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
                               env={**os.environ, "DAPD_FAILPOINTS": hold.at("step.after_metrics", 2)})
    wait_for(lambda: len(workspace.metrics("stopped/seed-1")) >= 2, seconds=180, what="two steps")
    process.send_signal(signal.SIGINT)
    log = folder(workspace, "stopped") / "logs/seed-1.log"
    wait_for(lambda: "signal received" in log.read_text(), what="the trainer told to stop")
    hold.release()
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 130, errors
    assert not (folder(workspace, "stopped") / "seed-2/config.yaml").exists()
    again = workspace.dapd("sweep", path)
    assert "seed-1 resumes" in again.stderr
    for seed in (1, 2):
        workspace.run(f"whole-{seed}", **{"trainer.steps": 6, "trainer.schedule_steps": 10, "run.seed": seed})
        assert workspace.adapter_digest(f"stopped/seed-{seed}") == workspace.adapter_digest(f"whole-{seed}")


def test_the_plan_names_runs_and_memory_and_starts_nothing(workspace):
    path = write_sweep(workspace, "planned", seeds=[1, 2, 3], memory_gib=1000)
    plan = workspace.dapd("sweep", path, "--plan").stdout
    assert "seed-3" in plan and "GiB" in plan and "3 runs, at most 3 at a time" in plan
    assert not folder(workspace, "planned").exists()


def test_the_documented_sweep_can_be_planned(workspace):
    example = re.search(r"^```yaml\n(name: rates\n.*?)^```", (ROOT / "docs/many-runs.md").read_text(), re.MULTILINE | re.DOTALL)[1]
    path = workspace.folder / "documented.yaml"
    path.write_text(example.replace("config: configs/", f"config: {ROOT}/configs/"))
    plan = workspace.dapd("sweep", path, "--plan", *set_flags({"model.path": workspace.model, "data.path": workspace.folder / "train.jsonl",
                                                               "evaluation.path": workspace.folder / "held_out.jsonl"})).stdout
    assert "12 runs, at most 4 at a time" in plan


def test_the_loop_of_the_main_table_plans_every_size(workspace, tmp_path):
    document = (ROOT / "docs/experiments.md").read_text()
    loop = re.search(r"^for size in 1\.7b 4b 8b 14b 32b; do\n.*?^  dapd sweep \S+ --plan", document, re.MULTILINE | re.DOTALL)[0]
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    flags = shlex.join(set_flags({"model.path": workspace.model, "data.path": workspace.folder / "train.jsonl", "rollout.max_new_tokens": 16,
                                  "objective.max_reference_tokens": 48}))
    planned = subprocess.run(["bash", "-c", f'set -e\ndapd() {{ "{BIN}/dapd" "$@" {flags}; }}\n{loop}\ndone'], cwd=tmp_path, text=True,
                             capture_output=True)
    assert planned.returncode == 0, planned.stderr
    assert [f"11 runs, at most 1 at a time, in runs/methods-{size}" in planned.stdout for size in ("1.7b", "4b", "8b", "14b", "32b")] == [True] * 5


def test_what_cannot_be_run_stops_the_sweep_before_it_starts(workspace):
    path = write_sweep(workspace, "wrong", grid={"lora.rank": [4, 0]})
    result = workspace.dapd("sweep", path, check=False)
    assert result.returncode == 3 and "rank-0: " in result.stderr and "lora.rank" in result.stderr
    assert not folder(workspace, "wrong").exists()


@pytest.mark.parametrize("plan", [[], ["--plan"]])
def test_data_that_a_run_cannot_read_stops_the_sweep_before_it_starts(workspace, plan):
    good, lost, other = (workspace.folder / f"{name}.jsonl" for name in ("train", "no-such", "other-columns"))
    other.write_text('{"question": "1 + 1?", "solution": "2"}\n')
    path = write_sweep(workspace, "unread", set={"trainer.steps": 1}, seeds=[1, 2], list=[
        {"name": "good", "set": {"data.path": str(good)}}, {"name": "column", "set": {"data.path": str(other)}},
        {"name": "lost", "set": {"evaluation.path": str(lost)}}, {"name": "long", "set": {"trainer.pack_tokens": 16}}])
    result = workspace.dapd("sweep", path, *plan, check=False)
    assert result.returncode == 4 and result.stdout == "", result.stderr
    assert all(text in result.stderr for text in ("column-seed-1: ", "problem", "lost-seed-1: ", str(lost), "long-seed-1: ", "cannot be trained"))
    assert "seed-2" not in result.stderr and "good" not in result.stderr, "each combination once"
    assert not folder(workspace, "unread").exists()


def test_a_finished_sweep_needs_its_data_no_more(workspace):
    data = workspace.folder / "once.jsonl"
    data.write_bytes((workspace.folder / "train.jsonl").read_bytes())
    path = write_sweep(workspace, "once", set={"trainer.steps": 1, "data.path": str(data)})
    workspace.dapd("sweep", path)
    data.unlink()
    assert "is already done" in workspace.dapd("sweep", path).stderr
