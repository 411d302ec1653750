"""Renders the manifests under deploy/kubernetes with kubectl: overlays alone and with components."""

import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "deploy/kubernetes"
OVERLAYS = ("cpu-demo", "gpu-single-node", "gpu-cluster", "one-node-8-gpus", "two-nodes-8-gpus", "qwen3-32b", "jobset")
# A user may add these to any overlay that does not have them already.
OPTIONAL = ("download", "monitoring", "keda", "network-policy", "egress-https", "mtls", "cert-manager", "pull-secret", "runtime-class", "priority-class",
            "storage-class", "spot")
# On these overlays each component is tested by itself; on the other overlays all components are tested at once.
THOROUGH = ("cpu-demo", "gpu-cluster")
# These cannot be added: KEDA scales Deployments, and the demonstration has no claim to fill.
IMPOSSIBLE = {"jobset": {"keda"}, "cpu-demo": {"download"}}
# The workers of a further teacher, as a user copies them.
TEACHER = MANIFESTS / "overlays/template/teacher-big/kustomization.yaml"


def kubectl():
    """Returns kubectl of the test environment (tests/requirements.txt), or the kubectl of the machine."""
    beside = pathlib.Path(sys.executable).with_name("kubectl")
    found = str(beside) if beside.exists() else shutil.which("kubectl")
    if not found:
        pytest.skip("no kubectl: tests/requirements.txt has it for x86-64 and arm64 Linux")
    return found


def kustomize(folder):
    return subprocess.run([kubectl(), "kustomize", folder], capture_output=True, text=True)


def own_components(overlay):
    kustomization = yaml.safe_load((MANIFESTS / "overlays" / overlay / "kustomization.yaml").read_text())
    return {pathlib.PurePath(path).name for path in kustomization.get("components", [])}


@functools.cache
def combinations():
    """Returns (overlay, added components) with no component, each component alone, and all components; and (overlay, added components, further
    teachers)."""
    pairs = []
    for overlay in OVERLAYS:
        free = [name for name in OPTIONAL if name not in own_components(overlay) | IMPOSSIBLE.get(overlay, set())]
        alone = free if overlay in THOROUGH else ()
        pairs += [(overlay, ()), *((overlay, (name,)) for name in alone if name != "cert-manager"), (overlay, tuple(free))]
    pairs.append(("two-nodes-8-gpus", ("jobset",)))
    everything = {overlay: added for overlay, added in pairs}
    return pairs + [(overlay, everything[overlay], ("big", "math-code")) for overlay in (*THOROUGH, "jobset")]


def label(combination):
    overlay, added, *teachers = combination
    return "+".join((overlay, *added, *(f"teacher {name}" for names in teachers for name in names)))


def file_of(overlay):
    """Returns the overlay's kustomization, parsed."""
    return yaml.safe_load((MANIFESTS / "overlays" / overlay / "kustomization.yaml").read_text())


def settings_of(kustomization):
    """Returns the literals of its dapd-settings as a dictionary."""
    (entry,) = (entry for entry in kustomization["configMapGenerator"] if entry["name"] == "dapd-settings")
    return dict(literal.split("=", 1) for literal in entry["literals"])


def teacher_in_run(name, model):
    """Returns the teacher's entry in run.yaml as the comment in its folder shows it, for another name and model."""
    (example,) = yaml.safe_load(re.search(r"^#   (teachers: .*)$", TEACHER.read_text(), re.MULTILINE)[1])["teachers"]
    return {"name": name, "path": model, "addresses": [address.replace(example["name"], name) for address in example["addresses"]]}


def render(kustomization, overlay, teachers=()):
    """Renders a file with this content beside the overlays, with the overlay's run.yaml. Each name in `teachers` is a further teacher: an entry
    in run.yaml with the student's model, and a copy of the template's folder."""
    resources = dict.fromkeys([*kustomization["resources"], *(f"teacher-{name}" for name in teachers)])
    kustomization = kustomization | {"resources": list(resources)}
    with tempfile.TemporaryDirectory() as folder:
        # Kustomize wants relative paths.
        manifests = os.path.relpath(MANIFESTS, os.path.realpath(folder))
        text = yaml.safe_dump(kustomization, sort_keys=False).replace("../../", f"{manifests}/")
        pathlib.Path(folder, "kustomization.yaml").write_text(text)
        run = (MANIFESTS / "overlays" / overlay / "run.yaml").read_text()
        if teachers:
            run += yaml.safe_dump({"teachers": [teacher_in_run(name, yaml.safe_load(run)["model"]["path"]) for name in teachers]})
        for name in teachers:
            copy = pathlib.Path(folder, f"teacher-{name}", "kustomization.yaml")
            copy.parent.mkdir()
            text = re.sub(r"^      - name=.*$", f"      - name={name}", TEACHER.read_text(), flags=re.MULTILINE)
            copy.write_text(text.replace("../../../", f"../{manifests}/"))
        pathlib.Path(folder, "run.yaml").write_text(run)
        return kustomize(folder)


@functools.cache
def rendered(overlay, added=(), teachers=(), settings=()):
    """Returns the text that `kubectl apply -k` would send if the overlay's file had these components, further teachers and settings."""
    kustomization = file_of(overlay)
    kustomization["components"] = kustomization.get("components", []) + [f"../../components/{name}" for name in added]
    (entry,) = (entry for entry in kustomization["configMapGenerator"] if entry["name"] == "dapd-settings")
    entry["literals"] = [f"{key}={value}" for key, value in (settings_of(kustomization) | dict(settings)).items()]
    result = render(kustomization, overlay, teachers)
    assert result.returncode == 0, f"{label((overlay, added))}: {result.stderr}"
    return result.stdout


def objects(overlay, added=(), teachers=(), **settings):
    """Returns a fresh copy of every object, which a test may change. A setting's name has _ where the file has -."""
    named = tuple((key.replace("_", "-"), str(value)) for key, value in settings.items())
    return [entry for entry in yaml.safe_load_all(rendered(overlay, added, teachers, named)) if entry]


def of_kind(everything, *kinds):
    return [entry for entry in everything if entry["kind"] in kinds]


def find(everything, kind, name):
    return next(entry for entry in of_kind(everything, kind) if entry["metadata"]["name"] == name)


def workloads(everything):
    """Returns the objects that run the services: Deployments and a StatefulSet, or a JobSet's jobs as its controller makes them."""
    jobs = [
        {"kind": "Job", "metadata": {"name": f"{jobset['metadata']['name']}-{replicated['name']}"}, "spec": replicated["template"]["spec"]}
        for jobset in of_kind(everything, "JobSet")
        for replicated in jobset["spec"]["replicatedJobs"]
    ]
    return of_kind(everything, "Deployment", "StatefulSet") + jobs


def pods_of(workload):
    return workload["spec"]["replicas" if workload["kind"] != "Job" else "completions"]


def pod_of(workload):
    return workload["spec"]["template"]["spec"]


def containers(workload):
    pod = pod_of(workload)
    return pod.get("initContainers", []) + pod["containers"]


def role(workload):
    return workload["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]


def certified_role(workload):
    """Returns the role that the pods' program and certificate have; workers of further teachers are teachers."""
    return role(workload).removeprefix("further-")


def name_of(entry):
    return f"{entry['kind']} {entry['metadata']['name']}"


def pod_template(everything):
    return find(everything, "StatefulSet", "dapd-trainer")["spec"]["template"]


def container(everything, kind, name):
    return pod_of(find(everything, kind, name))["containers"][0]
