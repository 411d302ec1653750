"""Workers that stay, trainers that are killed, and checks that the result does not show it."""

import os
import re
import shutil
import signal
import subprocess
import urllib.request

import history
from workspace import BIN, free_port, set_flags, wait_for

# Scenarios run with seeds 0 .. DAPD_SEEDS - 1; the short form uses one seed.
SEEDS = range(int(os.environ.get("DAPD_SEEDS", "1")))
# The run is slow enough that a fault falls into it on any machine.
SLOW = "train.before_micro_batch=sleep:150"
STEPS = 5
BATCH = 4
SETTINGS = {
    "trainer.steps": STEPS,
    "trainer.batch_size": BATCH,
    "trainer.peer_timeout_seconds": 60,
    "checkpoint.interval": 2,
    "checkpoint.keep": 1,
    "teacher.snapshot_interval": 2,
    "evaluation.kl_problems": 1,
    "evaluation.max_new_tokens": 4,
}


class Service:
    """One worker process on a port of its own. start() keeps the port after the process has died."""

    def __init__(self, workspace, role, name):
        self.workspace, self.role, self.name = workspace, role, name
        self.port, self.metrics_port = free_port(), free_port()
        self.process = None

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    @property
    def log_path(self):
        return self.workspace.folder / f"{self.name}.log"

    def start(self, failpoints="", **settings):
        flags = set_flags({f"{self.role}.listen": self.address, f"metrics.{self.role}_listen": f"127.0.0.1:{self.metrics_port}", **settings})
        with open(self.log_path, "a") as log:
            self.process = subprocess.Popen([BIN / f"dapd-{self.role}", self.workspace.config, *flags], stdout=log, stderr=log,
                                            env={**os.environ, "DAPD_FAILPOINTS": failpoints})
        return self

    def wait_until_healthy(self):
        def healthy():
            assert self.alive, f"{self.name} ended with {self.process.returncode}:\n{self.log_path.read_text()[-4000:]}"
            try:
                return urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/healthz", timeout=1).status == 200
            except OSError:
                return False

        wait_for(healthy, what=f"{self.name} healthy")
        return self

    def metric(self, name):
        return read_metric(self.metrics_port, name)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self, timeout=30):
        self.process.terminate()
        return self.process.wait(timeout)

    def suspend(self):
        self.process.send_signal(signal.SIGSTOP)

    def wake(self):
        self.process.send_signal(signal.SIGCONT)

    @property
    def alive(self):
        return self.process is not None and self.process.poll() is None


def read_metric(port, name):
    """Returns the sum over all labels of a metric; `name` may select by a label: 'x{outcome="lost"}'."""
    name, _, labels = name.partition("{")
    wanted = set(filter(None, labels.rstrip("}").split(",")))
    total = 0.0
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as reply:
        for line in reply.read().decode().splitlines():
            match = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line)
            if match and match[1] == name and wanted <= set((match[2] or "").split(",")):
                total += float(match[3])
    return total


