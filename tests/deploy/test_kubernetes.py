"""Tests that the Kubernetes overlays, components and pages give what they say."""

import itertools
import os
import re

import kubernetes_manifests as manifests
import kubernetes_network
import pytest
import yaml
from kubernetes_manifests import container, find, of_kind, pod_of, pod_template
from kubernetes_rules import violations


def test_the_way_out_is_the_trainers_and_by_one_port():
    """The trainer copies checkpoints and reports the end; a peer in a private network is not outside."""
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
    """Only their index, their name, their run folder and their restart policies differ."""
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
        for each in (pod, other):  # these names have a digest of their content
            each["containers"][0].pop("envFrom")
            each["volumes"] = [volume for volume in each["volumes"] if volume["name"] != "run"]
        assert pod == other


def test_a_further_teacher_is_like_the_own_teacher():
    """Its objects differ in names, labels and the model that is served, and its settings count."""
    settings = manifests.settings_of({"configMapGenerator": [
        entry | {"name": "dapd-settings"} for entry in yaml.safe_load(manifests.TEACHER.read_text())["configMapGenerator"]]})
    like = {f"teacher_{key.replace('-', '_')}": value for key, value in settings.items() if key != "name"}
    assert set(like) == {"teacher_pods", "teacher_cpu", "teacher_cpu_limit", "teacher_memory"}
    added = ("mtls", "priority-class", "runtime-class", "pull-secret", "one-node")
    everything = manifests.objects("one-node-8-gpus", added, ("big",), **like)
    for kind in ("ServiceAccount", "Service", "PodDisruptionBudget", "Deployment"):
        further, own = (find(everything, kind, name) for name in ("dapd-teacher-big", "dapd-teacher"))
        for each in (further, own):
            each["metadata"].pop("name"), each["metadata"].pop("labels")
            each.get("spec", {}).pop("selector", None)
        if kind == "Deployment":
            assert pod_of(further)["containers"][0].pop("command") == [*pod_of(own)["containers"][0].pop("command"), "--teacher", "big"]
            assert pod_of(further).pop("serviceAccountName") == "dapd-teacher-big" and pod_of(own).pop("serviceAccountName")
            for each in (further, own):
                labels = each["spec"]["template"]["metadata"].pop("labels")
                (constraint,) = pod_of(each)["topologySpreadConstraints"]
                assert constraint.pop("labelSelector") == {"matchLabels": labels}
        assert further == own


def test_the_page_and_the_template_say_how_to_add_further_teachers():
    """Both folders are copies of one folder, and the lists in run.yaml follow the comment in it."""
    text = (manifests.MANIFESTS / "overlays/template/kustomization.yaml").read_text()
    folder, offer = manifests.TEACHER.parent.name, re.compile(r"^  # (- teacher-\w+) ", re.MULTILINE)
    assert offer.findall(text) == [f"- {folder}"]
    switched_on = yaml.safe_load(offer.sub(r"  \1 ", text))
    result = manifests.render(switched_on, "template", ("big", "code"))
    assert result.returncode == 0, result.stderr
    everything = list(yaml.safe_load_all(result.stdout))
    assert everything == manifests.objects("template", (), ("big", "code")) and violations(everything) == []
    _, section = (manifests.MANIFESTS / "README.md").read_text().split("\n## Further teachers\n")
    (example,) = re.findall(r"^teachers:\n(?:  .*\n)+", section, re.MULTILINE)
    run = next(entry["data"]["run.yaml"] for entry in of_kind(everything, "ConfigMap") if "run.yaml" in entry["data"])
    assert {each["name"]: each["addresses"] for each in yaml.safe_load(example)["teachers"]} == {
        each["name"]: each["addresses"] for each in yaml.safe_load(run)["teachers"]}


def test_the_page_says_how_to_download_a_teacher():
    _, section = (manifests.MANIFESTS / "README.md").read_text().split("\n## Further teachers\n")
    (example,) = re.findall(r"^patches:\n(?:  .*\n)+", section, re.MULTILINE)
    kustomization = manifests.file_of("template") | yaml.safe_load(example)
    kustomization["components"].append("../../components/download")
    result = manifests.render(kustomization, "template", ("big",))
    assert result.returncode == 0, result.stderr
    everything = list(yaml.safe_load_all(result.stdout))
    assert violations(everything) == []
    model, _, teacher = pod_of(find(everything, "Job", "dapd-download"))["containers"]
    assert teacher["name"] == "teacher-big" and teacher["env"][0] == {"name": "WHAT", "value": "Qwen/Qwen3-32B"}
    assert teacher | {"name": "model", "env": model["env"][:1] + teacher["env"][1:]} == model


