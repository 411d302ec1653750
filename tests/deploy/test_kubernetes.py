"""The Kubernetes manifests: every overlay, alone and with the components that may be added to it."""

import copy
import itertools
import os
import re

import jsonschema
import kubernetes_manifests as manifests
import kubernetes_network
import kubernetes_policy
import kubernetes_schemas
import kubernetes_validate
import pytest
import yaml
from kubernetes_manifests import find, of_kind, pod_of

EVERYTHING = ("monitoring", "keda", "mtls", "cert-manager")
# The oldest version with all that the manifests use, and the newest that is known.
OLDEST, NEWEST = "1.28", kubernetes_validate.latest_version()

all_combinations = pytest.mark.parametrize("combination", manifests.combinations(), ids=manifests.label)


def violations(everything):
    return [*kubernetes_policy.violations(everything), *kubernetes_network.violations(everything)]


def validate(entry):
    if kubernetes_schemas.is_foreign(entry):
        kubernetes_schemas.validate(entry)
        return
    for version in (OLDEST, NEWEST):
        kubernetes_validate.validate(entry, version, strict=True)


@pytest.fixture(scope="module")
def known_good():
    """What was validated before: most objects are alike in all combinations."""
    return set()


@all_combinations
def test_every_object_fits_its_schema(combination, known_good):
    for entry in manifests.objects(*combination):
        text = yaml.safe_dump(entry)
        if text not in known_good:
            validate(entry)
            known_good.add(text)


@all_combinations
def test_every_combination_keeps_the_rules(combination):
    assert violations(manifests.objects(*combination)) == []


def container(everything, kind, name):
    return pod_of(find(everything, kind, name))["containers"][0]


def edit(everything, kind, name):
    return find(everything, kind, name)["spec"]


