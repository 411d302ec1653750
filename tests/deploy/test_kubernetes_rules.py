"""Checks that every overlay, alone and with components, fits its schemas and keeps the rules, and that broken rules are found."""

import copy

import jsonschema
import kubernetes_manifests as manifests
import kubernetes_policy
import pytest
import yaml
from kubernetes_manifests import container, find, of_kind, pod_of
from kubernetes_rules import validate, violations

EVERYTHING = ("monitoring", "keda", "mtls", "cert-manager")

all_combinations = pytest.mark.parametrize("combination", manifests.combinations(), ids=manifests.label)


@pytest.fixture(scope="module")
def known_good():
    """Remembers valid objects: most objects are alike in all combinations."""
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


def edit(everything, kind, name):
    return find(everything, kind, name)["spec"]


def check_that_it_breaks(everything, spoil, expected):
    assert violations(everything) == []
    spoil(everything)
    found = violations(everything)
    assert any(expected in sentence for sentence in found), found


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
        "has 3 pods that believe to be 1",
    ),
    "ranks that are not scraped": (
        lambda e: edit(e, "StatefulSet", "dapd-trainer")["template"]["metadata"]["labels"].update({"dapd/ranks": "2"}),
        "of which not all are scraped",
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
    check_that_it_breaks(manifests.objects("cpu-demo", EVERYTHING), spoil, expected)


def change_run(everything, old, new):
    run = next(entry["data"] for entry in of_kind(everything, "ConfigMap") if "run.yaml" in entry["data"])
    assert old in run["run.yaml"]
    run["run.yaml"] = run["run.yaml"].replace(old, new)


TEACHER_SPOILERS = {
    "workers of the own model": (
        lambda e: container(e, "Deployment", "dapd-teacher-big").update(command=["dapd", "keep", "dapd-teacher", "/etc/dapd/run.yaml"]),
        "Deployment dapd-teacher-big serves the student's own model",
    ),
    "workers of another teacher": (
        lambda e: container(e, "Deployment", "dapd-teacher-big")["command"].__setitem__(-1, "code"),
        "serves code at ['dapd-teacher-big:7002'], and run.yaml asks for it at ['dapd-teacher-code:7002']",
    ),
    "a label of another teacher": (
        lambda e: edit(e, "Deployment", "dapd-teacher-big")["template"]["metadata"]["labels"].update({"dapd/teacher": "code"}),
        "serves big under the label code",
    ),
    "a teacher that the run does not know": (
        lambda e: change_run(e, "name: big", "name: large"),
        "serves big at ['dapd-teacher-big:7002'], and run.yaml asks for it at no address",
    ),
    "another address in the run": (
        lambda e: change_run(e, "dapd-teacher-big:7002", "dapd-teacher:7002"),
        "run.yaml asks for it at ['dapd-teacher:7002']",
    ),
    "a teacher without workers": (
        lambda e: e.remove(find(e, "Deployment", "dapd-teacher-code")),
        "run.yaml asks for the teacher code, who has no worker",
    ),
    "a service of all teachers": (
        lambda e: edit(e, "Service", "dapd-teacher-big")["selector"].pop("dapd/teacher"),
        "Deployment dapd-teacher-code has 2 services",
    ),
    "a budget of all teachers": (
        lambda e: edit(e, "PodDisruptionBudget", "dapd-teacher-big")["selector"]["matchLabels"].pop("dapd/teacher"),
        "Deployment dapd-teacher-code has 2 disruption budgets",
    ),
    "another port": (
        lambda e: next(c for c in of_kind(e, "ConfigMap") if "DAPD_RUN__OUTPUT_DIR" in c["data"])["data"].update(DAPD_TEACHER__LISTEN="0.0.0.0:7011"),
        "listens on 0.0.0.0:7011, not on its port 7002",
    ),
    "a certificate for another role": (
        lambda e: edit(e, "Certificate", "dapd-teacher").update(uris=["spiffe://dapd/rollout"]),
        "Deployment dapd-teacher-big's secret dapd-teacher-tls is for ['spiffe://dapd/rollout']",
    ),
    "everybody at home": (
        lambda e: edit(e, "NetworkPolicy", "dapd-further-teacher")["ingress"][0].update({"from": [{"podSelector": {}}]}),
        "stranger can reach further-teacher",
    ),
    "a trainer that may not call": (
        lambda e: edit(e, "NetworkPolicy", "dapd-trainer")["egress"][1]["to"].pop(),
        "Egress: trainer cannot reach further-teacher on TCP 7002",
    ),
}


@pytest.mark.parametrize("spoil,expected", TEACHER_SPOILERS.values(), ids=TEACHER_SPOILERS)
def test_a_spoilt_further_teacher_breaks_a_rule(spoil, expected):
    check_that_it_breaks(manifests.objects("cpu-demo", EVERYTHING, ("big", "code")), spoil, expected)


GPU_SPOILERS = {
    "a GPU too few": (
        lambda e: container(e, "StatefulSet", "dapd-trainer")["resources"]["limits"].update({"nvidia.com/gpu": 2}),
        "has 2 GPUs for 1 ranks",
    ),
    "a worker that does not split": (
        lambda e: container(e, "Deployment", "dapd-rollout")["resources"]["limits"].update({"nvidia.com/gpu": 2}),
        "has 2 GPUs for 1 processes",
    ),
    "a download that may call everybody": (
        lambda e: edit(e, "NetworkPolicy", "dapd-download")["egress"].append({}),
        "Egress: download can reach trainer on TCP 7003",
    ),
    "a download that reads the cloud's credentials": (
        lambda e: edit(e, "NetworkPolicy", "dapd-download")["egress"][1]["to"][0]["ipBlock"].pop("except"),
        "Egress: download can reach metadata on TCP 443",
    ),
    "a download without a fence": (
        lambda e: e.remove(find(e, "NetworkPolicy", "dapd-download")),
        "Egress: download cannot reach internet on TCP 443",
    ),
    "a download as root": (
        lambda e: pod_of(find(e, "Job", "dapd-download"))["securityContext"].update(runAsUser=0),
        "Job dapd-download may run as root",
    ),
    "a trainer that calls out": (
        lambda e: edit(e, "NetworkPolicy", "dapd-trainer")["egress"].append({"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}], "ports": [{"port": 443}]}),
        "Egress: trainer can reach internet on TCP 443",
    ),
}


@pytest.mark.parametrize("spoil,expected", GPU_SPOILERS.values(), ids=GPU_SPOILERS)
def test_a_spoilt_cluster_of_gpus_breaks_a_rule(spoil, expected):
    check_that_it_breaks(manifests.objects("gpu-cluster", ("download", "cert-manager")), spoil, expected)


JOBSET_SPOILERS = {
    "a trainer that stays": (
        lambda e: next(c for c in of_kind(e, "ConfigMap") if "DAPD_RUN__OUTPUT_DIR" in c["data"])["data"].update(DAPD_TRAINER__WHEN_DONE="serve"),
        "a trainer that stays when it is done",
    ),
    "workers that are done when they are stopped": (
        lambda e: next(c for c in of_kind(e, "ConfigMap") if "DAPD_RUN__OUTPUT_DIR" in c["data"])["data"].pop("DAPD_RUN__STOPPED_WORKER"),
        "workers that are done when they are stopped",
    ),
    "any job's end": (
        lambda e: edit(e, "JobSet", "dapd")["successPolicy"].update(operator="Any"),
        "does not end with the trainer",
    ),
    "half of the pods": (
        lambda e: edit(e, "JobSet", "dapd")["replicatedJobs"][1]["template"]["spec"].update(parallelism=1),
        "Job dapd-teacher does not start all its pods",
    ),
    "a budget of another number": (
        lambda e: edit(e, "PodDisruptionBudget", "dapd-trainer").update(minAvailable=0),
        "has a budget that is not its number of pods",
    ),
    "no policy for restarts": (
        lambda e: edit(e, "JobSet", "dapd")["replicatedJobs"][0]["template"]["spec"]["template"]["spec"].pop("restartPolicy"),
        "Job dapd-rollout does not say what becomes of a pod",
    ),
    "a Deployment beside it": (
        lambda e: e.append(find(manifests.objects("one-node-8-gpus"), "Deployment", "dapd-rollout")),
        "is not all that runs the services",
    ),
}


@pytest.mark.parametrize("spoil,expected", JOBSET_SPOILERS.values(), ids=JOBSET_SPOILERS)
def test_a_spoilt_job_set_breaks_a_rule(spoil, expected):
    check_that_it_breaks(manifests.objects("jobset"), spoil, expected)


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
