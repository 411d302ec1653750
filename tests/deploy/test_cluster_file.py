"""Tests deploy/kubernetes/overlays/template, the one file that describes a cluster, with two values of every setting."""

import re

import kubernetes_manifests as manifests
import kubernetes_network
import pytest
import yaml
from kubernetes_manifests import find, of_kind, pod_of
from kubernetes_rules import validate, violations

TEMPLATE = manifests.MANIFESTS / "overlays/template/kustomization.yaml"
SWITCH = re.compile(r"^  # (- \.\./\.\./components/([\w-]+))", re.MULTILINE)


def switched_on(*names):
    """Returns the template's text with these components switched on."""
    return SWITCH.sub(lambda match: f"  {match[1]}" if match[2] in names else match[0], TEMPLATE.read_text())


# Two clusters differ as much as the file allows; no value occurs anywhere else.
FIRST = {
    "namespace": "alpha",
    "components": ("download", "egress-https", "mtls", "cert-manager", "monitoring", "keda", "spot", "storage-class", "pull-secret", "runtime-class",
                   "priority-class"),
    "image": "registry.alpha/dapd:a1",
    "settings": {
        "run": "named-a", "model": "org/model-a@main", "data": "org/data-a:main/train-*", "hub": "https://hub.alpha", "trainer-pods": "3",
        "trainer-gpus": "5", "trainer-cpu": "17", "trainer-cpu-limit": "37", "trainer-memory": "131Gi", "teacher-pods": "7",
        "teacher-cpu": "11", "teacher-cpu-limit": "13", "teacher-memory": "41Gi", "rollout-pods": "19", "rollout-gpus": "6",
        "rollout-cpu": "23", "rollout-cpu-limit": "29", "rollout-memory": "43Gi", "shared-memory": "9Gi", "start-checks": "361",
        "input-size": "101Gi", "input-access": "ReadOnlyMany", "runs-size": "53Gi", "runs-access": "ReadWriteMany",
        "input-storage-class": "input-a", "runs-storage-class": "kept-a", "pull-secret": "secret-a", "runtime-class": "runtime-a",
        "priority-class": "priority-a", "queue": "queue-a", "spot-label": "example.org/spot-a", "spot-value": "value-a", "spot-taint": "taint-a",
        "monitoring-namespace": "monitoring-a", "dns-namespace": "dns-a", "dns-app": "app-a", "https-port": "9443", "grafana": "https://grafana.alpha",
        "prometheus": "http://prometheus.alpha:1", "rollout-pods-max": "59", "samples-per-rollout": "61",
    },
}  # fmt: skip
SECOND = {
    "namespace": "beta",
    "components": ("jobset", "download", "mtls", "cert-manager", "scraping", "storage-class", "pull-secret", "runtime-class", "priority-class",
                   "one-node"),
    "image": "registry.beta/dapd:b2",
    "settings": {key: {"trainer-pods": "2", "trainer-gpus": "8", "input-access": "ReadWriteMany", "runs-access": "ReadWriteMany"}.get(
        key, value.replace("-a", "-b").replace("alpha", "beta")) for key, value in FIRST["settings"].items()},
}  # fmt: skip
# The components of a set do not use these settings.
UNUSED = {"alpha": {"queue"},
          "beta": {"https-port", "spot-label", "spot-value", "spot-taint", "grafana", "prometheus", "rollout-pods-max", "samples-per-rollout"}}


def set_to(cluster):
    """Edits the template line by line, as a user would."""
    text = switched_on(*cluster["components"])
    text = re.sub(r"^namespace: .*$", f"namespace: {cluster['namespace']}", text, flags=re.MULTILINE)
    for key, value in cluster["settings"].items():
        text, count = re.subn(rf"^      - {key}=.*$", lambda _: f"      - {key}={value}", text, flags=re.MULTILINE)
        assert count == 1, f"{key} stands {count} times in the template"
    name, tag = cluster["image"].split(":")
    text = text.replace("newName: registry.example/dapd\n    newTag: cuda", f"newName: {name}\n    newTag: {tag}")
    return text.replace("registry.example", name.split("/")[0])


def rendered(cluster):
    result = manifests.render(yaml.safe_load(set_to(cluster)), "template")
    assert result.returncode == 0, result.stderr
    return [entry for entry in yaml.safe_load_all(result.stdout) if entry]