SPOILERS = {
    "no limits": (lambda e: container(e, "Deployment", "dapd-rollout")["resources"].pop("limits"), "no memory limits"),
    "less requested": (
        lambda e: container(e, "Deployment", "dapd-rollout")["resources"]["requests"].update(memory="1Mi"),
        "memory that it did not request",
    ),
    "no startup probe": (lambda e: container(e, "Deployment", "dapd-teacher").pop("startupProbe"), "startupProbe is missing"),
    "a probe of another port": (
        lambda e: container(e, "StatefulSet", "dapd-trainer")["livenessProbe"].update(grpc={"port": 7001}),
        "asks port 7001",
    ),
    "a probe by HTTP": (
        lambda e: container(e, "StatefulSet", "dapd-trainer").update(livenessProbe={"httpGet": {"port": 9103}}),
        "asks neither by gRPC",
    ),
    "a writable root": (
        lambda e: container(e, "Deployment", "dapd-rollout")["securityContext"].update(readOnlyRootFilesystem=False),
        "writable root",
    ),
    "a capability": (
        lambda e: container(e, "Deployment", "dapd-rollout")["securityContext"]["capabilities"].update(add=["NET_ADMIN"]),
        "keeps capabilities",
    ),
    "escalation": (
        lambda e: container(e, "Deployment", "dapd-rollout")["securityContext"].pop("allowPrivilegeEscalation"),
        "may gain privileges",
    ),
    "root": (lambda e: pod_of(find(e, "Deployment", "dapd-rollout"))["securityContext"].update(runAsUser=0), "run as root"),
    "no seccomp": (
        lambda e: pod_of(find(e, "Deployment", "dapd-rollout"))["securityContext"].pop("seccompProfile"),
        "seccomp",
    ),
    "a token": (
        lambda e: pod_of(find(e, "StatefulSet", "dapd-trainer")).pop("automountServiceAccountToken"),
        "service account token",
    ),
    "a token by the account": (
        lambda e: find(e, "ServiceAccount", "dapd-trainer").pop("automountServiceAccountToken"),
        "no service account of its own",
    ),
    "the host's network": (
        lambda e: pod_of(find(e, "StatefulSet", "dapd-trainer")).update(hostNetwork=True),
        "shares a namespace of its host",
    ),
    "the host's disk": (
        lambda e: pod_of(find(e, "Deployment", "dapd-rollout"))["volumes"].append({"name": "x", "hostPath": {"path": "/"}}),
        "hostPath",
    ),
    "unbounded scratch": (
        lambda e: pod_of(find(e, "Deployment", "dapd-rollout"))["volumes"].append({"name": "x", "emptyDir": {}}),
        "may fill its node",
    ),
    "a writable configuration": (
        lambda e: container(e, "Deployment", "dapd-rollout")["volumeMounts"][0].pop("readOnly"),
        "may write to /etc/dapd",
    ),
    "a secret for all": (
        lambda e: next(v for v in pod_of(find(e, "Deployment", "dapd-rollout"))["volumes"] if "secret" in v)["secret"].update(
            defaultMode=0o644
        ),
        "readable by everybody",
    ),
    "a lost certificate": (
        lambda e: e.remove(find(e, "Certificate", "dapd-teacher")),
        "wants secret dapd-teacher-tls, which nobody makes",
    ),
    "a certificate for another role": (
        lambda e: edit(e, "Certificate", "dapd-teacher").update(uris=["spiffe://dapd/trainer"]),
        "secret dapd-teacher-tls is for ['spiffe://dapd/trainer']",
    ),
    "a kubelet that would need TLS": (
        lambda e: container(e, "Deployment", "dapd-rollout").update(readinessProbe={"grpc": {"port": 7001}}),
        "asks without a certificate",
    ),
    "a lost config map": (
        lambda e: e.remove(next(c for c in of_kind(e, "ConfigMap") if "DAPD_RUN__OUTPUT_DIR" in c["data"])),
        "does not exist",
    ),
    "a second image": (
        lambda e: container(e, "Deployment", "dapd-rollout").update(image="other:1"),
        "more than one image",
    ),
    "no version": (
        lambda e: [container(e, w["kind"], w["metadata"]["name"]).update(image="dapd") for w in manifests.workloads(e)],
        "names no version",
    ),
    "baseline": (
        lambda e: find(e, "Namespace", "dapd")["metadata"]["labels"].update(
            {"pod-security.kubernetes.io/enforce": "baseline"}
        ),
        "not restricted",
    ),
    "no budget": (lambda e: e.remove(find(e, "PodDisruptionBudget", "dapd-trainer")), "has 0 disruption budgets"),
    "a virtual address": (lambda e: edit(e, "Service", "dapd-rollout").pop("clusterIP"), "behind one address"),
    "a service without a port": (lambda e: edit(e, "Service", "dapd-trainer")["ports"].pop(), "leads to ports"),
    "another world size": (
        lambda e: edit(e, "StatefulSet", "dapd-trainer").update(replicas=3),
        "has 3 ranks that believe to be 1",
    ),
    "two who scale": (lambda e: edit(e, "Deployment", "dapd-rollout").update(replicas=2), "both set the number"),
    "a short drain": (
        lambda e: pod_of(find(e, "Deployment", "dapd-rollout")).update(terminationGracePeriodSeconds=5),
        "before it has drained",
    ),
    "all on one node": (
        lambda e: pod_of(find(e, "Deployment", "dapd-rollout")).pop("topologySpreadConstraints"),
        "does not spread",
    ),
    "a port without an edge": (
        lambda e: container(e, "Deployment", "dapd-rollout")["ports"].append({"name": "debug", "containerPort": 6060}),
        "rollout's port debug has no edge",
    ),
    "an edge without a port": (
        lambda e: edit(e, "NetworkPolicy", "dapd-rollout")["ingress"][0]["ports"].append({"port": 6060}),
        "edge for port 6060, which nothing listens on",
    ),
    "an edge for all ports": (
        lambda e: edit(e, "NetworkPolicy", "dapd-rollout")["ingress"][0].pop("ports"),
        "Ingress: trainer can reach rollout on TCP 9101",
    ),
    "ranks that cannot collect": (
        lambda e: edit(e, "NetworkPolicy", "dapd-trainer")["ingress"][0].update(ports=[{"port": 7004}]),
        "Ingress: trainer cannot reach trainer on TCP 65001",
    ),
    "everybody at home": (
        lambda e: edit(e, "NetworkPolicy", "dapd-teacher")["ingress"][0].update({"from": [{"podSelector": {}}]}),
        "stranger can reach teacher",
    ),
    "every namespace": (
        lambda e: edit(e, "NetworkPolicy", "dapd-teacher")["ingress"][0].update({"from": [{"namespaceSelector": {}}]}),
        "outsider can reach teacher",
    ),
    "a worker that calls out": (
        lambda e: edit(e, "NetworkPolicy", "dapd-rollout").update(egress=[{}]),
        "rollout can reach dns",
    ),
    "no name service": (lambda e: edit(e, "NetworkPolicy", "dapd-trainer")["egress"].pop(), "trainer cannot reach dns"),
    "a default that allows": (
        lambda e: edit(e, "NetworkPolicy", "dapd-default-deny").update(podSelector={"matchLabels": {"a": "b"}}),
        "the default is not to deny",
    ),
}


