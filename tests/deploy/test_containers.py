"""Tests the image and the compose files on a real engine while containers are lost, added and removed."""

import json
import os
import re
import shutil
import subprocess
import tarfile
import time
import urllib.parse

import pytest
import yaml

from compose_project import USER, Project, adapter_digest
from container_engine import ROOT
from waiting import wait_for

MONITORING = ROOT / "deploy/compose.monitoring.yaml"
WRITE = ("dapd", "problems", "--task", "unit_conversion", "--split", "train", "--count", "1", "--seed", "1", "--output")


@pytest.fixture(scope="module")
def prometheus_image(engine, tmp_path_factory):
    """Makes an image of Debian's Prometheus with the layout of the official image."""
    folder = tmp_path_factory.mktemp("prometheus")
    for name in ("bin", "lib", "configs"):
        (folder / "package" / name).mkdir(parents=True)
    for name in ("prometheus", "promtool"):
        shutil.copy(shutil.which(name), folder / "package/bin")
    subprocess.run([ROOT / "deploy/stage_image.sh", folder / "package", folder / "root"], check=True, capture_output=True)
    (folder / "root/prometheus").mkdir()
    os.chown(folder / "root/prometheus", 65534, 65534)
    engine.import_root(folder / "root", "prometheus", 'ENTRYPOINT ["/opt/dapd/bin/prometheus"]', "USER 65534:65534")
    shutil.rmtree(folder)
    return "prometheus"


class Demo(Project):
    """A project with a Prometheus."""

    def kill(self, container):
        self.engine.kill(container)
        wait_for(lambda: self.engine.inspect(container, "{{.RestartCount}} {{.State.Running}}") == "1 true", "a second start")

    def scrapes(self, service):
        """Returns how many times each target of a service was scraped."""
        query = f'sum_over_time(up{{job="dapd-{service}"}}[1h])'
        url = "http://127.0.0.1:9090/api/v1/query?" + urllib.parse.urlencode({"query": query})
        rows = json.loads(self.engine.fetch(url))["data"]["result"]
        return {row["metric"]["instance"]: int(row["value"][1]) for row in rows}

    def scraped(self, service, targets):
        return sum(count > 0 for count in self.scrapes(service).values()) >= targets


@pytest.fixture(scope="module")
def demo(engine, image, prometheus_image, tmp_path_factory):
    """Starts the demo with three rollout workers. One is killed, two are removed, the trainer is killed; the run goes on."""
    folder = tmp_path_factory.mktemp("demo")
    (folder / "configs").mkdir()
    (folder / "runs").mkdir()
    demo = Demo(engine, "demo", folder / "configs", folder / "runs", files=[MONITORING], DAPD_PROMETHEUS_IMAGE=prometheus_image)
    start = time.monotonic()
    demo.compose("up", "--detach", "--scale", "rollout=3", "rollout", "teacher", "trainer", "prometheus")
    try:
        demo.wait_for_step(1)
        print(f"{time.monotonic() - start:.1f} s from docker-compose up to the first step")
        demo.kill(demo.containers("rollout")[0])
        for service, targets in (("rollout", 3), ("teacher", 1), ("trainer", 1)):
            wait_for(lambda: demo.scraped(service, targets), f"a scrape of {targets} {service} targets")
        demo.compose("up", "--detach", "--no-recreate", "--scale", "rollout=1", "rollout")
        demo.kill(demo.container("trainer"))
        print(f"one rollout container is left, and the trainer was killed, at step {demo.steps()}")
        yield demo
    finally:
        print(demo.compose("logs", "--no-color", "--tail=15", check=False).stdout)
        demo.down()


def test_the_trainer_is_alone_in_what_it_may_write(demo):
    for service in ("rollout", "teacher", "trainer"):
        container = demo.container(service)
        for user, path in ((USER, "/file"), (0, "/file"), (0, "/opt/dapd/bin/file"), (0, "/input/file")):
            result = demo.engine.docker("exec", "--user", user, container, *WRITE, path, check=False)
            assert result.returncode != 0 and "Read-only file system" in result.stderr, (service, user, path, result.stderr)
        result = demo.engine.docker("exec", container, *WRITE, "/runs/file", check=False)
        assert (result.returncode == 0) == (service == "trainer"), result.stderr


def test_services_have_neither_roots_user_nor_its_capabilities(demo):
    for service in ("rollout", "teacher", "trainer"):
        status = demo.engine.process_status(demo.container(service))
        assert status["Uid"].split() == status["Gid"].split() == [str(USER)] * 4
        assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == int(status["CapBnd"], 16) == 0
        assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"


def test_workers_cannot_reach_what_lies_outside_their_network(demo):
    networks = json.loads(demo.engine.inspect(demo.container("trainer"), "{{json .NetworkSettings.Networks}}"))
    outside, workers = (f"{networks[f'demo_{name}']['IPAddress']}:7003" for name in ("outside", "workers"))

    def reaches(service, address):
        command = ("dapd", "health", address, "--timeout", "3")
        return demo.engine.docker("exec", demo.container(service), *command, check=False).returncode == 0

    assert reaches("trainer", outside) and reaches("rollout", workers)
    assert not reaches("rollout", outside)