@pytest.fixture(scope="module", params=[FIRST, SECOND], ids=lambda cluster: cluster["namespace"])
def cluster(request):
    return request.param, rendered(request.param)


def text_without_settings(everything):
    return yaml.safe_dump_all([entry for entry in everything if entry["metadata"]["name"] != "dapd-settings"], width=10**6)


def test_the_template_renders_as_it_stands():
    everything = manifests.objects("template")
    assert violations(everything) == []
    (image,) = {pod_of(each)["containers"][0]["image"] for each in manifests.workloads(everything)}
    assert image == "registry.example/dapd:cuda"


def test_the_template_has_every_setting_and_every_component():
    base = manifests.settings_of(yaml.safe_load((manifests.MANIFESTS / "base/kustomization.yaml").read_text()))
    settings = manifests.settings_of(yaml.safe_load(TEMPLATE.read_text()))
    assert set(settings) == set(base) == set(FIRST["settings"])
    offered = set(re.findall(r"- \.\./\.\./components/([\w-]+)", TEMPLATE.read_text()))
    assert offered == {path.name for path in (manifests.MANIFESTS / "components").iterdir() if path.is_dir()}
    assert set(FIRST["components"]) | set(SECOND["components"]) | {"gpu", "network-policy"} == offered


def test_two_clusters_validate_and_keep_the_rules(cluster, monkeypatch):
    settings, everything = cluster[0]["settings"], cluster[1]
    for entry in everything:
        validate(entry)
    monkeypatch.setitem(kubernetes_network.PARTIES, "prometheus", (settings["monitoring-namespace"], {}))
    monkeypatch.setitem(kubernetes_network.PARTIES, "dns", (settings["dns-namespace"], {"k8s-app": settings["dns-app"]}))
    assert violations(everything) == []


def test_every_setting_is_replaced_everywhere(cluster):
    """Each value must occur, and no value of other clusters, nor a default that only its own key has."""
    described, everything = cluster
    text = text_without_settings(everything)
    for key, value in described["settings"].items():
        assert (re.search(rf"(?<![\w.-]){re.escape(value)}(?![\w-])", text) is not None) == (key not in UNUSED[described["namespace"]]), key
    base = manifests.settings_of(yaml.safe_load((manifests.MANIFESTS / "base/kustomization.yaml").read_text()))
    foreign = {"models/base", "problems.parquet", "cloud.google.com", "kube-system", "kube-dns", "prometheus-operated", "127.0.0.1:3000",
               "metadata.name: monitoring\n", "registry.example"}
    assert not [each for each in foreign if each in text]
    assert base["hub"] not in text
    others = FIRST if described is SECOND else SECOND
    assert not [value for value in others["settings"].values() if re.search(r"[a-z]{3}", value) and value not in described["settings"].values() and value in text]


def test_two_clusters_share_no_object(cluster):
    """Applying one cluster must change no object of the other cluster."""
    described, everything = cluster
    namespace = described["namespace"]
    assert {entry["metadata"].get("namespace", entry["metadata"]["name"]) for entry in everything} == {namespace}
    text = text_without_settings(everything)
    assert not re.search(r'namespace="(?!%s)\w+"' % namespace, text)
    assert not re.search(r"\.dapd\.svc|namespace: dapd$", text, re.MULTILINE)
    if of_kind(everything, "ScaledObject"):
        (query,) = {entry["spec"]["triggers"][0]["metadata"]["query"] for entry in of_kind(everything, "ScaledObject")}
        assert query.count(f'namespace="{namespace}"') == 2
    names = [name for entry in of_kind(everything, "Certificate") for name in entry["spec"].get("dnsNames", [])]
    assert f"dapd-trainer.{namespace}.svc" in names