def test_further_teachers_stay_beside_a_job_set():
    everything = manifests.objects("jobset", (), ("big",))
    assert {(manifests.role(each), each["kind"]) for each in manifests.workloads(everything)} == {
        ("further-teacher", "Deployment"), ("rollout", "Job"), ("teacher", "Job"), ("trainer", "Job")}
    _, section = (manifests.MANIFESTS / "README.md").read_text().split("\n## Further teachers\n")
    name, value = re.search(r"kubectl -n dapd delete deployment -l ([\w./]+)=([\w-]+)`", section).groups()
    assert find(everything, "Deployment", "dapd-teacher-big")["metadata"]["labels"][name] == value


def test_the_page_says_how_to_delete_what_a_job_set_replaces():
    """`kubectl apply` removes nothing."""
    kept = {manifests.name_of(entry) for entry in manifests.objects("jobset")}
    replaced = [entry for entry in manifests.objects("one-node-8-gpus") if entry["kind"] != "ConfigMap" and manifests.name_of(entry) not in kept]
    assert replaced
    _, section = (manifests.MANIFESTS / "README.md").read_text().split("\n## As a job\n")
    kinds, name, value = re.search(r"kubectl -n dapd delete ([a-z,]+) -l ([\w./]+)=(\w+)`", section).groups()
    for entry in replaced:
        assert entry["kind"].lower() in kinds.split(",") and entry["metadata"]["labels"][name] == value, manifests.name_of(entry)


def labels_match(term, labels):
    """Evaluates a node selector term of In and NotIn as the scheduler does."""
    return all((labels.get(each["key"]) in each["values"]) == {"In": True, "NotIn": False}[each["operator"]] for each in term["matchExpressions"])


