"""The pods, run as their manifests say: configuration, probes, volumes, users and names are the real ones."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import time

import kubernetes_manifests as manifests
import kubernetes_pods
import pyarrow
import pyarrow.parquet
import pytest
import yaml
from kubernetes_manifests import ROOT, find, of_kind

pytestmark = pytest.mark.skipif(bool(kubernetes_pods.why_not()), reason=f"pods cannot run: {kubernetes_pods.why_not()}")

ROLES = ("rollout", "teacher", "trainer")
PATIENCE_SECONDS = 120


def wait_for(condition, what):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what()}: not within {PATIENCE_SECONDS} s"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """What the image has at /opt/dapd/demo."""
    folder = tmp_path_factory.mktemp("demo")
    make = [sys.executable, ROOT / "deploy/make_tiny_model.py", "--output", folder / "tiny-qwen3"]
    subprocess.run(make, check=True, capture_output=True)
    for split, name, count in (("train", "train", 40), ("held_out", "held_out", 4)):
        problems = [kubernetes_pods.BIN / "dapd", "problems", "--task", "unit_conversion", "--split", split, "--count", str(count)]
        subprocess.run([*problems, "--output", folder / f"{name}.jsonl"], check=True, capture_output=True)
    folder.chmod(0o755)
    return folder


def start_all(pods):
    containers = {role: pods.start(role) for role in ROLES}
    for role, container in containers.items():
        wait_for(
            lambda: container.probe("startupProbe") or container.process.poll() is not None,
            lambda: f"{role} does not start\n{container.log()}",
        )
    return containers


def scrape(pods, port):
    code = f"import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:{port}/metrics', timeout=5).read().decode())"
    return pods.inside(sys.executable, "-c", code).stdout


def test_the_demo_trains_as_its_manifests_say(tmp_path, demo):
    everything = manifests.objects("cpu-demo")
    with kubernetes_pods.Pods(tmp_path, everything, demo=demo) as pods:
        containers = start_all(pods)
        for role in ("rollout", "teacher"):
            assert containers[role].probe("readinessProbe") and containers[role].probe("livenessProbe")
            assert "dapd_build_info" in scrape(pods, {"rollout": 9101, "teacher": 9102}[role])
        assert "dapd_build_info" in scrape(pods, 9103)

        # Read-only for root, too.
        refusal = containers["rollout"].execute("/usr/bin/touch", "/etc/x")
        assert refusal.returncode != 0 and "Read-only file system" in refusal.stderr
        status = pathlib.Path(f"/proc/{containers['rollout'].process.pid}/status").read_text()
        assert re.search(r"^Uid:\t10001\t10001", status, re.M) and re.search(r"^CapBnd:\t0+$", status, re.M)

        trainer = containers["trainer"]
        assert trainer.process.wait(timeout=PATIENCE_SECONDS) == 0, trainer.log()
        run = pods.claims["runs-dapd-trainer-0"] / "cpu-demo"
        assert json.loads((run / "summary.json").read_text()) and (run / "adapter/adapter_model.safetensors").exists()
        assert (run / "config.yaml").stat().st_uid == 10001
        for role in ("rollout", "teacher"):
            assert containers[role].terminate() == 0, containers[role].log()


def put_in_place(folder, run, demo):
    """Model and problems on the claim, where a run.yaml wants them."""
    model, data = folder / run["model"]["path"], folder / run["data"]["path"]
    shutil.copytree(demo / "tiny-qwen3", model)
    data.parent.mkdir(parents=True)
    assert data.suffix == ".parquet"
    rows = [json.loads(line) for line in (demo / "train.jsonl").read_text().splitlines()]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), data)


@pytest.mark.parametrize("overlay", manifests.OVERLAYS)
def test_the_configuration_is_sound(overlay, tmp_path, demo):
    """`dapd check` in the trainer's pod, with a model and problems where run.yaml wants them."""
    everything = manifests.objects(overlay)
    with kubernetes_pods.Pods(tmp_path, everything, demo=demo) as pods:
        run = yaml.safe_load(next(c["data"]["run.yaml"] for c in of_kind(everything, "ConfigMap") if "run.yaml" in c["data"]))
        if not run["model"]["path"].startswith("/"):
            put_in_place(pods.claim("dapd-input", 10001), run, demo)
        check = pods.start("trainer", command=["dapd", "check", "/etc/dapd/run.yaml"])
        assert check.process.wait(timeout=60) == 0, check.log()
        assert "the configuration is sound" in check.log()


def test_a_misspelt_key_in_a_config_map_is_refused(tmp_path, demo):
    everything = manifests.objects("cpu-demo")
    cluster = next(c for c in of_kind(everything, "ConfigMap") if "DAPD_RUN__OUTPUT_DIR" in c["data"])
    cluster["data"]["DAPD_RUN__OUTPUT_DIRR"] = "/runs"
    with kubernetes_pods.Pods(tmp_path, everything, demo=demo) as pods:
        rollout = pods.start("rollout")
        assert rollout.process.wait(timeout=60) == 3
        assert "run.output_dirr" in rollout.log()