@pytest.mark.parametrize("spoil,expected", SPOILERS.values(), ids=SPOILERS)
def test_a_spoilt_manifest_breaks_a_rule(spoil, expected):
    everything = manifests.objects("cpu-demo", EVERYTHING)
    assert violations(everything) == []
    spoil(everything)
    found = violations(everything)
    assert any(expected in sentence for sentence in found), found


@pytest.mark.parametrize("kind", ["Deployment", "Service", "NetworkPolicy", "PodDisruptionBudget", "ScaledObject", "Certificate", "PodMonitor", "PrometheusRule"])
def test_an_unknown_key_and_a_wrong_type_do_not_fit_the_schema(kind):
    good = of_kind(manifests.objects("cpu-demo", EVERYTHING), kind)[0]
    validate(good)
    for spec in (good["spec"] | {"replicaz": 1}, "text"):
        with pytest.raises(jsonschema.ValidationError):
            validate(copy.deepcopy(good) | {"spec": spec})


@pytest.mark.parametrize("name", ["loader", "reader"])
def test_pods_for_people_keep_the_rules_of_the_namespace(name):
    pod = yaml.safe_load((manifests.MANIFESTS / f"{name}.yaml").read_text())
    validate(pod)
    context = pod["spec"]["securityContext"]
    assert context["runAsNonRoot"] and context["seccompProfile"]["type"] == "RuntimeDefault"
    assert list(kubernetes_policy.check_security_context(name, pod["spec"]["containers"][0]["securityContext"])) == []


def test_a_second_run_has_nothing_of_the_first(tmp_path):
    """As the page says to make one: in a namespace of its own, scaled by its own samples, and with rules only once."""
    page = (manifests.MANIFESTS / "README.md").read_text()
    (example,) = [text for text in re.findall(r"```yaml\n(.*?)```", page, re.S) if "namespace: second" in text]
    folder = manifests.MANIFESTS / "overlays"
    text = example.replace("../gpu-cluster", f"{os.path.relpath(folder, os.path.realpath(tmp_path))}/gpu-cluster")
    text = text.replace("../../components", os.path.relpath(manifests.MANIFESTS / "components", os.path.realpath(tmp_path)))
    (tmp_path / "kustomization.yaml").write_text(text)
    result = manifests.kustomize(tmp_path)
    assert result.returncode == 0, result.stderr
    everything = list(yaml.safe_load_all(result.stdout))
    assert {entry["metadata"].get("namespace", entry["metadata"]["name"]) for entry in everything} == {"second"}
    assert not of_kind(everything, "PrometheusRule") and of_kind(everything, "PodMonitor")
    (scaled,) = of_kind(everything, "ScaledObject")
    query = scaled["spec"]["triggers"][0]["metadata"]["query"]
    first = of_kind(manifests.objects("cpu-demo", ("keda",)), "ScaledObject")[0]["spec"]["triggers"][0]["metadata"]["query"]
    assert query == first.replace('namespace="dapd"', 'namespace="second"')


def test_a_label_for_everything_leaves_selectors_alone(tmp_path):
    """As the page says to add one: a policy that then selected DNS by it would keep the trainer from resolving any name."""
    page = (manifests.MANIFESTS / "README.md").read_text()
    (example,) = re.findall(r"^labels: (.*)$", page, re.M)
    base = os.path.relpath(manifests.MANIFESTS, os.path.realpath(tmp_path))
    kustomization = {"resources": [f"{base}/overlays/gpu-cluster"], "components": [f"{base}/components/monitoring"], "labels": yaml.safe_load(example)}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    result = manifests.kustomize(tmp_path)
    assert result.returncode == 0, result.stderr
    everything = list(yaml.safe_load_all(result.stdout))
    assert violations(everything) == []
    assert all(entry["metadata"]["labels"]["release"] == "kube-prometheus-stack" for entry in of_kind(everything, "PodMonitor"))
    assert all("release" not in workload["spec"]["selector"]["matchLabels"] for workload in manifests.workloads(everything))


