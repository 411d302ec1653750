"""Rules for every rendered set of manifests, whatever its overlay and components.

`violations` returns sentences, or none for a good set. The network's rules are in kubernetes_network.py.
"""

import yaml
from kubernetes_manifests import certified_role, containers, find, name_of, of_kind, pod_of, pods_of, role, workloads

CLUSTER_WIDE = {"Namespace"}
POD_VOLUMES = {"configMap", "secret", "projected", "emptyDir", "persistentVolumeClaim"}
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
WORKER_DRAIN_SECONDS = 10
MOST_RANKS = 8  # components/scraping asks for the metrics of at most 8 ranks


def violations(everything):
    rules = (check_objects, check_pods, check_containers, check_volumes, check_budgets, check_services, check_ranks,
             check_jobset, check_scaling, check_certificates, check_further_teachers)
    return [sentence for rule in rules for sentence in rule(everything)]


def matches(selector, labels):
    return all(labels.get(key) == value for key, value in selector.items())


def check_objects(everything):
    namespace = of_kind(everything, "Namespace")[0]
    level = namespace["metadata"]["labels"].get("pod-security.kubernetes.io/enforce")
    if level != "restricted":
        yield f"{name_of(namespace)} enforces Pod Security {level}, not restricted"
    seen = set()
    for entry in everything:
        if entry["kind"] not in CLUSTER_WIDE and entry["metadata"].get("namespace") != namespace["metadata"]["name"]:
            yield f"{name_of(entry)} is outside the namespace"
        if name_of(entry) in seen:
            yield f"{name_of(entry)} occurs twice"
        seen.add(name_of(entry))
    images = {container["image"] for workload in workloads(everything) for container in containers(workload)}
    fetching = {container["image"] for job in of_kind(everything, "Job") for container in containers(job)}
    if len(images) != 1:
        yield f"more than one image: {sorted(images)}"
    for image in images | fetching:
        if ":" not in image or image.endswith(":latest"):
            yield f"image {image} names no version"


def with_jobs(everything):
    """Returns the services and all other objects that run pods."""
    return workloads(everything) + of_kind(everything, "Job")


def check_pods(everything):
    for workload in with_jobs(everything):
        name, pod = name_of(workload), pod_of(workload)
        context = pod.get("securityContext", {})
        if context.get("runAsNonRoot") is not True or context.get("runAsUser", 0) == 0:
            yield f"{name} may run as root"
        if context.get("seccompProfile", {}).get("type") != "RuntimeDefault":
            yield f"{name} runs without the runtime's seccomp profile"
        if pod.get("automountServiceAccountToken") is not False:
            yield f"{name} mounts a service account token"
        account = [a for a in of_kind(everything, "ServiceAccount") if a["metadata"]["name"] == pod.get("serviceAccountName")]
        if not account or account[0].get("automountServiceAccountToken") is not False:
            yield f"{name} has no service account of its own without a token"
        if any(pod.get(key) for key in ("hostNetwork", "hostPID", "hostIPC")):
            yield f"{name} shares a namespace of its host"
        if pod.get("enableServiceLinks") is not False:
            yield f"{name} gets an environment variable for every service in the namespace"
        if pod.get("terminationGracePeriodSeconds", 30) <= WORKER_DRAIN_SECONDS:
            yield f"{name} is killed before it has drained"
        if workload["kind"] == "Job" and pod.get("restartPolicy") not in ("OnFailure", "Never"):
            yield f"{name} does not say what becomes of a pod that ends"
        if workload not in of_kind(everything, "Job") and not pod.get("topologySpreadConstraints"):
            yield f"{name} does not spread over nodes"


def check_containers(everything):
    for workload in with_jobs(everything):
        is_service = workload not in of_kind(everything, "Job")
        for container in containers(workload):
            name = f"{name_of(workload)} container {container['name']}"
            resources = container.get("resources", {})
            for resource in ("cpu", "memory"):
                for kind in ("requests", "limits"):
                    if resource not in resources.get(kind, {}):
                        yield f"{name} has no {resource} {kind}"
            if resources.get("requests", {}).get("memory") != resources.get("limits", {}).get("memory"):
                yield f"{name} may be killed for memory that it did not request"
            yield from check_security_context(name, container.get("securityContext", {}))
            ports = {port["containerPort"] for port in container.get("ports", [])}
            for kind in PROBES if is_service else ():
                yield from check_probe(f"{name} {kind}", container.get(kind), ports)
            if any("hostPort" in port for port in container.get("ports", [])):
                yield f"{name} takes a port of its host"
        if is_service and certified_role(workload) != containers(workload)[0]["name"]:
            yield f"{name_of(workload)} runs another role than its label says"


def check_security_context(name, context):
    if context.get("allowPrivilegeEscalation") is not False or context.get("privileged"):
        yield f"{name} may gain privileges"
    if context.get("readOnlyRootFilesystem") is not True:
        yield f"{name} has a writable root file system"
    capabilities = context.get("capabilities", {})
    if capabilities.get("drop") != ["ALL"] or capabilities.get("add"):
        yield f"{name} keeps capabilities"


