#!/usr/bin/env python3
"""Copies the results of a run folder to Weights & Biases or MLflow, with their own clients, while the run goes on.

    deploy/follow.py runs/NAME --wandb PROJECT [--entity ENTITY] [--offline]
    deploy/follow.py runs/NAME --mlflow URI [--experiment NAME]

It reads metrics.jsonl, evaluation/*.json, config.yaml and outcome.json, and writes follow-wandb.json or
follow-mlflow.json beside them, with the id of the run on the server and what has been sent. So it may start before
the run, be stopped and continue later, also when the trainer resumes from its newest checkpoint: a step that was
done again is sent again if its adapter differs. It ends when the run does; with --wait only when the run has
finished. Errors of the follower never stop the run.

deploy/install.sh --follow installs the clients (in a release: docs/install.md); run the program with
.deps/venv/bin/python. WANDB_API_KEY, WANDB_BASE_URL, MLFLOW_TRACKING_TOKEN and the clients' other variables apply.
Without a network use --offline (`wandb sync` sends the data later), or --mlflow with a folder. The exit codes are
dapd's: 0 done, 2 usage, 4 a file that cannot be used, 5 the server accepts nothing, 130 interrupted.
"""

import argparse
import fcntl
import hashlib
import json
import math
import os
import pathlib
import secrets
import signal
import sys
import time

try:
    import yaml
except ImportError:
    yaml = None  # printed once the program's name is known

USAGE, CONFIG, DATA, UNREACHABLE, INTERRUPTED = 2, 3, 4, 5, 130
# Settings that are not sent: addresses, paths, and possible secrets.
LEFT_OUT = ("security.", "run.notify_")
# A server may accept nothing for this long before the follower gives up. The files stay, so nothing is lost.
PATIENCE = 3600
MLFLOW_METRICS, MLFLOW_PARAMS, MLFLOW_TEXT = 1000, 100, 500  # per call


class Refused(Exception):
    """An error that no further attempt mends: (exit code, message)."""


def say(text):
    print(f"follow: {''.join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))}", file=sys.stderr, flush=True)


# --- The run folder -----------------------------------------------------------


def numbers(values, path=""):
    """Returns what a chart can show: {"terms": {"a": {"value": 1}}} becomes {"terms/a/value": 1.0}."""
    found = {}
    for key, value in values.items():
        name = f"{path}/{key}" if path else str(key)
        if isinstance(value, dict):
            found.update(numbers(value, name))
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            found[name] = float(value)
    return found


def settings(folder):
    """Returns config.yaml as dotted key -> value."""
    try:
        text = (folder / "config.yaml").read_text(encoding="utf-8")
        config = yaml.safe_load(text)
        if not isinstance(config, dict):
            raise yaml.YAMLError("not a mapping")
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise Refused(DATA, f"{folder / 'config.yaml'}: {error}") from error

    def flatten(node, name):
        if not isinstance(node, dict) or not node:
            return {name: node}
        return {key: value for part, below in node.items() for key, value in flatten(below, f"{name}.{part}" if name else str(part)).items()}

    return {key: value for key, value in flatten(config, "").items() if not key.startswith(LEFT_OUT)}


class Lines:
    """The whole lines of metrics.jsonl, also after the trainer has replaced or truncated the file."""

    def __init__(self, path):
        self.path, self.file, self.rest, self.line = path, None, b"", 0

    def _is_another(self):
        now, held = os.stat(self.path), os.fstat(self.file.fileno())
        return (now.st_dev, now.st_ino) != (held.st_dev, held.st_ino) or now.st_size < self.file.tell()

    def read(self):
        try:
            if self.file is None or self._is_another():
                self.close()
                self.file, self.rest, self.line = open(self.path, "rb"), b"", 0
        except FileNotFoundError:
            return
        while block := self.file.read(1 << 20):
            *lines, self.rest = (self.rest + block).split(b"\n")
            for line in lines:
                self.line += 1
                if not line:
                    continue
                try:
                    row = json.loads(line)
                    if not isinstance(row["step"], int):
                        raise TypeError("its step is not a number")
                except (ValueError, KeyError, TypeError) as error:
                    raise Refused(DATA, f"{self.path}:{self.line} is not a step: {error}") from error
                yield line, row

    def close(self):
        if self.file is not None:
            self.file.close()
        self.file = None


def read_json(path):
    """Returns None if the file does not exist, or not yet."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def take_lock(file, kind):
    """Returns whether the lock was taken. On a file system that cannot lock, no other process has it."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise Refused(CONFIG, f"cannot lock {file.name}: {error.strerror}; have its file system mounted with locks, or copy the run to another") from error
    return True


def is_held(folder):
    """Returns whether a trainer has the run. It takes the run's lock for a moment; a trainer that starts waits for it."""
    try:
        lock = open(folder / ".lock", "rb")
    except OSError:
        return False
    with lock:
        return not take_lock(lock, fcntl.LOCK_SH)


# --- Where it goes ------------------------------------------------------------