def test_the_status_port_is_published_on_loopback_only(demo):
    ports = json.loads(demo.engine.inspect(demo.container("trainer"), "{{json .NetworkSettings.Ports}}"))
    assert [(name, [binding["HostIp"] for binding in bindings]) for name, bindings in ports.items() if bindings] == [("9103/tcp", ["127.0.0.1"])]
    assert "dapd_trainer_steps_total" in demo.engine.fetch("http://127.0.0.1:9103/metrics")
    for service in ("rollout", "teacher"):
        assert not json.loads(demo.engine.inspect(demo.container(service), "{{json .NetworkSettings.Ports}}"))


def test_health_checks_come_from_the_programs_themselves(demo):
    for service in ("rollout", "teacher", "trainer"):
        container = demo.container(service)
        wait_for(lambda: demo.engine.inspect(container, "{{.State.Health.Status}}") == "healthy", f"a healthy {service}")
        (last, *_) = json.loads(demo.engine.inspect(container, "{{json .State.Health.Log}}"))[-1:]
        assert last["Output"] == "SERVING\n"


def test_the_run_ends_with_the_adapter_of_an_undisturbed_run_without_containers(demo, package, tmp_path):
    """After a rollout worker and the trainer were killed and workers came and went, the trainer is stopped and resumes to the end."""
    steps = demo.finish(5)
    digest = demo.digest_alone(package, tmp_path, steps)
    demo.wait_for_the_end(steps)
    assert digest == adapter_digest(demo.run_folder)
    print(f"SHA-256 of the adapter after {steps} steps: {digest}")


def test_prometheus_scraped_every_service(demo):
    for service, targets in (("rollout", 3), ("teacher", 1), ("trainer", 1)):
        counts = demo.scrapes(service)
        print(f"{service}: {sorted(counts.values())} scrapes")
        assert sum(count > 0 for count in counts.values()) >= targets


def test_a_worker_that_is_stopped_ends_with_code_0_within_its_grace(demo):
    container = demo.container("teacher")
    start = time.monotonic()
    demo.compose("stop", "teacher")
    print(f"stopped after {time.monotonic() - start:.1f} s")
    # A container that outlasts its grace period is killed and ends with 137.
    assert demo.engine.inspect(container, "{{.State.ExitCode}}") == "0"


def test_the_image_holds_nothing_to_run_but_the_programs(engine, image):
    container = engine.docker("create", image).stdout.strip()
    listing = engine.docker("export", "--output", engine.folder / "image.tar", container) and tarfile.open(engine.folder / "image.tar")
    programs = set()
    for member in listing:
        head = listing.extractfile(member).read(18) if member.isfile() else b""
        is_program = head[:4] == b"\x7fELF" and ".so" not in member.name
        if is_program or head[:2] == b"#!":
            programs.add(member.name)
        assert not member.isfile() or member.mode & 0o6000 == 0, f"{member.name} runs with other rights"
    assert programs == {f"opt/dapd/bin/{name}" for name in ("dapd", "dapd-rollout", "dapd-teacher", "dapd-trainer")}
    assert engine.docker("run", "--rm", image, "dapd", "check", "/etc/dapd/container.yaml").returncode == 0


