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
        for replicated in entry["spec"].get("replicatedJobs", []):
            metadata = {"name": replicated["name"], "namespace": entry["metadata"]["namespace"]}
            validate({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, **replicated["template"]})
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
    everything = manifests.objects("cpu-demo", EVERYTHING)
    assert violations(everything) == []
    spoil(everything)
    found = violations(everything)
    assert any(expected in sentence for sentence in found), found


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
    everything = manifests.objects("gpu-cluster", ("download", "cert-manager"))
    assert violations(everything) == []
    spoil(everything)
    found = violations(everything)
    assert any(expected in sentence for sentence in found), found


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
    everything = manifests.objects("jobset")
    assert violations(everything) == []
    spoil(everything)
    found = violations(everything)
    assert any(expected in sentence for sentence in found), found


def test_the_way_out_is_the_trainers_and_by_one_port():
    """What copies checkpoints and tells of the end is the trainer; who is in a private network is not outside."""
    everything = manifests.objects("gpu-cluster", ("egress-https",), https_port=9443)
    assert violations(everything) == []
    is_open = {edge for edge in kubernetes_network.open_edges(everything, "Egress") if edge[1] in kubernetes_network.OUTSIDE}
    assert is_open == {("trainer", answerer, "TCP", 9443) for answerer in ("internet", "internet by IPv6")}


def test_the_way_out_fences_nothing_where_there_are_no_fences():
    kustomization = manifests.file_of("cpu-demo") | {"components": ["../../components/egress-https"]}
    result = manifests.render(kustomization, "cpu-demo")
    assert result.returncode == 0, result.stderr
    assert not of_kind(list(yaml.safe_load_all(result.stdout)), "NetworkPolicy")