def needs(package):
    deploy = pathlib.Path(__file__).resolve().parent
    command = "deploy/install.sh --follow"
    if not (deploy / "install.sh").exists():  # in a release
        command = f"`python3 -m venv .deps/venv && .deps/venv/bin/python -m pip install --no-deps -r deploy/requirements.txt -r deploy/requirements-follow.txt` in {deploy.parent}"
    raise Refused(USAGE, f"the package {package} is missing; {command} installs it, and .deps/venv/bin/python has it then")


class WandbSink:
    def __init__(self, arguments, folder):
        try:
            import wandb
        except ImportError:
            needs("wandb")
        self.wandb, self.arguments, self.folder, self.run = wandb, arguments, folder, None

    def new_id(self, name):
        return secrets.token_hex(4)

    def open(self, run_id, is_new, name, config):
        offline = {"mode": "offline"} if self.arguments.offline else {"resume": "allow"}
        # Only the content of the run folder is sent: neither this process's output nor data about the machine or a
        # repository.
        quiet = self.wandb.Settings(console="off", disable_git=True, disable_code=True, x_disable_stats=True)
        try:
            self.run = self.wandb.init(project=self.arguments.wandb, entity=self.arguments.entity, id=run_id, name=name, config=config,
                                       dir=str(self.folder), settings=quiet, **offline)
        except self.wandb.errors.UsageError as error:  # for example without a key
            raise Refused(USAGE, f"wandb: {error}") from error
        # The charts have their own axis: W&B's steps may not go back, a trainer's may.
        self.run.define_metric("step")
        self.run.define_metric("*", step_metric="step")

    def log(self, step, values):
        self.run.log({"step": step, **values})

    def close(self, state):
        if self.run is not None:
            self.run.finish(exit_code=0 if state in ("finished", None) else 1)
        self.run = None


class MlflowSink:
    STATES = {"finished": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}

    def __init__(self, arguments, folder):
        # MLflow 3 requires this option for a folder.
        if "://" not in arguments.mlflow or arguments.mlflow.startswith("file:"):
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        try:
            import mlflow
            from mlflow.entities import Metric, Param
        except ImportError:
            needs("mlflow-skinny")
        self.metric, self.param, self.arguments, self.run_id = Metric, Param, arguments, None
        self.client = mlflow.MlflowClient(tracking_uri=arguments.mlflow)

    def new_id(self, name):
        experiment = self.client.get_experiment_by_name(self.arguments.experiment)
        experiment_id = experiment.experiment_id if experiment is not None else self.client.create_experiment(self.arguments.experiment)
        return self.client.create_run(experiment_id, run_name=name).info.run_id

    def open(self, run_id, is_new, name, config):
        if is_new:  # they may change later, and MLflow's cannot
            params = [self.param(key, str(value)[:MLFLOW_TEXT]) for key, value in config.items()]
            for begin in range(0, len(params), MLFLOW_PARAMS):
                self.client.log_batch(run_id, params=params[begin : begin + MLFLOW_PARAMS])
        else:
            self.client.update_run(run_id, status="RUNNING")
        self.run_id = run_id

    def log(self, step, values):
        now = int(time.time() * 1000)
        metrics = [self.metric(key, value, now, step) for key, value in values.items()]
        for begin in range(0, len(metrics), MLFLOW_METRICS):
            self.client.log_batch(self.run_id, metrics=metrics[begin : begin + MLFLOW_METRICS])

    def close(self, state):
        if self.run_id is not None and state is not None:
            self.client.set_terminated(self.run_id, status=self.STATES[state])


# --- Following ----------------------------------------------------------------