@pytest.mark.parametrize("processor", ["Haswell-noTSX", "Nehalem"])
def test_the_image_answers_on_an_older_processor(processor, engine, image, tmp_path):
    """The image's own files, the C library included, run on an emulator with AVX2 at most and without AVX
    (tests/integration/test_old_processors.py)."""
    container = engine.docker("create", image).stdout.strip()
    engine.docker("export", "--output", engine.folder / "older.tar", container)
    root = tmp_path / "root"
    root.mkdir()
    subprocess.run(["tar", "--extract", "--file", engine.folder / "older.tar", "--directory", root, "--no-same-owner"], check=True)
    (tmp_path / "prompts").write_text('{"id": "a", "input_ids": [72, 101, 108, 108, 111]}\n')
    command = ["generate", "--model", "/opt/dapd/demo/tiny-qwen3", "--input", tmp_path / "prompts", "--output", tmp_path / "answers", "--max-new-tokens", "3"]
    result = subprocess.run(["qemu-x86_64", "-L", root, "-cpu", processor, root / "opt/dapd/bin/dapd", *command], capture_output=True, text=True, timeout=300,
                            env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert result.returncode == 0, result.stderr[-2000:]
    assert len(json.loads((tmp_path / "answers").read_text())["ids"]) == 3


def test_a_released_image_loads_and_runs(engine, image, package, quick_gzip, tmp_path):
    path = f"{engine.folder}/bin:{quick_gzip}"
    engine.run("env", f"PATH={path}", ROOT / "deploy/release.sh", "--unlocked", "--installed", package, "--images", "--base", "debian-root",
               "--output", tmp_path, timeout=540)
    (archive,) = tmp_path.glob("*-cpu-image.tar.gz")
    before = engine.inspect(image, "{{.Id}}")
    version = archive.name.removesuffix("-cpu-image.tar.gz").removeprefix("dapd-")
    engine.docker("load", "--input", archive)
    released = f"dapd:{version}-cpu"
    assert engine.inspect(image, "{{.Id}}") == before, "what this machine runs is not replaced"
    time_of_commit = subprocess.run(["git", "log", "-1", "--format=%cd", "--date=format-local:%Y-%m-%dT%H:%M:%SZ"], cwd=ROOT, check=True,
                                    capture_output=True, text=True, env={**os.environ, "TZ": "UTC"}).stdout.strip()
    assert engine.inspect(released, "{{.Config.User}} {{.Created}}") == f"{USER}:{USER} {time_of_commit}"
    revision = engine.inspect(released, '{{index .Config.Labels "org.opencontainers.image.revision"}}')
    assert revision and version.endswith(f"-{revision}"), "its label says what its programs say"
    assert engine.docker("run", "--rm", released, "dapd", "check", "/etc/dapd/container.yaml").returncode == 0


FILES = {
    "cpu": [],
    "gpu": ["deploy/compose.gpu.yaml"],
    "monitoring": ["deploy/compose.monitoring.yaml"],
    "teachers": ["deploy/compose.teachers.yaml"],
    "gpu-monitoring": ["deploy/compose.gpu.yaml", "deploy/compose.monitoring.yaml"],
}


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose is not installed")
@pytest.mark.parametrize("name", FILES)
def test_the_compose_files_are_valid(name):
    files = [part for file in ["deploy/compose.yaml", *FILES[name]] for part in ("--file", ROOT / file)]
    result = subprocess.run(["docker-compose", *files, "config"], capture_output=True, text=True, env={**os.environ, "DAPD_TEACHER": "big"})
    assert result.returncode == 0, result.stderr
    services = yaml.safe_load(result.stdout)["services"]
    for name, service in services.items():
        assert service["read_only"] and service["cap_drop"] == ["ALL"] and service["security_opt"] == ["no-new-privileges:true"], name
        assert service["restart"] and service["user"].split(":")[0] != "0", name
        # A service that crashes at each start must end: `dapd keep` gives up first, then Docker's restarts do.
        if any(str(word).startswith("dapd-") for word in service.get("command") or []):
            assert service["command"][:2] == ["dapd", "keep"] and re.fullmatch(r"on-failure:\d+", service["restart"]), name


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose is not installed")
def test_a_further_teacher_is_a_service_like_the_teacher():
    files = [part for name in ("compose.yaml", "compose.teachers.yaml") for part in ("--file", ROOT / "deploy" / name)]
    result = subprocess.run(["docker-compose", *files, "config"], capture_output=True, text=True, env={**os.environ, "DAPD_TEACHER": "big"})
    assert result.returncode == 0, result.stderr
    services = yaml.safe_load(result.stdout)["services"]
    further, teacher = services["further-teacher"], services["teacher"]
    assert further.pop("command") == [*teacher.pop("command"), "--teacher", "big"]
    assert further == teacher
    nameless = subprocess.run(["docker-compose", *files, "config"], capture_output=True, text=True)
    assert nameless.returncode != 0 and "set it to the name of the teacher" in nameless.stderr


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose is not installed")
def test_eight_gpus_are_each_given_to_one_process():
    result = subprocess.run(["docker-compose", "--file", ROOT / "deploy/compose.8gpu.yaml", "config"], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    services = yaml.safe_load(result.stdout)["services"]
    used = []
    for name, service in services.items():
        assert service["read_only"] and service["cap_drop"] == ["ALL"] and service["security_opt"] == ["no-new-privileges:true"], name
        (devices,) = service["deploy"]["resources"]["reservations"]["devices"]
        environment = service["environment"]
        used += devices["device_ids"]
        # The trainer must wait for a worker that still reads the model.
        assert int(environment["DAPD_TRAINER__PEER_TIMEOUT_SECONDS"]) >= seconds_of(service["healthcheck"]["start_period"]), name
        # A service must not depend on another container, which could be lost and started again.
        assert not {"ipc", "network_mode", "pid"} & service.keys(), name
        if name == "trainer":
            assert int(environment["DAPD_TRAINER__RANKS_PER_MACHINE"]) == len(devices["device_ids"])
        else:
            assert len(devices["device_ids"]) == 1, name
            assert service["networks"]["workers"]["aliases"] == [name.split("-")[0]], "one name stands for all"
    assert sorted(used) == [str(gpu) for gpu in range(8)]


def seconds_of(duration):
    """Reads Compose's own notation, such as "10m0s"."""
    return sum(int(number) * {"h": 3600, "m": 60, "s": 1}[unit] for number, unit in re.findall(r"(\d+)([hms])", duration))


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose is not installed")
@pytest.mark.parametrize("name", ["compose.yaml", "compose.8gpu.yaml"])
def test_a_build_by_compose_is_told_the_commit(name):
    environment = {**os.environ, "DAPD_COMMIT": "v1-2-gabc"}
    result = subprocess.run(["docker-compose", "--file", ROOT / "deploy" / name, "config"], capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr
    for service in yaml.safe_load(result.stdout)["services"].values():
        assert service["build"]["args"]["DAPD_COMMIT"] == "v1-2-gabc"