@pytest.mark.parametrize("name,holder", [("loader", {"app.kubernetes.io/name": "dapd"}), ("reader", {"statefulset.kubernetes.io/pod-name": "dapd-trainer-0"})])
def test_pods_for_people_go_where_the_claim_is(name, holder):
    """ReadWriteOnce: to the node of who has it, whatever taints that has, and anywhere while nobody does."""
    pod = yaml.safe_load((manifests.MANIFESTS / f"{name}.yaml").read_text())["spec"]
    assert not pod["affinity"]["podAffinity"].get("requiredDuringSchedulingIgnoredDuringExecution")
    (preferred,) = pod["affinity"]["podAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert preferred["podAffinityTerm"]["labelSelector"]["matchLabels"] == holder
    everything = manifests.objects("gpu-single-node")
    labels = pod_template(everything)["metadata"]["labels"] | {"statefulset.kubernetes.io/pod-name": "dapd-trainer-0"}
    assert holder.items() <= labels.items()
    taints = pod_of(find(everything, "StatefulSet", "dapd-trainer"))["tolerations"]
    assert all(toleration in pod["tolerations"] for toleration in taints)


def pod_template(everything):
    return find(everything, "StatefulSet", "dapd-trainer")["spec"]["template"]


@pytest.mark.parametrize("overlay", manifests.OVERLAYS)
def test_the_trainer_waits_for_workers_as_long_as_they_may_take_to_start(overlay):
    everything = manifests.objects(overlay)
    (cluster,) = (entry["data"] for entry in of_kind(everything, "ConfigMap") if "DAPD_RUN__OUTPUT_DIR" in entry["data"])
    patience = float(cluster["DAPD_TRAINER__PEER_TIMEOUT_SECONDS"])
    for name in ("dapd-rollout", "dapd-teacher"):
        probe = container(everything, "Deployment", name)["startupProbe"]
        # The image is pulled before that begins.
        assert patience >= 2 * probe["periodSeconds"] * probe["failureThreshold"], name


def test_the_cluster_of_seven_gpus_trains_with_the_most_of_them():
    """As tests/common/model/spec/role_split_test.cc has it for Qwen3-4B; 4 workers and 1 rank would take nearly twice as long."""
    everything = manifests.objects("gpu-cluster")
    counts = {workload["metadata"]["name"]: workload["spec"]["replicas"] for workload in manifests.workloads(everything)}
    assert counts == {"dapd-trainer": 4, "dapd-teacher": 2, "dapd-rollout": 1}


@pytest.mark.parametrize("overlay", ["gpu-single-node", "gpu-cluster"])
def test_gpu_pods_need_no_labels_that_only_feature_discovery_sets(overlay):
    for workload in manifests.workloads(manifests.objects(overlay)):
        pod = pod_of(workload)
        assert "nodeSelector" not in pod
        assert int(pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]) >= 1, "this is what finds the node"


def test_the_page_says_how_images_are_pulled_from_a_private_registry(tmp_path):
    page = (manifests.MANIFESTS / "README.md").read_text()
    (example,) = [text for text in re.findall(r"```yaml\n(.*?)```", page, re.S) if "imagePullSecrets" in text]
    base = os.path.relpath(manifests.MANIFESTS, os.path.realpath(tmp_path))
    kustomization = {"resources": [f"{base}/overlays/cpu-demo"], **yaml.safe_load(example)}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    result = manifests.kustomize(tmp_path)
    assert result.returncode == 0, result.stderr
    accounts = of_kind(list(yaml.safe_load_all(result.stdout)), "ServiceAccount")
    assert accounts and all(account["imagePullSecrets"] == [{"name": "registry"}] for account in accounts)


def test_grafana_gets_the_dashboards_as_they_are():
    maps = of_kind(manifests.objects("cpu-demo", ("monitoring",)), "ConfigMap")
    found = {name: text for entry in maps if entry["metadata"]["labels"].get("grafana_dashboard") for name, text in entry["data"].items()}
    assert found == {path.name: path.read_text() for path in (manifests.ROOT / "dashboards").glob("*.json")}


def test_the_operator_gets_the_rules_as_they_are():
    (rules,) = of_kind(manifests.objects("cpu-demo", ("monitoring",)), "PrometheusRule")
    groups = [yaml.safe_load(path.read_text())["groups"] for path in sorted((manifests.ROOT / "dashboards/rules").glob("*.yml"))]
    assert rules["spec"]["groups"] == list(itertools.chain(*groups)), "call components/monitoring/write_rules.py"


def test_names_of_config_maps_change_with_their_content():
    """So that pods are replaced when their configuration is."""
    names = [name["metadata"]["name"] for overlay in manifests.OVERLAYS for name in of_kind(manifests.objects(overlay), "ConfigMap")]
    runs = [name for name in names if name.startswith("dapd-run-")]
    assert len(set(runs)) == len(runs) == len(manifests.OVERLAYS)


@pytest.mark.parametrize("overlay,preset", [("cpu-demo", "container"), ("gpu-single-node", "qwen3-1.7b"), ("gpu-cluster", "qwen3-4b")])
def test_a_run_is_the_preset_that_the_overlay_names(overlay, preset):
    run = manifests.MANIFESTS / "overlays" / overlay / "run.yaml"
    assert run.read_bytes() == (manifests.ROOT / f"configs/{preset}.yaml").read_bytes()