def check_probe(name, probe, ports):
    if not probe:
        yield f"{name} is missing"
    elif "grpc" in probe and probe["grpc"]["port"] not in ports:
        yield f"{name} asks port {probe['grpc']['port']}, which is not the container's"
    elif not {"grpc", "exec"} & probe.keys():
        yield f"{name} asks neither by gRPC nor with dapd health"


def check_volumes(everything):
    config_maps = {entry["metadata"]["name"] for entry in of_kind(everything, "ConfigMap")}
    claims = {entry["metadata"]["name"] for entry in of_kind(everything, "PersistentVolumeClaim")}
    for workload in with_jobs(everything):
        name, pod = name_of(workload), pod_of(workload)
        volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
        templates = {template["metadata"]["name"] for template in workload["spec"].get("volumeClaimTemplates", [])}
        for volume in volumes.values():
            (kind,) = volume.keys() - {"name"}
            if kind not in POD_VOLUMES:
                yield f"{name} mounts a {kind} volume"
            if kind == "emptyDir" and "sizeLimit" not in volume[kind]:
                yield f"{name} may fill its node with volume {volume['name']}"
            if kind == "configMap" and volume[kind]["name"] not in config_maps:
                yield f"{name} wants ConfigMap {volume[kind]['name']}, which does not exist"
            if kind == "persistentVolumeClaim" and volume[kind]["claimName"] not in claims:
                yield f"{name} wants claim {volume[kind]['claimName']}, which does not exist"
            if kind == "secret" and volume[kind].get("defaultMode", 0o644) & 0o007:
                yield f"{name} mounts secret {volume['name']} readable by everybody"
        for container in containers(workload):
            for source in container.get("envFrom", []):
                if source["configMapRef"]["name"] not in config_maps:
                    yield f"{name} wants ConfigMap {source['configMapRef']['name']}, which does not exist"
            for mount in container.get("volumeMounts", []):
                volume = volumes.get(mount["name"], {})
                if mount["name"] not in templates and not volume:
                    yield f"{name} mounts {mount['name']}, which is no volume of its pod"
                # A JobSet's trainer writes its run folder, and a download writes the inputs.
                written = {"/runs"} if role(workload) == "trainer" else {"/input"} if role(workload) == "download" else set()
                if volume and "emptyDir" not in volume and not mount.get("readOnly") and mount["mountPath"] not in written:
                    yield f"{name} may write to {mount['mountPath']}"


def check_budgets(everything):
    budgets = of_kind(everything, "PodDisruptionBudget")
    for workload in workloads(everything):
        labels = workload["spec"]["template"]["metadata"]["labels"]
        own = [budget["spec"] for budget in budgets if matches(budget["spec"]["selector"]["matchLabels"], labels)]
        # Workers of a JobSet need no budget: for a job the control plane can compute no budget that lets its pods be evicted.
        if len(own) != (0 if workload["kind"] == "Job" and role(workload) != "trainer" else 1):
            yield f"{name_of(workload)} has {len(own)} disruption budgets"
        if workload["kind"] == "Job" and any(budget.get("minAvailable") != pods_of(workload) for budget in own):
            yield f"{name_of(workload)} has a budget that is not its number of pods"


def check_services(everything):
    services = of_kind(everything, "Service")
    for workload in workloads(everything):
        named = {port["name"] for container in containers(workload) for port in container["ports"]}
        labels = workload["spec"]["template"]["metadata"]["labels"]
        own = [service for service in services if matches(service["spec"]["selector"], labels)]
        if len(own) != 1:
            yield f"{name_of(workload)} has {len(own)} services"
        for service in own:
            if service["spec"].get("clusterIP") != "None":
                yield f"{name_of(service)} hides the pods behind one address"
            targets = {port["targetPort"] for port in service["spec"]["ports"]}
            if targets != named:
                yield f"{name_of(service)} leads to ports {sorted(targets)}, the pods have {sorted(named)}"
        subdomain = pod_of(workload).get("subdomain")
        if workload["spec"].get("serviceName", subdomain or own[0]["metadata"]["name"] if own else "") not in [s["metadata"]["name"] for s in own]:
            yield f"{name_of(workload)} gets its pods' names from a service that is not its own"


def settings_in(everything):
    """Returns the environment that all services get."""
    return {key: value for entry in of_kind(everything, "ConfigMap") for key, value in entry["data"].items()}


