"""Runs the pods as their manifests say: configuration, probes, volumes, users and names are the real ones."""

import json
import pathlib
import re
import shutil
import subprocess
import sys

import kubernetes_certificates
import kubernetes_manifests as manifests
import kubernetes_pods
import pyarrow
import pyarrow.parquet
import pytest
import yaml
from kubernetes_manifests import ROOT, of_kind
from waiting import wait_for

pytestmark = pytest.mark.skipif(bool(kubernetes_pods.why_not()), reason=f"pods cannot run: {kubernetes_pods.why_not()}")

PATIENCE_SECONDS = 240
STEPS = 6


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Returns the folder that the image has at /opt/dapd/demo."""
    folder = tmp_path_factory.mktemp("demo")
    make = [sys.executable, ROOT / "deploy/make_tiny_model.py", "--output", folder / "tiny-qwen3"]
    subprocess.run(make, check=True, capture_output=True)
    for split, name, count in (("train", "train", 40), ("held_out", "held_out", 4)):
        problems = [kubernetes_pods.BIN / "dapd", "problems", "--task", "unit_conversion", "--split", split, "--count", str(count)]
        subprocess.run([*problems, "--output", folder / f"{name}.jsonl"], check=True, capture_output=True)
    folder.chmod(0o755)
    return folder


def wait_until_ready(container):
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        wait_for(
            lambda: container.probe(probe) or container.process.poll() is not None,
            lambda: f"{container.address} does not pass its {probe}\n{container.log()}",
        )
        assert container.process.poll() is None, container.log()


def scrape(container, port):
    url = f"http://{container.address}:{port}/metrics"
    code = f"import urllib.request; print(urllib.request.urlopen('{url}', timeout=5).read().decode())"
    return container.pods.inside(sys.executable, "-c", code).stdout


def shortened(everything):
    """Gives the demonstration a few steps, and changes nothing else."""
    cluster = next(entry for entry in of_kind(everything, "ConfigMap") if "DAPD_RUN__OUTPUT_DIR" in entry["data"])
    cluster["data"] |= {"DAPD_TRAINER__STEPS": str(STEPS), "DAPD_CHECKPOINT__INTERVAL": "2"}
    return everything


def state(trainer):
    """Asks for the status as README.md tells people to do, but as JSON."""
    status = trainer.execute("dapd", "status", "127.0.0.1:7003", "--json", user=10001)
    return json.loads(status.stdout) if status.returncode == 0 else {}


def wait_until_done(trainer, *others):
    """Waits until the run is done. Rank 0 tells; all ranks stay, because a StatefulSet would start an ended rank again."""
    processes = [rank.process for rank in (trainer, *others)]

    def logs():
        return "\n".join(rank.log() for rank in (trainer, *others))

    wait_for(lambda: state(trainer).get("phase") == "done" or any(process.poll() is not None for process in processes), logs)
    assert all(process.poll() is None for process in processes), logs()


@pytest.mark.parametrize("security", ["plaintext", "mutual TLS"])
def test_the_demo_trains_as_its_manifests_say(security, tmp_path, demo):
    tls = security == "mutual TLS"
    everything = shortened(manifests.objects("cpu-demo", ("keda", "mtls", "cert-manager") if tls else ("keda",)))
    secrets = kubernetes_certificates.issue(everything, tmp_path / "authority") if tls else {}
    with kubernetes_pods.Pods(tmp_path, everything, secrets=secrets, demo=demo) as pods:
        rollouts, teacher, trainer = [pods.start("rollout", index=i) for i in range(2)], pods.start("teacher"), pods.start("trainer")
        for container, port in ((rollouts[0], 9101), (rollouts[1], 9101), (teacher, 9102), (trainer, 9103)):
            wait_until_ready(container)
            assert "dapd_build_info" in scrape(container, port)
        query = of_kind(everything, "ScaledObject")[0]["spec"]["triggers"][0]["metadata"]["query"]
        metrics = scrape(trainer, 9103)
        for name in set(re.findall(r"dapd_\w+", query)):
            assert re.search(rf'^{name}{{.*role="rollout"', metrics, re.M), f"KEDA asks for {name}, which the trainer does not have"
        if tls:
            assert not pods.grpc_health(f"{teacher.address}:7002"), "a peer without a certificate was answered"

        # The root file system is read-only for root, too.
        refusal = teacher.execute("/usr/bin/touch", "/etc/x")
        assert refusal.returncode != 0 and "Read-only file system" in refusal.stderr
        status = pathlib.Path(f"/proc/{teacher.process.pid}/status").read_text()
        assert re.search(r"^Uid:\t10001\t10001", status, re.M) and re.search(r"^CapBnd:\t0+$", status, re.M)

        wait_until_done(trainer)
        run = pods.claims["runs-dapd-trainer-0"] / "demo"
        assert json.loads((run / "summary.json").read_text()) and (run / "adapter/adapter_model.safetensors").exists()
        assert (run / "config.yaml").stat().st_uid == 10001
        for probe in ("livenessProbe", "readinessProbe"):
            # A busy machine may be late, and kubelet would ask again, too.
            wait_for(lambda: trainer.probe(probe), lambda: f"{probe}\n{trainer.log()}")
        for container in (*rollouts, teacher, trainer):
            assert container.terminate() == 0, container.log()

        # A pod that finds its run finished still answers questions.
        again = pods.start("trainer")
        wait_until_ready(again)
        wait_until_done(again)
        assert again.terminate() == 0, again.log()


def test_a_trainer_pod_that_is_deleted_goes_on_elsewhere(tmp_path, demo):
    everything = shortened(manifests.objects("cpu-demo"))
    with kubernetes_pods.Pods(tmp_path, everything, demo=demo) as pods:
        workers = [pods.start("rollout"), pods.start("teacher")]
        trainer = pods.start("trainer")
        run = pods.claim("runs-dapd-trainer-0", 10001) / "demo"
        checkpoint = run / "checkpoints/step-000002"
        wait_for(lambda: checkpoint.exists() or trainer.process.poll() is not None, trainer.log)
        assert trainer.terminate() == 130, trainer.log()
        successor = pods.start("trainer")
        wait_until_done(successor)
        steps = [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()]
        assert steps == list(range(1, STEPS + 1)), successor.log()
        assert all(worker.process.poll() is None for worker in workers)


def test_two_pods_of_ranks_meet_and_start_again_together(tmp_path, demo):
    everything = shortened(manifests.objects("cpu-demo", trainer_pods=2))
    with kubernetes_pods.Pods(tmp_path, everything, demo=demo) as pods:
        pods.start("rollout"), pods.start("teacher")
        ranks = [pods.start("trainer", index=index) for index in range(2)]
        metrics = pods.claim("runs-dapd-trainer-0", 10001) / "demo/metrics.jsonl"
        wait_for(lambda: metrics.exists() and metrics.read_text().count("\n") >= 2, lambda: ranks[0].log() + ranks[1].log())
        ranks[1].process.kill()
        # Rank 0 ends as well: a StatefulSet starts both again.
        assert ranks[0].process.wait(timeout=PATIENCE_SECONDS) != 0, ranks[0].log()
        for rank in ranks:
            rank.remove()
        ranks = [pods.start("trainer", index=index) for index in range(2)]
        wait_until_done(*ranks)
        assert not list(pods.claims["runs-dapd-trainer-1"].iterdir()), "only rank 0 has state"


def test_a_pod_of_two_ranks_trains_and_both_are_scraped(tmp_path, demo):
    everything = shortened(manifests.objects("cpu-demo", trainer_gpus=2))
    with kubernetes_pods.Pods(tmp_path, everything, demo=demo) as pods:
        pods.start("rollout"), pods.start("teacher")
        trainer = pods.start("trainer")
        wait_until_ready(trainer)
        for port in (9103, 9113):
            assert 'dapd_build_info{' in scrape(trainer, port)
        wait_until_done(trainer)
        assert state(trainer)["phase"] == "done" and trainer.terminate() == 0, trainer.log()
        # Rank 0 shows the state of a finished run.
        again = pods.start("trainer")
        wait_until_ready(again)
        wait_until_done(again)
        assert again.terminate() == 0, again.log()


def test_a_job_set_is_done_when_its_trainer_is(tmp_path, demo):
    """Two pods with a rank each have the names of indexed jobs. Both end by themselves with code 0, which is a job's success."""
    everything = shortened(manifests.objects("cpu-demo", ("jobset",), trainer_pods=2, runs_access="ReadWriteMany"))
    with kubernetes_pods.Pods(tmp_path, everything, demo=demo) as pods:
        workers = [pods.start("rollout"), pods.start("teacher")]
        ranks = [pods.start("trainer", index=index) for index in range(2)]
        assert [rank.process.wait(timeout=PATIENCE_SECONDS) for rank in ranks] == [0, 0], ranks[0].log() + ranks[1].log()
        run = pods.claims["dapd-runs"] / "demo"
        assert json.loads((run / "summary.json").read_text()) and (run / "adapter/adapter_model.safetensors").exists()
        # The set's controller then ends the workers. A worker that is ended earlier must not end with code 0, because a job would not
        # replace its pod.
        assert [worker.terminate() for worker in workers] == [130, 130]