class Cluster:
    """Rollout and teacher workers, with trainers that come and go."""

    def __init__(self, workspace, rollouts, teachers=1):
        self.workspace = workspace
        self.rollouts = [Service(workspace, "rollout", f"rollout-{i}") for i in range(rollouts)]
        self.teachers = [Service(workspace, "teacher", f"teacher-{i}") for i in range(teachers)]
        self.trainers = []
        self.metrics_port = free_port()

    @property
    def services(self):
        return self.rollouts + self.teachers

    def start(self):
        for service in self.services:
            service.start()
        for service in self.services:
            service.wait_until_healthy()
        return self

    def say_who_is_dead(self):
        """Prints which workers are dead, for the output of a failed test: 0 and -9 are mostly the scenario's doing,
        other codes are not."""
        for service in self.services:
            if not service.alive:
                print(f"{service.name} at {service.address} has ended: {service.process and service.process.returncode}")

    def revive(self):
        """Restarts or continues what a scenario left dead or stopped."""
        for service in self.services:
            if service.alive:
                service.wake()
            else:
                service.start().wait_until_healthy()

    def start_trainer(self, name, failpoints="", rollouts=None, teachers=None, **settings):
        rollouts = rollouts or [service.address for service in self.rollouts]
        teachers = teachers or [service.address for service in self.teachers]
        flags = set_flags({
            **SETTINGS,
            "run.name": name,
            "evaluation.path": self.workspace.folder / "held_out.jsonl",
            "rollout.addresses": f"[{','.join(rollouts)}]",
            "teacher.addresses": f"[{','.join(teachers)}]",
            "trainer.listen": "127.0.0.1:0",
            "metrics.trainer_listen": f"127.0.0.1:{self.metrics_port}",
            **settings,
        })
        with open(self.log_path(name), "a") as log:
            trainer = subprocess.Popen([BIN / "dapd-trainer", self.workspace.config, *flags], stdout=log, stderr=log,
                                       env={**os.environ, "DAPD_FAILPOINTS": failpoints})
        self.trainers.append(trainer)
        return trainer

    def train(self, name, **arguments):
        """Runs a trainer to its end; returns its exit code."""
        return self.start_trainer(name, **arguments).wait(timeout=180)

    def log_path(self, name):
        return self.workspace.folder / f"{name}.trainer.log"

    def log(self, name):
        return self.log_path(name).read_text()

    def metric(self, name):
        return read_metric(self.metrics_port, name)

    def ready(self, role):
        """Returns to how many workers the trainer could give work."""
        return self.metric('dapd_trainer_workers{role="%s",state="ready"}' % role)

    def end_trainers(self):
        """Ends a trainer that a failed test may have left, which occupies the workers and its metrics port."""
        for trainer in self.trainers:
            if trainer.poll() is None:
                trainer.kill()
                trainer.wait()
        self.trainers.clear()

    def stop(self):
        self.end_trainers()
        for service in self.services:
            if service.alive:
                service.kill()


def steps_done(cluster, run):
    return len(cluster.workspace.metrics(run))


def finish(cluster, run, trainer, timeout=180):
    assert trainer.wait(timeout=timeout) == 0, cluster.log(run)


def stop_with_two_checkpoints(cluster, run, failpoint, **settings):
    """Kills the run at the failpoint, which comes after its second checkpoint; returns its name."""
    code = cluster.train(run, failpoints=failpoint, **{**settings, "checkpoint.keep": 2})
    assert code == -signal.SIGKILL, cluster.log(run)
    return run


def copy_run(workspace, source, target):
    """Copies a run; returns the checkpoints of the copy, oldest first."""
    shutil.copytree(workspace.runs(source), workspace.runs(target))
    return sorted((workspace.runs(target) / "checkpoints").iterdir())


def damage(folder, name, chance):
    """Flips one bit of a file."""
    path = folder / name
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


class Reference:
    """The result of an undisturbed run with this seed, this lag (rollout.max_staleness) and these settings."""

    def __init__(self, cluster, name="reference", lag=0, **settings):
        self.cluster, self.name, self.lag, self.more, self.runs = cluster, name, lag, settings, {}

    def result(self, name):
        workspace = self.cluster.workspace
        lines = [(line["step"], line["loss"], line["gradient_norm"], {n: t["value"] for n, t in line["terms"].items()}, line["adapter_digest"])
                 for line in workspace.metrics(name)]
        answers = workspace.runs(name) / "answers.jsonl"
        return workspace.adapter_digest(name), lines, answers.read_bytes() if answers.exists() else b""

    def settings(self, seed):
        return {"run.seed": 1000 + seed, "rollout.max_staleness": self.lag, **self.more}

    def check(self, name):
        return history.check(self.cluster.workspace.runs(name) / "ledger.jsonl", BATCH, STEPS, self.lag)

    def of_seed(self, seed):
        if seed not in self.runs:
            name = f"{self.name}-{seed}"
            code = self.cluster.train(name, **self.settings(seed))
            assert code == 0, self.cluster.log(name)
            self.check(name)
            self.runs[seed] = self.result(name)
        return self.runs[seed]

    def assert_equal(self, name, seed):
        """Checks that adapter, per-step losses and shown answers are equal, bit for bit, and that the history breaks no
        rule. Returns the History."""
        adapter, lines, answers = self.result(name)
        expected_adapter, expected_lines, expected_answers = self.of_seed(seed)
        assert lines == expected_lines, f"{name}: losses differ\n{self.cluster.log(name)}"
        assert adapter == expected_adapter, f"{name}: the adapter differs\n{self.cluster.log(name)}"
        assert answers == expected_answers, f"{name}: the answers shown differ\n{self.cluster.log(name)}"
        return self.check(name)