def check_ranks(everything):
    """Pods, GPUs and ranks of the trainer must fit together, and so must a worker's GPUs and processes."""
    settings = settings_in(everything)
    ranks = int(settings.get("DAPD_TRAINER__RANKS_PER_MACHINE", 0))
    for workload in workloads(everything):
        name, container = name_of(workload), containers(workload)[0]
        gpus = container["resources"].get("limits", {}).get("nvidia.com/gpu")
        if role(workload) == "rollout" and gpus is not None and str(gpus) != settings["DAPD_ROLLOUT__TENSOR_PARALLEL"]:
            yield f"{name} has {gpus} GPUs for {settings['DAPD_ROLLOUT__TENSOR_PARALLEL']} processes"
        if role(workload) != "trainer":
            continue
        if settings.get("DAPD_TRAINER__MACHINES") != str(pods_of(workload)):
            yield f"{name} has {pods_of(workload)} pods that believe to be {settings.get('DAPD_TRAINER__MACHINES')}"
        if gpus is not None and int(gpus) != ranks:
            yield f"{name} has {gpus} GPUs for {ranks} ranks"
        if not 1 <= ranks <= MOST_RANKS or workload["spec"]["template"]["metadata"]["labels"]["dapd/ranks"] != str(ranks):
            yield f"{name} has {ranks} ranks a pod, of which not all are scraped"
        claims = [volume["persistentVolumeClaim"]["claimName"] for volume in pod_of(workload)["volumes"] if volume["name"] == "runs"]
        for claim in claims if pods_of(workload) > 1 else ():
            if find(everything, "PersistentVolumeClaim", claim)["spec"]["accessModes"] != ["ReadWriteMany"]:
                yield f"{name} has {pods_of(workload)} pods for claim {claim}, which one node can have"


def check_jobset(everything):
    """The set must end with the trainer, and nothing of it may run outside the set."""
    for jobset in of_kind(everything, "JobSet"):
        beside = [each for each in of_kind(everything, "Deployment") if role(each) != "further-teacher"]
        if beside or of_kind(everything, "StatefulSet", "ScaledObject"):
            yield f"{name_of(jobset)} is not all that runs the services"
        if jobset["spec"].get("successPolicy") != {"operator": "All", "targetReplicatedJobs": ["trainer"]}:
            yield f"{name_of(jobset)} does not end with the trainer"
        if settings_in(everything).get("DAPD_TRAINER__WHEN_DONE") != "exit":
            yield f"{name_of(jobset)} has a trainer that stays when it is done"
        if settings_in(everything).get("DAPD_RUN__STOPPED_WORKER") != "interrupted":
            yield f"{name_of(jobset)} has workers that are done when they are stopped, and are not replaced"
    for job in workloads(everything):
        if job["kind"] == "Job" and job["spec"]["completions"] != job["spec"]["parallelism"]:
            yield f"{name_of(job)} does not start all its pods"


def check_scaling(everything):
    for scaled in of_kind(everything, "ScaledObject"):
        target = scaled["spec"]["scaleTargetRef"]["name"]
        if "replicas" in find(everything, "Deployment", target)["spec"]:
            yield f"{name_of(scaled)} and Deployment {target} both set the number of pods"


def check_certificates(everything):
    """If the services want TLS, each probe needs a certificate, and each secret must belong to its pod's role."""
    settings = settings_in(everything)
    if settings.get("DAPD_SECURITY__INSECURE") == "true":
        return
    made = {entry["spec"]["secretName"]: entry["spec"].get("uris") for entry in of_kind(everything, "Certificate")}
    for workload in workloads(everything):
        name, wanted = name_of(workload), [f"spiffe://dapd/{certified_role(workload)}"]
        for container in containers(workload):
            for kind in PROBES:
                if "exec" not in container.get(kind, {}):
                    yield f"{name} {kind} asks without a certificate"
        secrets = [volume["secret"]["secretName"] for volume in pod_of(workload)["volumes"] if "secret" in volume]
        if not secrets:
            yield f"{name} has no certificate"
        for secret in secrets if made else ():
            if secret not in made:
                yield f"{name} wants secret {secret}, which nobody makes"
            elif made[secret] != wanted:
                yield f"{name}'s secret {secret} is for {made[secret]}"


def check_further_teachers(everything):
    """Configuration, services and workers must agree on the names and addresses of further teachers."""
    settings = settings_in(everything)
    asked = {teacher["name"]: teacher for teacher in yaml.safe_load(settings["run.yaml"]).get("teachers", [])}
    for workload in workloads(everything):
        if role(workload) != "further-teacher":
            continue
        (container,) = containers(workload)
        *_, flag, name = container["command"]
        if flag != "--teacher":
            yield f"{name_of(workload)} serves the student's own model"
            continue
        labels = workload["spec"]["template"]["metadata"]["labels"]
        if labels.get("dapd/teacher") != name:
            yield f"{name_of(workload)} serves {name} under the label {labels.get('dapd/teacher')}"
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        for key, port in (("DAPD_TEACHER__LISTEN", ports["grpc"]), ("DAPD_METRICS__TEACHER_LISTEN", ports["metrics"])):
            if settings.get(key) != f"0.0.0.0:{port}":
                yield f"{name_of(workload)} listens on {settings.get(key)}, not on its port {port}"
        # The services are headless, so the port is the pods' port.
        addresses = [f"{service['metadata']['name']}:{ports['grpc']}" for service in of_kind(everything, "Service")
                     if matches(service["spec"]["selector"], labels)]
        wanted = asked.pop(name, {"addresses": "no address"})["addresses"]
        if wanted != addresses:
            yield f"{name_of(workload)} serves {name} at {addresses}, and run.yaml asks for it at {wanted}"
    for name in asked:
        yield f"run.yaml asks for the teacher {name}, who has no worker"