def put_in_place(folder, run, demo):
    """Puts model and problems on the claim, where a run.yaml expects them."""
    model, data = folder / run["model"]["path"], folder / run["data"]["path"]
    shutil.copytree(demo / "tiny-qwen3", model)
    # The configuration has as many heads as a large model, so that ranks may split them.
    config = json.loads((model / "config.json").read_text()) | {"num_attention_heads": 16, "num_key_value_heads": 8, "intermediate_size": 128}
    (model / "config.json").write_text(json.dumps(config))
    (model / "model.safetensors").unlink()  # they fit the tiny model's heads, and a plan needs no weights
    data.parent.mkdir(parents=True)
    assert data.suffix == ".parquet"
    rows = [json.loads(line) for line in (demo / "train.jsonl").read_text().splitlines()]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), data)


def test_two_further_teachers_teach_over_mutual_tls(tmp_path, demo):
    """Both serve copies of the student, with the certificate of the own teachers; the run asks all three by the names of their services."""
    everything = shortened(manifests.objects("cpu-demo", ("mtls", "cert-manager"), ("big", "math-code")))
    cluster = next(entry for entry in of_kind(everything, "ConfigMap") if "DAPD_RUN__OUTPUT_DIR" in entry["data"])
    cluster["data"] |= {"DAPD_OBJECTIVE__PRESET": "opd", "DAPD_OBJECTIVE__TEACHER_WEIGHTS": "[base, big, math-code]"}
    secrets = kubernetes_certificates.issue(everything, tmp_path / "authority")
    with kubernetes_pods.Pods(tmp_path, everything, secrets=secrets, demo=demo) as pods:
        pods.start("rollout"), pods.start("teacher")
        further = [pods.start(f"teacher {name}") for name in ("big", "math-code")]
        trainer = pods.start("trainer")
        for container, name in zip(further, ("big", "math-code"), strict=True):
            wait_until_ready(container)
            assert re.search(rf'^dapd_build_info{{.*teacher="{name}"', scrape(container, 9102), re.M)
        wait_until_done(trainer)
        run = pods.claims["runs-dapd-trainer-0"] / "demo"
        last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
        assert last["step"] == STEPS
        # A copy of the student teaches exactly like the base.
        values = {name: term["value"] for name, term in last["terms"].items()}
        assert values == dict.fromkeys(["opd_base", "opd_big", "opd_math-code"], values["opd_base"]) and values["opd_base"] > 0
        for container in further:
            assert container.terminate() == 0, container.log()


@pytest.mark.parametrize("overlay", manifests.OVERLAYS)
def test_the_configuration_is_sound(overlay, tmp_path, demo):
    """Runs `dapd check` in the trainer's pod, with a model and problems where run.yaml expects them."""
    tls = "mtls" in manifests.own_components(overlay)
    everything = manifests.objects(overlay, ("cert-manager",) if tls else ())
    secrets = kubernetes_certificates.issue(everything, tmp_path / "authority") if tls else {}
    with kubernetes_pods.Pods(tmp_path, everything, secrets=secrets, demo=demo) as pods:
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