class Follower:
    def __init__(self, folder, sink, kind):
        self.folder, self.sink, self.kind = folder, sink, kind
        self.path = folder / f"follow-{kind}.json"
        self.lines = Lines(folder / "metrics.jsonl")
        self.state = {"id": None, "opened": False, "steps": {}, "evaluations": {}}
        self.lock = None
        self.exits = False  # a trainer that is done

    def begin(self):
        """Continues from the state of an earlier follower. Only one follower may run at a time."""
        try:
            self.lock = open(self.folder / f".follow-{self.kind}.lock", "a")
        except OSError as error:  # for example another user's folder
            raise Refused(DATA, f"{error}; the follower keeps in that folder what it has sent") from error
        if not take_lock(self.lock, fcntl.LOCK_EX):
            raise Refused(USAGE, f"another follower already sends {self.folder} to {self.kind}")
        if self.path.exists():
            known = read_json(self.path)
            if known is None or not {"id", "opened"} <= set(known) or not all(isinstance(known.get(key), dict) for key in ("steps", "evaluations")):
                raise Refused(DATA, f"{self.path} is damaged; remove it, and the run starts anew there under another id")
            self.state = known
        if self.state["id"] is None:
            self.state["id"] = self.sink.new_id(self.folder.name)
            self.save()
        config = settings(self.folder)
        self.exits = config.get("trainer.when_done") == "exit"
        self.sink.open(self.state["id"], not self.state["opened"], self.folder.name, config)
        self.state["opened"] = True
        self.save()

    def save(self):
        aside = self.path.with_suffix(f".tmp-{os.getpid()}")
        aside.unlink(missing_ok=True)
        with open(aside, "x") as file:
            json.dump(self.state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, self.path)

    def _send(self, kind, key, mark, step, values):
        if self.state[kind].get(key) == mark:
            return False
        self.sink.log(step, values)
        self.state[kind][key] = mark
        return True

    def look(self):
        """Sends what is new; returns whether anything was."""
        sent = 0
        try:
            for line, row in self.lines.read():
                # A step that was done again to the same adapter differs only in its times.
                mark = str(row.get("adapter_digest") or hashlib.sha256(line).hexdigest())[:16]
                values = numbers({key: value for key, value in row.items() if key != "step"})
                sent += self._send("steps", str(row["step"]), mark, row["step"], values)
            for path in sorted(self.folder.glob("evaluation/*.json")):
                report = read_json(path)
                if report is None or not isinstance(report.get("policy_version"), int):
                    continue
                figures = numbers({key: value for key, value in report.items() if key not in ("answers", "policy_version")}, "evaluation")
                mark = hashlib.sha256(json.dumps(figures, sort_keys=True).encode()).hexdigest()[:16]
                sent += self._send("evaluations", path.stem, mark, report["policy_version"], figures)
        except BaseException:
            # What could not be sent is read again.
            self.lines.close()
            raise
        finally:
            if sent:
                self.save()
        return sent > 0

    def ended(self, wait):
        """Returns "finished", "failed" or "stopped", or None while the run may still go on."""
        state = (read_json(self.folder / "outcome.json") or {}).get("state")
        if state == "finished":
            # A trainer that has the run now is about to resume it, or has resumed it, with more steps.
            return None if self.exits and is_held(self.folder) else state
        # A trainer that resumes removes the file a moment after it has taken the lock.
        return state if state in ("failed", "stopped") and not wait and not is_held(self.folder) else None


def follow(arguments):
    folder = pathlib.Path(arguments.run)
    if not folder.is_dir() and not arguments.wait:
        raise Refused(DATA, f"{folder} is not a run folder; --wait waits for it")
    while not (folder / "config.yaml").exists():
        if not arguments.wait and not is_held(folder):
            raise Refused(DATA, f"{folder} holds no run: there is no {folder / 'config.yaml'}; --wait waits for it")
        time.sleep(arguments.interval)
    kind = "wandb" if arguments.wandb else "mlflow"
    sink = (WandbSink if arguments.wandb else MlflowSink)(arguments, folder)
    follower = Follower(folder, sink, kind)
    failing_since, pause, begun, state = None, arguments.interval, False, None
    try:
        while True:
            try:
                if not begun:
                    follower.begin()
                    begun = True
                # The end is read first, so that everything written before it is sent.
                state = follower.ended(arguments.wait)
                follower.look()
                failing_since, pause = None, arguments.interval
                if state is not None or arguments.once:
                    return
            except (Refused, KeyboardInterrupt):
                raise
            except Exception as error:  # clients raise errors of any kind
                failing_since = failing_since or time.monotonic()
                if arguments.once or time.monotonic() - failing_since > PATIENCE:
                    raise Refused(UNREACHABLE, f"{kind} accepts nothing: {type(error).__name__}: {error}; the same command resumes") from error
                say(f"{kind}: {type(error).__name__}: {error}; trying again in {pause:.0f} s")
                pause = min(2 * pause, 60)
            time.sleep(pause)
    finally:
        if begun:
            sink.close(state)


def interrupt(*_):
    raise KeyboardInterrupt


def main():
    parser = argparse.ArgumentParser(description="Follows a run folder into Weights & Biases or MLflow.")
    parser.add_argument("run", help="the run's folder")
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--wandb", metavar="PROJECT", help="to Weights & Biases")
    target.add_argument("--mlflow", metavar="URI", help="to an MLflow server, or into a folder")
    parser.add_argument("--entity", help="the project's team or user at W&B")
    parser.add_argument("--experiment", default="dapd", help="of MLflow (%(default)s)")
    parser.add_argument("--offline", action="store_true", help="W&B: keep it in the run folder, for `wandb sync`")
    parser.add_argument("--wait", action="store_true", help="wait for the run to begin, and continue after a failure or a stop")
    parser.add_argument("--once", action="store_true", help="send what there is and exit")
    parser.add_argument("--interval", type=float, default=5.0, help="seconds between two checks (%(default)s)")
    arguments = parser.parse_args()
    if not 0 < arguments.interval <= 3600:
        parser.error("--interval must be above 0 and at most 3600")
    signal.signal(signal.SIGTERM, interrupt)
    try:
        if yaml is None:
            needs("PyYAML")
        follow(arguments)
    except Refused as error:
        code, message = error.args
        say(message)
        return code
    except OSError as error:
        say(error)
        return DATA
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
