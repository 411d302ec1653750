"""Tests what deploy/follow.py sends to Weights & Biases and MLflow, with their own clients in offline mode. Where a server has to fail, or
its requests are checked, stand-ins of the clients' interfaces record the calls."""

import fcntl
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLLOW = ROOT / "deploy/follow.py"

# The part of both interfaces that is used. Each call is a line in $CALLS; log calls fail while $CALLS.down exists.
STAND_IN = '''
import json, os
def call(name, *what):
    if name.startswith("log") and os.path.exists(os.environ["CALLS"] + ".down"):
        raise ConnectionError("the server is away")
    with open(os.environ["CALLS"], "a") as file:
        file.write(json.dumps([name, *what]) + "\\n")
'''
WANDB = STAND_IN + '''
class errors:
    class UsageError(Exception): pass
class Settings:
    def __init__(self, **given): self.given = given
class Run:
    def define_metric(self, name, step_metric=None): pass
    def log(self, data): call("log", data)
    def finish(self, exit_code=None): call("finish", exit_code)
def init(*, id, name, config, project, entity, dir, settings, mode=None, resume=None):
    if project == "forbidden":
        raise errors.UsageError("no key")
    call("init", id, name, config, project, resume)
    return Run()
'''
MLFLOW = STAND_IN + '''
class Info:
    run_id = "run-1"
class Run:
    info = Info()
class MlflowClient:
    def __init__(self, tracking_uri): pass
    def get_experiment_by_name(self, name): return None
    def create_experiment(self, name): return "7"
    def create_run(self, experiment_id, run_name): call("create_run", experiment_id, run_name); return Run()
    def update_run(self, run_id, status): call("update_run", run_id, status)
    def log_batch(self, run_id, metrics=(), params=()):
        call("log_batch", run_id, [[m.key, m.value, m.step] for m in metrics], {p.key: p.value for p in params})
    def set_terminated(self, run_id, status): call("set_terminated", run_id, status)
'''
ENTITIES = '''
class Metric:
    def __init__(self, key, value, timestamp, step): self.key, self.value, self.step = key, value, step
class Param:
    def __init__(self, key, value): self.key, self.value = key, value
'''


