"""Tests deploy/copier.Dockerfile without an engine: the run image with a Python copies a run to a store and restores it."""

import hashlib
import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import yaml

from image_root import ANY_PORTS, ROOT, inside, stages, start

sys.path.insert(0, str(ROOT / "tests/fakes"))
from s3_server import S3Server  # noqa: E402

PYTHON = "/opt/dapd/.deps/venv/bin/python"
SETTINGS = ("--set", "model.path=/opt/dapd/demo/tiny-qwen3", "--set", "data.path=/opt/dapd/demo/train.jsonl", "--set", "trainer.steps=2",
            "--set", "run.name=copied", *ANY_PORTS)


def environment_to_copy_with(folder):
    """Makes the environment as the Dockerfile does, with the packages of this environment instead of packages from PyPI."""
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", folder], check=True)
    (target,) = folder.glob("lib/python3*/site-packages")
    for name in re.findall(r"^([A-Za-z0-9_.-]+)==", (ROOT / "deploy/requirements-copy.txt").read_text(), re.MULTILINE):
        distribution = importlib.metadata.distribution(name)
        for file in distribution.files:
            source = distribution.locate_file(file)
            if ".." not in file.parts and source.exists():
                (target / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target / file)
    return folder


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """Returns the root file system of the CPU image with Python on top."""
    if os.geteuid() != 0:
        pytest.skip("another root file system needs root")
    folder = tmp_path_factory.mktemp("copier-image")
    try:
        subprocess.run([ROOT / "deploy/package.sh", folder / "package"], check=True, capture_output=True)
        subprocess.run([ROOT / "deploy/stage_image.sh", folder / "package", folder / "root"], check=True, capture_output=True)
        shutil.rmtree(folder / "package")
        venv = environment_to_copy_with(folder / "venv")
        result = subprocess.run([ROOT / "deploy/stage_python.sh", venv, folder / "root", folder / "python"], capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        shutil.rmtree(venv)
        mebibytes = sum(path.stat().st_size for path in (folder / "python").rglob("*") if path.is_file() and not path.is_symlink()) / 2**20
        print(f"Python and the stores' clients take {mebibytes:.0f} MiB")
        added = {path.relative_to(folder / "python") for path in (folder / "python").rglob("*") if path.is_file() and ".so" in path.name}
        assert added and not [path for path in added if (folder / "root" / path).exists()], "the programs keep their libraries"
        for name in ("opt", "usr", "var"):
            subprocess.run(["cp", "-a", f"{folder}/python/{name}/.", folder / "root" / name], check=True)
        yield folder / "root"
    finally:
        shutil.rmtree(folder)


def test_its_python_has_the_clients_and_there_is_still_no_shell(image):
    result = inside(image, PYTHON, "-c", "import fsspec, s3fs, gcsfs, ssl, sys; print(sys.version_info[:2], sys.prefix)", user="10001:10001", environment={},
                    capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split()[-1] == "/opt/dapd/.deps/venv"
    programs = {path.name for folder in ("usr/bin", "usr/sbin", "bin", "sbin") if (image / folder).exists() for path in (image / folder).iterdir()}
    assert programs == {"python3", os.path.basename(os.path.realpath("/usr/bin/python3"))}
    assert (image / "var/lib/dpkg/status.d/libpython3.11-minimal").exists() or list((image / "var/lib/dpkg/status.d").glob("libpython3*-minimal"))


def test_a_run_in_it_is_copied_to_s3_and_restored(image, tmp_path):
    server = S3Server(tmp_path).start()
    try:
        result = start(image, "dapd", "run", "/etc/dapd/container.yaml", *SETTINGS, "--set", "run.output_dir=/tmp/runs",
                       "--set", f"checkpoint.copy_to={server.url('images')}", "--set", "checkpoint.copy_wait_seconds=120",
                       HOME="/tmp", **server.environment())
        assert result.returncode == 0, result.stderr[-3000:]
        assert server.objects("images/copied/commits")
        result = start(image, "dapd", "restore", server.url("images/copied"), "/tmp/restored", HOME="/tmp", **server.environment())
        assert result.returncode == 0, result.stderr[-3000:]
    finally:
        server.kill()
    adapters = [image / "tmp" / name / "adapter/adapter_model.safetensors" for name in ("runs/copied", "restored")]
    first, second = (hashlib.sha256(adapter.read_bytes()).hexdigest() for adapter in adapters)
    assert first == second


def test_the_dockerfile_lays_python_over_the_run_image():
    found = stages((ROOT / "deploy/copier.Dockerfile").read_text())
    base, steps = found["copier"]
    assert base == "programs" and found["programs"] == ("${IMAGE}", [])
    # All settings of the run image, its user included, must stay.
    assert {name for name, rest in steps} == {"COPY"}
    assert [rest for name, rest in found["python"][1] if "stage_python.sh /venv /programs /python" in rest]


@pytest.mark.skipif(shutil.which("docker-compose") is None, reason="docker-compose is not installed")
@pytest.mark.parametrize("name", ["compose.yaml", "compose.8gpu.yaml"])
def test_compose_gives_credentials_and_python_to_the_trainer_only(name):
    files = [part for file in (name, "compose.copy.yaml") for part in ("--file", ROOT / "deploy" / file)]
    secrets = {"AWS_ACCESS_KEY_ID": "a-key", "AWS_SECRET_ACCESS_KEY": "a-secret"}
    without = subprocess.run(["docker-compose", *files, "config"], capture_output=True, text=True)
    assert without.returncode != 0 and "DAPD_COPY_TO" in without.stderr
    result = subprocess.run(["docker-compose", *files, "config"], capture_output=True, text=True,
                            env={**os.environ, **secrets, "DAPD_COPY_TO": "s3://bucket/runs"})
    assert result.returncode == 0, result.stderr
    services = yaml.safe_load(result.stdout)["services"]
    trainer = services["trainer"]
    assert trainer["image"] == "dapd-copier:cpu" and trainer["build"]["target"] == "copier"
    assert pathlib.Path(trainer["build"]["dockerfile"]).name == "copier.Dockerfile"
    assert trainer["environment"]["DAPD_CHECKPOINT__COPY_TO"] == "s3://bucket/runs" and secrets.items() <= trainer["environment"].items()
    assert trainer["read_only"] and "outside" in trainer["networks"]
    assert any(":/runs" in volume if isinstance(volume, str) else volume["target"] == "/runs" for volume in trainer["volumes"])
    for other, service in services.items():
        assert other == "trainer" or not secrets.keys() & service["environment"].keys()