def test_a_claim_of_a_run_has_the_access_that_is_set():
    everything = manifests.objects("gpu-cluster", runs_access="ReadWriteOncePod")
    (claim,) = find(everything, "StatefulSet", "dapd-trainer")["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]


def test_ranks_of_a_job_set_on_several_nodes_share_a_claim():
    everything = manifests.objects("jobset", trainer_pods=2)
    assert any("2 pods for claim dapd-runs, which one node can have" in sentence for sentence in violations(everything))
    assert violations(manifests.objects("jobset", trainer_pods=2, runs_access="ReadWriteMany")) == []


def test_a_job_set_is_made_of_the_pods_of_the_other_overlays():
    """But for their index, their name, their run folder and what becomes of them."""
    deployed = {manifests.role(each): each for each in manifests.workloads(manifests.objects("one-node-8-gpus", ("priority-class",), priority_class="research"))}
    for job in manifests.workloads(manifests.objects("jobset")):
        pod, other = pod_of(job), pod_of(deployed[manifests.role(job)])
        assert job["spec"]["completions"] == deployed[manifests.role(job)]["spec"]["replicas"]
        assert pod.pop("restartPolicy") == ("Never" if manifests.role(job) == "trainer" else "OnFailure")
        if manifests.role(job) == "trainer":
            assert pod.pop("subdomain") == "dapd-trainer"
            assert pod["volumes"].pop() == {"name": "runs", "persistentVolumeClaim": {"claimName": "dapd-runs"}}
            variables = {entry["name"]: entry for entry in pod["containers"][0]["env"]}
            assert variables["DAPD_TRAINER__RENDEZVOUS"]["value"] == "dapd-trainer-0-0.dapd-trainer:7004"
            index = variables["DAPD_TRAINER__MACHINE"]["valueFrom"]["fieldRef"]
            assert index["fieldPath"] == "metadata.labels['batch.kubernetes.io/job-completion-index']"
            others = {entry["name"]: entry for entry in other["containers"][0]["env"]}
            others["DAPD_TRAINER__MACHINE"]["valueFrom"]["fieldRef"]["fieldPath"] = index["fieldPath"]
            others["DAPD_TRAINER__RENDEZVOUS"]["value"] = variables["DAPD_TRAINER__RENDEZVOUS"]["value"]
        for each in (pod, other):  # whose names have a digest of what differs
            each["containers"][0].pop("envFrom")
            each["volumes"] = [volume for volume in each["volumes"] if volume["name"] != "run"]
        assert pod == other


def labels_match(term, labels):
    """A node selector term of In and NotIn, as the scheduler does it."""
    return all((labels.get(each["key"]) in each["values"]) == {"In": True, "NotIn": False}[each["operator"]] for each in term["matchExpressions"])


@pytest.mark.parametrize("labels,is_spot", [({"karpenter.sh/capacity-type": "spot"}, True), ({"karpenter.sh/capacity-type": "on-demand"}, False), ({}, False)])
def test_rollouts_go_to_spot_nodes_and_the_trainer_never_does(labels, is_spot):
    everything = manifests.objects("gpu-cluster", ("spot",), spot_label="karpenter.sh/capacity-type", spot_value="spot", spot_taint="interruptible")
    affinity = {name: pod_of(find(everything, kind, name)).get("affinity", {}).get("nodeAffinity", {})
                for kind, name in (("Deployment", "dapd-rollout"), ("Deployment", "dapd-teacher"), ("StatefulSet", "dapd-trainer"))}
    (preferred,) = affinity["dapd-rollout"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert labels_match(preferred["preference"], labels) == is_spot
    # Where there are none, elsewhere.
    assert "requiredDuringSchedulingIgnoredDuringExecution" not in affinity["dapd-rollout"]
    (term,) = affinity["dapd-trainer"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert labels_match(term, labels) != is_spot
    assert affinity["dapd-teacher"] == {}
    tolerated = {name: {each["key"] for each in pod_of(find(everything, kind, name))["tolerations"]}
                 for kind, name in (("Deployment", "dapd-rollout"), ("StatefulSet", "dapd-trainer"))}
    assert tolerated == {"dapd-rollout": {"nvidia.com/gpu", "interruptible"}, "dapd-trainer": {"nvidia.com/gpu"}}


def test_prometheus_asks_every_rank_of_a_pod_and_none_that_is_not_there():
    """The relabelings of the PodMonitor, done as Prometheus does them, for pods of 1 to 8 ranks."""
    (monitor,) = of_kind(manifests.objects("cpu-demo", ("scraping",)), "PodMonitor")
    for ranks in range(1, 9):
        found = []
        for endpoint in monitor["spec"]["podMetricsEndpoints"]:
            target = {"__address__": "[fd00::7]:9103", "__meta_kubernetes_pod_label_app_kubernetes_io_component": "trainer",
                      "__meta_kubernetes_pod_label_dapd_ranks": str(ranks)}
            for rule in endpoint["relabelings"]:
                match = re.fullmatch(rule.get("regex", "(.*)"), ";".join(target[name] for name in rule["sourceLabels"]))
                if rule.get("action") == "keep":
                    if not match:
                        break
                else:
                    target[rule["targetLabel"]] = match.expand(rule["replacement"].replace("$1", r"\g<1>"))
            else:
                found.append((target["job"], target["__address__"]))
        assert found == [("dapd-trainer", f"[fd00::7]:{9103 + 10 * rank}") for rank in range(ranks)]
    (worker,) = (endpoint for endpoint in monitor["spec"]["podMetricsEndpoints"] if not any(rule.get("action") for rule in endpoint["relabelings"]))
    assert worker["port"] == "metrics"


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


def test_a_second_run_brings_the_rules_no_second_time():
    """As the page says to make one: a copy in a namespace of its own, with scraping alone, scaled by its own samples."""
    kustomization = manifests.file_of("template") | {"namespace": "second"}
    kustomization["components"] += ["../../components/scraping", "../../components/keda"]
    result = manifests.render(kustomization, "template")
    assert result.returncode == 0, result.stderr
    everything = list(yaml.safe_load_all(result.stdout))
    assert {entry["metadata"].get("namespace", entry["metadata"]["name"]) for entry in everything} == {"second"}
    assert not of_kind(everything, "PrometheusRule") and of_kind(everything, "PodMonitor")
    (scaled,) = of_kind(everything, "ScaledObject")
    query = scaled["spec"]["triggers"][0]["metadata"]["query"]
    first = of_kind(manifests.objects("cpu-demo", ("keda",)), "ScaledObject")[0]["spec"]["triggers"][0]["metadata"]["query"]
    assert query == first.replace('namespace="dapd"', 'namespace="second"')


@pytest.mark.parametrize("added", [("monitoring", "keda"), ("runtime-class",)], ids="+".join)
def test_components_and_settings_may_be_added_to_an_overlay_from_outside(added, tmp_path):
    """A file that takes a whole overlay as its resource, instead of being a copy of its file, comes to the same objects."""
    base = os.path.relpath(manifests.MANIFESTS, os.path.realpath(tmp_path))
    settings = {"name": "dapd-settings", "behavior": "merge", "namespace": "dapd", "literals": ["teacher-pods=5"]}
    kustomization = {"resources": [f"{base}/overlays/gpu-cluster"], "components": [f"{base}/components/{name}" for name in added],
                     "configMapGenerator": [settings], "transformers": [f"{base}/settings"]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    result = manifests.kustomize(tmp_path)
    assert result.returncode == 0, result.stderr
    key = manifests.name_of
    assert sorted(yaml.safe_load_all(result.stdout), key=key) == sorted(manifests.objects("gpu-cluster", added, teacher_pods=5), key=key)


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


@pytest.mark.parametrize("overlay", [overlay for overlay in manifests.OVERLAYS if overlay != "jobset"])
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


@pytest.mark.parametrize("overlay,gpus", [("gpu-single-node", 3), ("gpu-cluster", 7), ("one-node-8-gpus", 8), ("jobset", 8), ("two-nodes-8-gpus", 16), ("qwen3-32b", 16)])
def test_an_overlay_takes_as_many_gpus_as_it_says(overlay, gpus):
    assert sum(manifests.pods_of(each) * int(pod_of(each)["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])
               for each in manifests.workloads(manifests.objects(overlay))) == gpus


@pytest.mark.parametrize("overlay", [overlay for overlay in manifests.OVERLAYS if overlay != "cpu-demo"])
def test_gpu_pods_need_no_labels_that_only_feature_discovery_sets(overlay):
    for workload in manifests.workloads(manifests.objects(overlay)):
        pod = pod_of(workload)
        assert "nodeSelector" not in pod
        assert int(pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]) >= 1, "this is what finds the node"


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
    presets = {preset for preset, _ in PRESETS.values()}
    assert len(runs) == len(manifests.OVERLAYS) and len(set(runs)) == len(presets)


# Of each overlay, with the values that its run.yaml and its settings both have.
PRESETS = {
    "cpu-demo": ("container", {}),
    "gpu-single-node": ("qwen3-1.7b", {}),
    "gpu-cluster": ("qwen3-4b", {}),
    "template": ("qwen3-4b", {}),
    "one-node-8-gpus": ("qwen3-4b", {}),
    "jobset": ("qwen3-4b", {}),
    "two-nodes-8-gpus": ("qwen3-8b", {}),
    "qwen3-32b": ("qwen3-32b", {"trainer.ranks": 8}),
}


@pytest.mark.parametrize("overlay", PRESETS)
def test_a_run_is_the_preset_that_the_overlay_names(overlay):
    preset, shared = PRESETS[overlay]
    run = manifests.MANIFESTS / "overlays" / overlay / "run.yaml"
    assert run.read_bytes() == (manifests.ROOT / f"configs/{preset}.yaml").read_bytes()
    values, settings = yaml.safe_load(run.read_text()), manifests.settings_of(manifests.file_of(overlay))
    assert settings["model"] == values["model"]["path"] and settings["data"] == values["data"]["path"]
    ranks = int(settings.get("trainer-pods", 1)) * int(settings.get("trainer-gpus", 1))
    assert values["trainer"].get("ranks", ranks) == shared.get("trainer.ranks", ranks) == ranks


def test_no_page_waits_for_a_rollout_that_kubectl_does_not_follow():
    """`kubectl rollout status` ends with an error where pods are replaced by whoever deletes them."""
    root = manifests.ROOT
    workloads = {(entry["kind"].lower(), entry["metadata"]["name"]): entry
                 for path in (root / "deploy/kubernetes/base").glob("*.yaml") for entry in yaml.safe_load_all(path.read_text()) if entry and "metadata" in entry}
    strategy = workloads["statefulset", "dapd-trainer"]["spec"]["updateStrategy"]["type"]
    assert strategy == "OnDelete"
    for pattern in ("docs/*.md", "deploy/kubernetes/**/*.md"):
        for page in root.glob(pattern):
            assert not re.search(r"rollout status (statefulset|sts)/", page.read_text()), page


def test_pages_say_how_long_kubectl_waits():
    """Else it gives up after 30 s: before a claim is there and an image pulled, and long before a run is done."""
    root = manifests.ROOT
    waits = {(str(page.relative_to(root)), call) for pattern in ("docs/*.md", "deploy/kubernetes/**/*.md") for page in root.glob(pattern)
             for call in re.findall(r"kubectl (?:-n \w+ )?wait [^`\n&]*", page.read_text())}
    assert len(waits) >= 5
    assert not sorted((page, call) for page, call in waits if "--timeout=" not in call)