@pytest.mark.parametrize("labels,is_spot", [({"karpenter.sh/capacity-type": "spot"}, True), ({"karpenter.sh/capacity-type": "on-demand"}, False), ({}, False)])
def test_rollouts_go_to_spot_nodes_and_the_trainer_never_does(labels, is_spot):
    everything = manifests.objects("gpu-cluster", ("spot",), spot_label="karpenter.sh/capacity-type", spot_value="spot", spot_taint="interruptible")
    affinity = {name: pod_of(find(everything, kind, name)).get("affinity", {}).get("nodeAffinity", {})
                for kind, name in (("Deployment", "dapd-rollout"), ("Deployment", "dapd-teacher"), ("StatefulSet", "dapd-trainer"))}
    (preferred,) = affinity["dapd-rollout"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert labels_match(preferred["preference"], labels) == is_spot
    # Without spot nodes the rollout workers run on other nodes.
    assert "requiredDuringSchedulingIgnoredDuringExecution" not in affinity["dapd-rollout"]
    (term,) = affinity["dapd-trainer"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert labels_match(term, labels) != is_spot
    assert affinity["dapd-teacher"] == {}
    tolerated = {name: {each["key"] for each in pod_of(find(everything, kind, name))["tolerations"]}
                 for kind, name in (("Deployment", "dapd-rollout"), ("StatefulSet", "dapd-trainer"))}
    assert tolerated == {"dapd-rollout": {"nvidia.com/gpu", "interruptible"}, "dapd-trainer": {"nvidia.com/gpu"}}


def scraped(monitor, address, component, ranks=""):
    """Returns each (job, address) that Prometheus makes of a pod by the PodMonitor's relabelings."""
    found = []
    for endpoint in monitor["spec"]["podMetricsEndpoints"]:
        target = {"__address__": address, "__meta_kubernetes_pod_label_app_kubernetes_io_component": component,
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
    return found


def test_prometheus_asks_every_rank_of_a_pod_and_none_that_is_not_there():
    """Pods have 1 to 8 ranks, and all workers one port; further teachers have the job of the own teachers."""
    (monitor,) = of_kind(manifests.objects("cpu-demo", ("scraping",)), "PodMonitor")
    for ranks in range(1, 9):
        assert scraped(monitor, "[fd00::7]:9103", "trainer", ranks) == [("dapd-trainer", f"[fd00::7]:{9103 + 10 * rank}") for rank in range(ranks)]
    jobs = {"rollout": "dapd-rollout", "teacher": "dapd-teacher", "further-teacher": "dapd-teacher"}
    for component, job in jobs.items():
        assert scraped(monitor, "10.0.0.7:9102", component) == [(job, "10.0.0.7:9102")]
    (worker,) = (endpoint for endpoint in monitor["spec"]["podMetricsEndpoints"] if not any(rule.get("action") for rule in endpoint["relabelings"]))
    assert worker["port"] == "metrics"


def test_a_second_run_brings_the_rules_no_second_time():
    """The page's instructions give a copy in its own namespace, with scraping alone, scaled by its own samples."""
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
    """A file with a whole overlay as its resource, instead of a copy of its file, gives the same objects."""
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
    """The page says how to add a label. If a policy then selected DNS by that label, the trainer could resolve no name."""
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
    """The claim is ReadWriteOnce: the pods run on the node that has it, whatever its taints are, and on any node while no node has it."""
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


@pytest.mark.parametrize("overlay", [overlay for overlay in manifests.OVERLAYS if overlay != "jobset"])
def test_the_trainer_waits_for_workers_as_long_as_they_may_take_to_start(overlay):
    everything = manifests.objects(overlay)
    (cluster,) = (entry["data"] for entry in of_kind(everything, "ConfigMap") if "DAPD_RUN__OUTPUT_DIR" in entry["data"])
    patience = float(cluster["DAPD_TRAINER__PEER_TIMEOUT_SECONDS"])
    for name in ("dapd-rollout", "dapd-teacher"):
        probe = container(everything, "Deployment", name)["startupProbe"]
        # The image is pulled before the probe's time begins.
        assert patience >= 2 * probe["periodSeconds"] * probe["failureThreshold"], name


def test_the_cluster_of_seven_gpus_trains_with_the_most_of_them():
    """tests/common/model/spec/role_split_test.cc expects this for Qwen3-4B; 4 workers and 1 rank would take nearly twice as long."""
    everything = manifests.objects("gpu-cluster")
    counts = {workload["metadata"]["name"]: workload["spec"]["replicas"] for workload in manifests.workloads(everything)}
    assert counts == {"dapd-trainer": 4, "dapd-teacher": 2, "dapd-rollout": 1}


@pytest.mark.parametrize("overlay,gpus", [("gpu-single-node", 3), ("gpu-cluster", 7), ("one-node-8-gpus", 8), ("jobset", 8), ("two-nodes-8-gpus", 16), ("qwen3-32b", 8)])
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
    """New names let pods be replaced when their configuration changes."""
    names = [name["metadata"]["name"] for overlay in manifests.OVERLAYS for name in of_kind(manifests.objects(overlay), "ConfigMap")]
    runs = [name for name in names if name.startswith("dapd-run-")]
    presets = {preset for preset, _ in PRESETS.values()}
    assert len(runs) == len(manifests.OVERLAYS) and len(set(runs)) == len(presets)


# Maps each overlay to its preset and to the values that its run.yaml and its settings share.
PRESETS = {
    "cpu-demo": ("container", {}),
    "gpu-single-node": ("qwen3-1.7b", {}),
    "gpu-cluster": ("qwen3-4b", {}),
    "template": ("qwen3-4b", {}),
    "one-node-8-gpus": ("qwen3-4b", {}),
    "jobset": ("qwen3-4b", {}),
    "two-nodes-8-gpus": ("qwen3-8b", {}),
    "qwen3-32b": ("qwen3-32b", {"trainer.ranks": 4}),
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
    """`kubectl rollout status` ends with an error if a user deletes pods to replace them."""
    root = manifests.ROOT
    workloads = {(entry["kind"].lower(), entry["metadata"]["name"]): entry
                 for path in (root / "deploy/kubernetes/base").glob("*.yaml") for entry in yaml.safe_load_all(path.read_text()) if entry and "metadata" in entry}
    strategy = workloads["statefulset", "dapd-trainer"]["spec"]["updateStrategy"]["type"]
    assert strategy == "OnDelete"
    for pattern in ("docs/*.md", "deploy/kubernetes/**/*.md"):
        for page in root.glob(pattern):
            assert not re.search(r"rollout status (statefulset|sts)/", page.read_text()), page


def test_pages_say_how_long_kubectl_waits():
    """By default it gives up after 30 s: before a claim exists and an image is pulled, and long before a run is done."""
    root = manifests.ROOT
    waits = {(str(page.relative_to(root)), call) for pattern in ("docs/*.md", "deploy/kubernetes/**/*.md") for page in root.glob(pattern)
             for call in re.findall(r"kubectl (?:-n \w+ )?wait [^`\n&]*", page.read_text())}
    assert len(waits) >= 5
    assert not sorted((page, call) for page, call in waits if "--timeout=" not in call)
