"""Tests what operators do to compose runs on a real engine: two runs at once, more and fewer workers, another image, lost containers.

It takes some minutes on two cores, so it runs only on request: TEST_OPERATIONS=1.
"""

import json
import os
import shutil
import subprocess
import sys

import pytest

from compose_project import BATCH, CONFIG, Project, adapter_digest, values_of_label
from container_engine import ROOT
from waiting import wait_for

pytestmark = pytest.mark.skipif("TEST_OPERATIONS" not in os.environ, reason="takes minutes: TEST_OPERATIONS=1 runs it")

# NEXT_RELEASE replaces RELEASE: a program contains its version as a text, and the next build differs in nothing else.
RELEASE, NEXT_RELEASE = "0.1.0", "0.1.1"
# Steps are so slow that the operations fall into few steps on any machine.
SLOW_STEPS = """
services:
  trainer:
    environment: {DAPD_FAILPOINTS: "train.before_micro_batch=sleep:300"}
"""


@pytest.fixture(scope="module")
def version(package):
    return subprocess.run([package / "bin/dapd", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]


@pytest.fixture(scope="module")
def next_image(engine, image, package, version, tmp_path_factory):
    """Returns (tag, version) of an image whose programs report another version."""
    folder = tmp_path_factory.mktemp("next")
    (folder / "bin").mkdir()
    next_version = version.replace(RELEASE, NEXT_RELEASE)
    assert next_version != version
    for program in (package / "bin").iterdir():
        content = program.read_bytes()
        assert version.encode() in content, program
        (folder / "bin" / program.name).write_bytes(content.replace(version.encode(), next_version.encode()))
        shutil.copymode(program, folder / "bin" / program.name)
    (folder / "Dockerfile").write_text(f"FROM {image}\nCOPY bin /opt/dapd/bin\n")
    engine.docker("build", "--tag", "dapd:next", folder)
    shutil.rmtree(folder)
    assert engine.docker("run", "--rm", "dapd:next", "dapd", "--version").stdout.splitlines()[0] == next_version
    return "dapd:next", next_version


class Run(Project):
    """A project with its numbers of workers and the port of its status page on this machine."""

    def __init__(self, engine, name, folder, seed, port):
        slow = folder / "slow.yaml"
        slow.write_text(SLOW_STEPS)
        super().__init__(engine, name, folder, seed=seed, files=[slow], DAPD_STATUS_PORT=str(port))
        self.page = f"127.0.0.1:{port}"
        self.scale = {"rollout": 2, "teacher": 1}

    def up(self, *arguments):
        scale = [part for role, count in self.scale.items() for part in ("--scale", f"{role}={count}")]
        self.compose("up", "--detach", *scale, *arguments)

    def serves(self):
        """Returns whether the trainer can give tasks to every expected worker container and knows no other address."""
        own = {role: self.addresses(role) for role in self.scale}
        return all(len(own[role]) == count and self.workers(role) == dict.fromkeys(own[role], "ready") for role, count in self.scale.items())

    def wait_until_it_serves(self):
        wait_for(self.serves, f"a trainer of {self.name} with all of its workers and nobody else's", 180)

    def ledger(self, event):
        lines = map(json.loads, (self.run_folder / "ledger.jsonl").read_text().splitlines())
        return [line for line in lines if line["event"] == event]


@pytest.fixture(scope="module")
def runs(engine, image, tmp_path_factory):
    """Starts two runs at once from one folder of configurations."""
    folder = tmp_path_factory.mktemp("operations") / "configs"
    folder.mkdir()  # readable for the containers' user, unlike pytest's own folder
    both = Run(engine, "amber", folder, seed=1, port=9103), Run(engine, "birch", folder, seed=2, port=9113)
    try:
        for run in both:
            run.up()
        for run in both:
            run.wait_until_it_serves()
            run.wait_for_step(1)
        yield both
    finally:
        for run in both:
            print(run.compose("logs", "--no-color", "--tail=15", check=False).stdout)
            run.down()


@pytest.fixture
def amber(runs):
    return runs[0]


@pytest.fixture
def birch(runs):
    return runs[1]


def test_two_runs_have_pages_metrics_volumes_and_workers_of_their_own(runs):
    for run in runs:
        status = json.loads(run.engine.fetch(f"http://{run.page}/status.json"))
        assert status["run_name"] == run.status()["run_name"] == run.name
        assert run.serves()
        for text in (run.metrics(run.page), *(run.metrics(f"{address}:9101") for address in run.addresses("rollout"))):
            assert values_of_label(text, "run") == {run.name}
        mounts = json.loads(run.engine.inspect(run.container("trainer"), "{{json .Mounts}}"))
        assert {mount["Name"] for mount in mounts if mount["Type"] == "volume"} == {f"{run.name}_input", f"{run.name}_runs"}
        assert [path.name for path in run.runs.iterdir()] == [run.name]
    amber, birch = runs
    assert not amber.addresses("rollout") & birch.addresses("rollout")


def test_no_container_of_a_run_reaches_one_of_the_other(runs):
    for own, other in (runs, runs[::-1]):
        def reaches(service, address):
            command = ("dapd", "health", address, "--timeout", "2")
            return own.engine.docker("exec", own.containers(service)[0], *command, check=False).returncode == 0

        (theirs, *_), (ours, *_) = other.addresses("rollout"), own.addresses("rollout")
        assert reaches("trainer", f"{ours}:7001") and reaches("rollout", "trainer:7003")
        assert not reaches("trainer", f"{theirs}:7001")
        (outside,) = other.addresses("trainer", network="outside")
        assert not reaches("trainer", f"{outside}:7003")


def test_workers_come_and_go_by_scale_while_the_run_goes_on(amber, birch):
    others = {*birch.workers("rollout"), *birch.workers("teacher")}
    was = amber.scale
    amber.scale = {"rollout": 4, "teacher": 2}
    amber.up("--no-recreate", "rollout", "teacher")
    amber.wait_until_it_serves()

    def requests(address):
        return sum(float(line.split()[-1]) for line in amber.metrics(f"{address}:9101").splitlines() if line.startswith("dapd_rollout_requests_total"))

    for address in amber.addresses("rollout"):
        wait_for(lambda: requests(address) > 0, "work for every rollout worker", 180)
    amber.scale = {"rollout": 1, "teacher": 1}
    amber.up("--no-recreate", "rollout", "teacher")
    amber.wait_until_it_serves()
    amber.wait_for_steps(2)
    amber.scale = was
    amber.up("--no-recreate", "rollout", "teacher")
    amber.wait_until_it_serves()
    assert {*birch.workers("rollout"), *birch.workers("teacher")} == others, "the other run's workers are as they were"
    assert " lost" not in birch.log("trainer")


@pytest.mark.parametrize("service", ["rollout", "teacher", "trainer"])
def test_all_containers_of_a_kind_are_lost_and_made_anew(service, birch, amber):
    lost = birch.containers(service)
    attempts = len(birch.ledger("started"))
    step, step_of_amber = birch.steps(), amber.steps()
    birch.engine.docker("rm", "--force", *lost)
    if service != "trainer":
        wait_for(lambda: "ready" not in birch.workers(service).values(), f"a trainer without any {service}", 180)
        amber.wait_for_step(step_of_amber + 2)
        assert birch.steps() <= step + 1, "it waits"
    birch.up("--no-recreate")
    birch.wait_until_it_serves()
    birch.wait_for_steps(2)
    assert not set(lost) & set(birch.containers(service))
    assert len(birch.ledger("started")) == attempts + (service == "trainer"), "only a new trainer is a new attempt"


def test_an_image_of_another_version_takes_over_role_by_role(amber, birch, version, next_image):
    tag, next_version = next_image
    before = amber.addresses("rollout")
    amber.environment["DAPD_IMAGE"] = tag
    amber.up("--no-deps", "rollout")
    amber.wait_until_it_serves()
    amber.wait_for_steps(2)
    log = amber.log("trainer")
    for address in amber.addresses("rollout"):
        assert f"rollout worker {address}:7001 has version {next_version}, this trainer {version}: " in log
    assert not [line for line in log.splitlines() if "teacher worker" in line and "has version" in line]
    amber.up()
    amber.wait_until_it_serves()
    amber.wait_for_steps(2)
    assert "has version" not in amber.log("trainer"), "all are of one version again"
    versions = [line["version"] for line in amber.ledger("started")]
    print(f"attempts by version: {versions}; rollouts were at {before}, are at {amber.addresses('rollout')}")
    assert versions[-2:] == [version, next_version]
    assert values_of_label(amber.metrics(amber.page), "version") == {next_version}
    assert values_of_label(birch.metrics(birch.page), "version") == {version}


@pytest.fixture
def rank(engine, image, tmp_path):
    """Returns a function that starts one trainer rank of two on a network of this test and returns its container."""
    config = tmp_path / "ranks.yaml"
    config.write_text(CONFIG.format(name="ranks", seed=1, steps=1))
    settings = {"TRAINER__RANKS": 2, "TRAINER__RENDEZVOUS": "rank-0:7004", "TRAINER__LISTEN": "0.0.0.0:7003", "TRAINER__PEER_TIMEOUT_SECONDS": 120,
                "ROLLOUT__ADDRESSES": "[nobody:7001]", "TEACHER__ADDRESSES": "[nobody:7002]", "RUN__OUTPUT_DIR": "/runs", "SECURITY__INSECURE": "true"}
    environment = [part for name, value in settings.items() for part in ("--env", f"DAPD_{name}={value}")]
    started = []

    def start(number, tag):
        name = f"rank-{number}"
        started.append(engine.docker("run", "--detach", "--network", "ranks", "--network-alias", name, "--volume", f"{config}:/etc/run.yaml:ro",
                                     *environment, "--env", f"DAPD_TRAINER__RANK={number}", tag, "dapd-trainer", "/etc/run.yaml").stdout.strip())
        return started[-1]

    engine.docker("network", "create", "--internal", "ranks")
    yield start
    engine.docker("rm", "--force", "--volumes", *started)
    engine.docker("network", "rm", "ranks")


def test_a_rank_of_another_version_is_refused_and_one_of_the_same_joins(engine, rank, image, next_image):
    def log(container):
        return engine.docker("logs", container).stderr

    first, other = rank(0, image), rank(1, next_image[0])
    assert engine.docker("wait", other).stdout.strip() == "4"
    print(log(other).splitlines()[-1])
    assert "the program's version differs from rank 0's; start all ranks from one build" in log(other)

    def phase():
        status = engine.docker("exec", first, "dapd", "status", "127.0.0.1:7003", "--json", check=False)
        return json.loads(status.stdout).get("phase") if status.returncode == 0 else None

    assert phase() != "rollout"
    rank(1, image)
    wait_for(lambda: phase() == "rollout", "rank 0 behind the meeting of the ranks, in its first step", 120)


def test_both_runs_end_with_the_adapters_of_runs_alone_without_containers(runs, package, tmp_path):
    steps = [run.finish(3) for run in runs]
    alone = [run.digest_alone(package, tmp_path, count) for run, count in zip(runs, steps, strict=True)]
    for run, count, digest in zip(runs, steps, alone, strict=True):
        run.wait_for_the_end(count)
        assert adapter_digest(run.run_folder) == digest
        history = [sys.executable, ROOT / "tests/robustness/history.py", run.run_folder / "ledger.jsonl", "--batch-size", str(BATCH)]
        proved = subprocess.run(history, capture_output=True, text=True)
        print(f"{run.name}: {proved.stdout.strip()}{proved.stderr.strip()}; SHA-256 of the adapter: {digest}")
        assert proved.returncode == 0
    assert alone[0] != alone[1]