def test_what_belongs_together_is_set_by_one_setting(cluster):
    settings, everything = cluster[0]["settings"], cluster[1]
    roles = {manifests.role(each): each for each in manifests.workloads(everything)}
    (shared,) = (entry["data"] for entry in of_kind(everything, "ConfigMap") if "DAPD_RUN__OUTPUT_DIR" in entry["data"])
    trainer = pod_of(roles["trainer"])["containers"][0]
    assert str(manifests.pods_of(roles["trainer"])) == shared["DAPD_TRAINER__MACHINES"] == settings["trainer-pods"]
    assert str(trainer["resources"]["limits"]["nvidia.com/gpu"]) == shared["DAPD_TRAINER__RANKS_PER_MACHINE"] == settings["trainer-gpus"]
    worker = pod_of(roles["rollout"])["containers"][0]
    assert str(worker["resources"]["limits"]["nvidia.com/gpu"]) == shared["DAPD_ROLLOUT__TENSOR_PARALLEL"] == settings["rollout-gpus"]
    download = {each["name"]: each["env"][0]["value"] for each in pod_of(find(everything, "Job", "dapd-download"))["containers"]}
    assert download == {"model": shared["DAPD_MODEL__PATH"], "data": shared["DAPD_DATA__PATH"]} == {key: settings[key] for key in ("model", "data")}
    for role_name, each in roles.items():
        pod, resources = pod_of(each), pod_of(each)["containers"][0]["resources"]
        assert resources["requests"] == {"cpu": settings[f"{role_name}-cpu"], "memory": settings[f"{role_name}-memory"]}
        assert resources["limits"]["cpu"] == settings[f"{role_name}-cpu-limit"]
        assert pod["runtimeClassName"] == settings["runtime-class"] and pod["priorityClassName"] == settings["priority-class"]
    accounts = of_kind(everything, "ServiceAccount")
    assert len(accounts) == 4 and all(account["imagePullSecrets"] == [{"name": settings["pull-secret"]}] for account in accounts)
    classes = {entry["metadata"]["name"]: entry["spec"]["storageClassName"] for entry in of_kind(everything, "PersistentVolumeClaim")}
    if "StatefulSet" in {each["kind"] for each in roles.values()}:
        classes["dapd-runs"] = roles["trainer"]["spec"]["volumeClaimTemplates"][0]["spec"]["storageClassName"]
    assert classes == {"dapd-input": settings["input-storage-class"], "dapd-runs": settings["runs-storage-class"]}


# By its published rules, an API server lets users change only these fields of an existing object.
MAY_CHANGE = {
    "StatefulSet": {"replicas", "template", "updateStrategy", "persistentVolumeClaimRetentionPolicy"},
    "PersistentVolumeClaim": {"resources"},  # may grow
    "Job": {"backoffLimit"},
}


def test_the_page_names_the_settings_that_count_only_once():
    settled = [{key: value for key, value in entry["spec"].items() if key not in MAY_CHANGE[entry["kind"]]}
               for entry in of_kind(rendered(FIRST), *MAY_CHANGE)]
    text = yaml.safe_dump_all(settled, width=10**6)
    settings = {key for key, value in FIRST["settings"].items() if re.search(rf"(?<![\w.-]){re.escape(value)}(?![\w-])", text)}
    assert {"runs-size", "input-access", "model"} <= settings
    page = (manifests.MANIFESTS / "README.md").read_text()
    refused = "".join(part for part in page.split("\n\n") if "refuse" in part)
    assert not sorted(setting for setting in settings if f"`{setting}`" not in refused)


def test_alerts_lead_to_the_grafana_of_the_cluster():
    (rules,) = of_kind(rendered(FIRST), "PrometheusRule")
    links = [rule["annotations"]["runbook_url"] for group in rules["spec"]["groups"] for rule in group["rules"] if "alert" in rule]
    assert links and all(link.startswith("https://grafana.alpha/d/") for link in links)


def test_what_the_template_shows_in_comments_works():
    """Switches on the label, the pool and the taint at its end."""
    text, mark, end = switched_on("download", "jobset").partition("transformers:")
    text += mark + re.sub(r"^# ((?:labels|patches): ?.*|  .*)$", r"\1", end, flags=re.MULTILINE)
    result = manifests.render(yaml.safe_load(text), "template")
    assert result.returncode == 0, result.stderr
    everything = list(yaml.safe_load_all(result.stdout))
    assert violations(everything) == []
    for pod in (pod_of(each) for each in manifests.workloads(everything) + of_kind(everything, "Job")):
        assert pod["nodeSelector"] == {"pool": "training"}
        assert {"key": "dedicated", "operator": "Exists"} in pod["tolerations"]
    assert all(entry["metadata"]["labels"]["release"] for entry in everything)