class Run:
    """A run folder as a trainer writes it."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "evaluation").mkdir(parents=True)
        (folder / "config.yaml").write_text(
            "run:\n  seed: 3  # --set\n  notify_url: \"https://example.org/hidden\"\nsecurity:\n  tokens:\n    viewer: hidden\n")
        self.write([])

    def line(self, step, digest=None, loss=0.5):
        return json.dumps({"step": step, "loss": loss, "adapter_digest": digest or f"digest-{step}", "terms": {"a": {"value": 1.5}}, "left": None})

    def write(self, lines, cut=""):
        """Replaces the file by a new file, as a trainer that resumes does."""
        aside = self.folder / "metrics.jsonl.tmp"
        aside.write_text("".join(line + "\n" for line in lines) + cut)
        os.replace(aside, self.folder / "metrics.jsonl")

    def end(self, state):
        (self.folder / "outcome.json").write_text(json.dumps({"state": state, "exit_code": 0, "message": "", "time": 1}))


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path / "runs" / "first")


class Follow:
    def __init__(self, folder, run):
        self.run, self.calls_path = run, folder / "calls"
        (folder / "clients/mlflow").mkdir(parents=True)
        (folder / "clients/wandb.py").write_text(WANDB)
        (folder / "clients/mlflow/__init__.py").write_text(MLFLOW)
        (folder / "clients/mlflow/entities.py").write_text(ENTITIES)
        self.environment = {**os.environ, "PYTHONPATH": str(folder / "clients"), "CALLS": str(self.calls_path)}

    def start(self, *flags):
        return subprocess.Popen([sys.executable, FOLLOW, self.run.folder, "--interval", "0.05", *flags], env=self.environment,
                                stderr=subprocess.PIPE, text=True)

    def __call__(self, *flags, check=True):
        process = self.start(*flags)
        _, said = process.communicate(timeout=120)
        assert not check or process.returncode == 0, said
        return process.returncode, said

    def calls(self, name):
        lines = self.calls_path.read_text().splitlines() if self.calls_path.exists() else []
        return [call[1:] for call in map(json.loads, lines) if call[0] == name]

    def steps(self):
        return [values["step"] for (values,) in self.calls("log") if "loss" in values]

    def wait_for_steps(self, steps, process):
        deadline = time.monotonic() + 60
        while self.steps() != steps:
            assert process.poll() is None and time.monotonic() < deadline, (self.steps(), process.poll())
            time.sleep(0.02)


@pytest.fixture
def follow(tmp_path, run):
    return Follow(tmp_path, run)


def test_numbers_settings_and_evaluations_are_sent_and_no_secret(follow, run):
    run.write([run.line(1), run.line(2)], cut='{"step": 3, "lo')
    (run.folder / "evaluation/before.json").write_text(json.dumps(
        {"policy_version": 0, "accuracy": {"mean": 0.5, "low": 0.25, "high": 0.75}, "answers": [{"text": "hidden"}]}))
    run.end("finished")
    follow("--wandb", "project")
    ((run_id, name, config, project, resume),) = follow.calls("init")
    assert (name, config, project, resume) == ("first", {"run.seed": 3}, "project", "allow")
    assert json.loads((run.folder / "follow-wandb.json").read_text())["id"] == run_id
    first, _, evaluation = [values for (values,) in follow.calls("log")]
    assert first == {"step": 1, "loss": 0.5, "terms/a/value": 1.5}
    assert evaluation == {"step": 0, "evaluation/accuracy/mean": 0.5, "evaluation/accuracy/low": 0.25, "evaluation/accuracy/high": 0.75}
    assert follow.calls("finish") == [[0]] and "hidden" not in follow.calls_path.read_text()


def test_it_goes_on_where_it_was_and_sends_again_what_was_done_otherwise(follow, run):
    lines = [run.line(step) for step in (1, 2, 3)]
    run.write(lines)
    follow("--wandb", "project", "--once")
    follow("--wandb", "project", "--once")
    assert follow.steps() == [1, 2, 3]
    # The trainer resumes from a checkpoint of step 1: the second step comes out the same, the third does not.
    run.write([lines[0], run.line(2, loss=0.75), run.line(3, digest="other")])
    follow("--wandb", "project", "--once")
    assert follow.steps() == [1, 2, 3, 3]
    assert len({call[0] for call in follow.calls("init")}) == 1


def test_lines_that_are_cut_and_written_again_meanwhile(follow, run):
    run.write([run.line(1), run.line(2)])
    process = follow.start("--wandb", "project")
    follow.wait_for_steps([1, 2], process)
    run.write([run.line(1)])
    run.write([run.line(1), run.line(2, digest="other")])
    follow.wait_for_steps([1, 2, 2], process)
    with open(run.folder / "metrics.jsonl", "a") as file:
        file.write(run.line(3)[:20])
        file.flush()
        time.sleep(0.2)
        file.write(run.line(3)[20:] + "\n")
    follow.wait_for_steps([1, 2, 2, 3], process)
    run.end("failed")
    assert process.wait(timeout=60) == 0 and follow.calls("finish") == [[1]]
    process.stderr.close()


def test_a_server_that_is_away_is_tried_again_and_nothing_is_lost(follow, run):
    down = pathlib.Path(str(follow.calls_path) + ".down")
    down.touch()
    run.write([run.line(1)])
    process = follow.start("--wandb", "project")
    assert "trying again" in process.stderr.readline()
    down.unlink()
    follow.wait_for_steps([1], process)
    run.end("finished")
    assert process.wait(timeout=60) == 0
    process.stderr.close()
    down.touch()
    run.write([run.line(1), run.line(2)])
    code, said = follow("--wandb", "project", "--once", check=False)
    assert code == 5 and "accepts nothing" in said and "the same command resumes" in said


def test_a_run_that_a_trainer_holds_has_not_ended(follow, run):
    run.end("failed")
    with open(run.folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = follow.start("--wandb", "project")
        run.write([run.line(1)])
        follow.wait_for_steps([1], process)
        time.sleep(0.3)
        assert process.poll() is None
    assert process.wait(timeout=60) == 0
    process.stderr.close()


def test_a_finished_run_that_is_to_take_more_steps_has_not_ended(follow, run):
    with open(run.folder / "config.yaml", "a") as config:
        config.write("trainer:\n  when_done: exit\n")
    run.write([run.line(1)])
    run.end("finished")
    with open(run.folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = follow.start("--wandb", "project")
        follow.wait_for_steps([1], process)
        time.sleep(0.3)
        assert process.poll() is None
        (run.folder / "outcome.json").unlink()
        run.write([run.line(1), run.line(2)])
        follow.wait_for_steps([1, 2], process)
        run.end("finished")
    assert process.wait(timeout=60) == 0 and follow.calls("finish") == [[0]]
    process.stderr.close()


def test_a_follower_that_is_stopped_says_so_and_a_second_one_is_refused(follow, run):
    run.write([run.line(1)])
    process = follow.start("--wandb", "project")
    follow.wait_for_steps([1], process)
    code, said = follow("--wandb", "project", check=False)
    assert code == 2 and "another follower" in said
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 130
    process.stderr.close()


def test_mlflow_gets_the_same(follow, run):
    run.write([run.line(1)])
    follow("--mlflow", "http://mlflow", "--experiment", "mine", "--once")
    run.write([run.line(1), run.line(2)])
    run.end("stopped")
    follow("--mlflow", "http://mlflow", "--experiment", "mine")
    assert follow.calls("create_run") == [["7", "first"]] and follow.calls("update_run") == [["run-1", "RUNNING"]]
    batches = follow.calls("log_batch")
    assert batches[0] == ["run-1", [], {"run.seed": "3"}]
    assert [sorted(batch[1]) for batch in batches[1:]] == [[["loss", 0.5, step], ["terms/a/value", 1.5, step]] for step in (1, 2)]
    assert follow.calls("set_terminated") == [["run-1", "KILLED"]]


def test_what_cannot_be_followed_is_said(follow, run, tmp_path):
    code, said = follow("--wandb", "forbidden", check=False)
    assert code == 2 and "no key" in said
    run.write(["[]"])
    code, said = follow("--wandb", "project", check=False)
    assert code == 4 and "metrics.jsonl:1 is not a step" in said
    (run.folder / "follow-wandb.json").write_text("{")
    code, said = follow("--wandb", "project", check=False)
    assert code == 4 and "follow-wandb.json is damaged" in said
    (run.folder / "config.yaml").unlink()
    code, said = follow("--wandb", "project", check=False)
    assert code == 4 and "holds no run" in said


def test_a_folder_that_cannot_be_written_is_no_server_that_takes_nothing(follow, run):
    """The error comes at once; there are no retries for an hour, as for a server that fails."""
    (run.folder / ".follow-wandb.lock").mkdir()
    code, said = follow("--wandb", "project", check=False)
    assert code == 4 and ".follow-wandb.lock" in said and "keeps in that folder what it has sent" in said and "trying again" not in said


def test_the_settings_are_utf_8_whatever_the_locale(follow, run):
    (run.folder / "config.yaml").write_text("prompts:\n  none: \"\u00e9\"\n", encoding="utf-8")
    run.end("finished")
    follow.environment |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    follow("--wandb", "project")
    ((_, _, config, _, _),) = follow.calls("init")
    assert config == {"prompts.none": "\u00e9"}


def test_without_the_client_the_message_says_how_to_get_it(run, tmp_path):
    (tmp_path / "clients").mkdir()
    (tmp_path / "clients/wandb.py").write_text("raise ImportError('no')")
    result = subprocess.run([sys.executable, FOLLOW, run.folder, "--wandb", "project"], capture_output=True, text=True, timeout=60,
                            env={**os.environ, "PYTHONPATH": str(tmp_path / "clients")})
    assert result.returncode == 2 and "deploy/install.sh --follow" in result.stderr


@pytest.mark.parametrize("module", ["wandb", "yaml"])
def test_in_a_release_it_names_the_commands_that_a_release_has(run, module, tmp_path):
    """A tarball has the lists of packages but no deploy/install.sh."""
    (tmp_path / "clients").mkdir()
    (tmp_path / f"clients/{module}.py").write_text("raise ImportError('no')")
    (tmp_path / "release/deploy").mkdir(parents=True)
    shutil.copy(FOLLOW, tmp_path / "release/deploy")
    result = subprocess.run([sys.executable, tmp_path / "release/deploy/follow.py", run.folder, "--wandb", "project"], capture_output=True, text=True,
                            timeout=60, env={**os.environ, "PYTHONPATH": str(tmp_path / "clients")})
    assert result.returncode == 2 and "install.sh" not in result.stderr and "Traceback" not in result.stderr
    named = [word for word in result.stderr.replace("`", " ").split() if word.startswith("deploy/requirements")]
    assert named == ["deploy/requirements.txt", "deploy/requirements-follow.txt"] and all((ROOT / name).exists() for name in named)
    assert f"in {tmp_path}/release" in result.stderr


def test_no_link_in_its_way_is_written_through(follow, run, tmp_path):
    others = [tmp_path / "one", tmp_path / "two"]
    for other in others:
        other.write_text("kept")
    (run.folder / ".follow-wandb.lock").symlink_to(others[0])
    run.write([run.line(1)])
    run.end("finished")
    # The temporary name ends with the process id of follow.py, which exec keeps.
    script = 'ln -s "$1" "$2/follow-wandb.tmp-$$" && exec "$3" "$4" "$2" --wandb project --interval 0.05'
    subprocess.run(["bash", "-c", script, "bash", others[1], run.folder, sys.executable, FOLLOW], env=follow.environment, check=True, timeout=120)
    assert [other.read_text() for other in others] == ["kept", "kept"]
    assert not (run.folder / "follow-wandb.json").is_symlink()


@pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="needs wandb, which deploy/install.sh --follow installs")
def test_wandb_itself_keeps_the_run_offline(run):
    run.write([run.line(1), run.line(2)])
    run.end("finished")
    result = subprocess.run([sys.executable, FOLLOW, run.folder, "--wandb", "project", "--offline", "--interval", "0.1"],
                            capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    run_id = json.loads((run.folder / "follow-wandb.json").read_text())["id"]
    (kept,) = run.folder.glob(f"wandb/offline-run-*/run-{run_id}.wandb")
    assert b"terms/a/value" in kept.read_bytes() and b"hidden" not in kept.read_bytes()


@pytest.mark.skipif(importlib.util.find_spec("mlflow") is None, reason="needs mlflow-skinny, which deploy/install.sh --follow installs")
def test_mlflow_itself_keeps_the_run_in_a_folder(run, tmp_path):
    store = tmp_path / "store"
    for lines, state in (([run.line(1)], "stopped"), ([run.line(1), run.line(2, loss=0.25)], "finished")):
        run.write(lines)
        run.end(state)
        result = subprocess.run([sys.executable, FOLLOW, run.folder, "--mlflow", store, "--experiment", "mine", "--interval", "0.1"],
                                capture_output=True, text=True, timeout=300)
        assert result.returncode == 0, result.stderr
    run_id = json.loads((run.folder / "follow-mlflow.json").read_text())["id"]
    (folder,) = store.glob(f"*/{run_id}")
    losses = [line.split() for line in (folder / "metrics/loss").read_text().splitlines()]
    assert [(float(value), int(step)) for _, value, step, *_ in losses] == [(0.5, 1), (0.25, 2)]
    assert (folder / "metrics/terms/a/value").exists() and (folder / "params/run.seed").read_text() == "3"
