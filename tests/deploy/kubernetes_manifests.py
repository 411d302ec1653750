"""The manifests under deploy/kubernetes, rendered by kubectl: overlays, alone and with components."""

import functools
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "deploy/kubernetes"
OVERLAYS = ("cpu-demo", "gpu-single-node", "gpu-cluster")
# What a user may add to any overlay, if the overlay does not have it already.
OPTIONAL = ("monitoring", "keda", "network-policy", "mtls", "cert-manager")


def kubectl():
    """kubectl of the test environment (tests/requirements.txt), else the machine's."""
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
    """(overlay, components that are added): nothing, each one alone, everything."""
    pairs = []
    for overlay in OVERLAYS:
        free = [name for name in OPTIONAL if name not in own_components(overlay)]
        pairs += [(overlay, ()), *((overlay, (name,)) for name in free if name != "cert-manager"), (overlay, tuple(free))]
    return pairs


def label(combination):
    overlay, added = combination
    return "+".join((overlay, *added))


@functools.cache
def rendered(overlay, added=()):
    """The text that `kubectl apply -k` would send."""
    with tempfile.TemporaryDirectory() as folder:
        # Kustomize wants relative paths.
        base = os.path.relpath(MANIFESTS, os.path.realpath(folder))
        kustomization = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [f"{base}/overlays/{overlay}"],
            "components": [f"{base}/components/{name}" for name in added],
        }
        pathlib.Path(folder, "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        result = kustomize(folder)
    assert result.returncode == 0, f"{label((overlay, added))}: {result.stderr}"
    return result.stdout


def objects(overlay, added=()):
    """A fresh copy of every object, to look at or to spoil."""
    return [entry for entry in yaml.safe_load_all(rendered(overlay, added)) if entry]


def of_kind(everything, *kinds):
    return [entry for entry in everything if entry["kind"] in kinds]


def find(everything, kind, name):
    return next(entry for entry in of_kind(everything, kind) if entry["metadata"]["name"] == name)


def workloads(everything):
    return of_kind(everything, "Deployment", "StatefulSet")


def pod_of(workload):
    return workload["spec"]["template"]["spec"]


def containers(workload):
    pod = pod_of(workload)
    return pod.get("initContainers", []) + pod["containers"]


def role(workload):
    return workload["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]


def name_of(entry):
    return f"{entry['kind']} {entry['metadata']['name']}"
