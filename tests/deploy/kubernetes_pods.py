"""A very small kubelet that runs the pods of rendered manifests on this machine, as their manifests say.

Every container gets its own read-only root file system with this machine's /usr, our programs and the pod's volumes, the user and group of
its security context, no capabilities, and the environment, command and working folder of its manifest. Every pod has an address on a bridge
without a way out; the names of services, and of the pods of a StatefulSet or of a JobSet, resolve to these addresses. Readiness in names,
restarts, network policies and resource limits are missing. Needs root and namespaces.
"""

import math
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys

from kubernetes_manifests import ROOT, find, pod_of, role, workloads

BIN = pathlib.Path(os.environ.get("DAPD_BIN", ROOT / "build" / "bin"))
PATH = "/opt/dapd/bin"  # in the image
# A controller writes a pod's number to these labels: the first for a StatefulSet, the second for an indexed job.
INDEX_LABELS = ("metadata.labels['apps.kubernetes.io/pod-index']", "metadata.labels['batch.kubernetes.io/job-completion-index']")
PROBE = """
import sys, grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
with grpc.insecure_channel(sys.argv[1]) as channel:
    request = health_pb2.HealthCheckRequest(service=sys.argv[2])
    try:
        answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=float(sys.argv[3]))
    except grpc.RpcError as error:
        sys.exit(str(error.code()))
sys.exit(0 if answer.status == health_pb2.HealthCheckResponse.SERVING else "not serving")
"""


def why_not():
    """Returns why pods cannot run here; the text is empty if they can."""
    if os.geteuid() != 0:
        return "only root may make namespaces"
    for tool in ("unshare", "nsenter", "setpriv", "ip"):
        if shutil.which(tool) is None:
            return f"no {tool}"
    if subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True).returncode != 0:
        return "namespaces are not allowed here"
    return ""


def library_folders():
    """Returns the folders with the programs' shared libraries outside /usr and /lib."""
    text = subprocess.run(["ldd", *BIN.glob("dapd*")], capture_output=True, text=True).stdout
    found = {os.path.dirname(path) for path in re.findall(r"=> (/\S+)", text)}
    return sorted(path for path in found if not path.startswith(("/usr/", "/lib")))


def write_projected(folder, files):
    """Writes files as kubelet projects config maps and secrets: links to a folder behind a link."""
    version = folder / "..version-1"
    version.mkdir(parents=True)
    (folder / "..data").symlink_to(version.name)
    for name, content in files.items():
        (version / name).write_bytes(content)
        (folder / name).symlink_to(f"..data/{name}")


def start_network(commands):
    """Starts a process that holds a network namespace in which `commands` have run."""
    script = f"ip link set lo up && {commands} && echo up && exec sleep infinity"
    process = subprocess.Popen(["unshare", "--net", "sh", "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "up\n"
    return process


class Container:
    """The started container of a pod; `address` is the pod's address."""

    def __init__(self, pods, workload, index, address, sandbox):
        self.pods, self.workload, self.index, self.address, self.sandbox = pods, workload, index, address, sandbox
        self.pod = pod_of(workload)
        (self.spec,) = self.pod["containers"]
        self.folder = pods.folder / f"pod-{address}"
        self.log_path = self.folder / "log"

    def log(self):
        return self.log_path.read_text()

    def execute(self, *command, user=None):
        """Runs a command as `kubectl exec` does; as root if no user is given."""
        identity = ["/usr/bin/setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        return subprocess.run(
            ["nsenter", f"--target={self.process.pid}", "--mount", "--net", "--root",
             "/usr/bin/env", "-i", "-C", self.spec["workingDir"], *self.environment,
             *identity, *command],
            capture_output=True,
            text=True,
        )  # fmt: skip

    def probe(self, kind):
        """Returns whether the manifest's probe of this kind succeeds now."""
        probe = self.spec[kind]
        if "exec" in probe:
            user = self.pod["securityContext"]["runAsUser"]
            return self.execute(*probe["exec"]["command"], user=user).returncode == 0
        grpc = probe["grpc"]
        address = f"{self.address}:{grpc['port']}"
        return self.pods.grpc_health(address, grpc.get("service", ""), probe.get("timeoutSeconds", 1))

    def terminate(self):
        """Ends the pod as kubelet does, by SIGTERM and the grace period; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=self.pod["terminationGracePeriodSeconds"])
        self.remove()
        return code

    def remove(self):
        """Removes the pod: its process and its name."""
        for process in (self.process, self.sandbox):
            process.kill()
            process.wait()
        self.pods.containers.remove(self)
        self.pods.publish_names()


class Pods:
    """A context manager that runs the pods of one set of manifests and ends them."""

    def __init__(self, folder, everything, secrets=None, demo=None):
        """`secrets` maps a name to {file: bytes}. `demo` is the folder that the image has at /opt/dapd/demo."""
        self.folder, self.everything, self.secrets, self.demo = folder, everything, secrets or {}, demo
        self.containers = []
        self.claims = {}
        self.started = 0

    def __enter__(self):
        self.node = start_network("ip link add bridge type bridge && ip addr add 10.77.0.1/24 dev bridge && ip link set bridge up")
        return self

    def __exit__(self, *_):
        for container in list(self.containers):
            container.remove()
        self.node.kill()
        self.node.wait()

    def inside(self, *command):
        """Runs a command of this machine in the node's network."""
        return subprocess.run(["nsenter", f"--target={self.node.pid}", "--net", *command], capture_output=True, text=True)

    def grpc_health(self, address, service="", timeout=5):
        """Asks as kubelet's own gRPC probe does: in plaintext, without credentials."""
        return self.inside(sys.executable, "-c", PROBE, address, service, str(timeout)).returncode == 0

    def claim(self, name, owner):
        """Returns the folder behind a persistent volume."""
        if name not in self.claims:
            self.claims[name] = self.folder / "claims" / name
            self.claims[name].mkdir(parents=True)
            os.chown(self.claims[name], 0, owner)
            self.claims[name].chmod(0o2775)
        return self.claims[name]

    def start(self, role_name, command=None, index=0):
        """Starts the pod `index` of a role, or of the further teacher `teacher NAME`, with `command` instead of its own command if it is
        given."""
        workload = next(entry for entry in workloads(self.everything) if role_name in (role(entry), self.teacher(entry)))
        self.started += 1
        address = f"10.77.0.{self.started + 1}"
        container = Container(self, workload, index, address, self.connect(address))
        container.folder.mkdir(parents=True)
        container.environment = self.environment(container.spec, index)
        context, spec = container.pod["securityContext"], container.spec
        start = [
            f"exec chroot {container.folder}/root /usr/bin/env -i -C {spec['workingDir']} {shlex.join(container.environment)} "
            f"/usr/bin/setpriv --reuid={context['runAsUser']} --regid={context['runAsGroup']} --groups={context['fsGroup']} "
            f"--no-new-privs --inh-caps=-all --bounding-set=-all {shlex.join(command or spec['command'])}"
        ]
        script = "\n".join(self.mounts(container) + start)
        self.containers.append(container)
        self.publish_names()
        container.process = subprocess.Popen(
            ["nsenter", f"--target={container.sandbox.pid}", "--net", "unshare", "--mount", "bash", "-euc", script],
            stdout=container.log_path.open("w"),
            stderr=subprocess.STDOUT,
        )
        return container

    def teacher(self, workload):
        """Returns `teacher NAME` for the workers of a further teacher, as the status calls them."""
        return f"teacher {workload['spec']['template']['metadata']['labels'].get('dapd/teacher', '')}"

    def connect(self, address):
        """Gives a pod a network on the node's bridge; returns the process that holds the network."""
        sandbox = start_network("true")
        here = f"veth{self.started}"
        wire = f"ip link add {here} type veth peer name eth0 netns {sandbox.pid} && ip link set {here} master bridge up"
        plug = f"ip addr add {address}/24 dev eth0 && ip link set eth0 up"
        for process, commands in ((self.node, wire), (sandbox, plug)):
            subprocess.run(["nsenter", f"--target={process.pid}", "--net", "sh", "-ec", commands], check=True)
        return sandbox

    def publish_names(self):
        """Writes names as a cluster's DNS has them: SERVICE is all its pods, POD.SERVICE is a pod of a StatefulSet or of the first job with
        that name."""
        lines = ["127.0.0.1 localhost"]
        for container in self.containers:
            name = container.workload["metadata"]["name"]
            pod = f"{name}-0-{container.index}" if container.workload["kind"] == "Job" else f"{name}-{container.index}"
            lines.append(f"{container.address} {name} {pod}.{name}")
        for container in self.containers:
            (container.folder / "root/etc/hosts").write_text("\n".join(lines) + "\n")

    def environment(self, spec, index):
        variables = {"PATH": PATH}
        for source in spec.get("envFrom", []):
            variables |= find(self.everything, "ConfigMap", source["configMapRef"]["name"])["data"]
        for entry in spec.get("env", []):
            source = entry.get("valueFrom", {})
            if "value" in entry:
                variables[entry["name"]] = entry["value"]
            elif "resourceFieldRef" in source:
                assert source["resourceFieldRef"]["resource"] == "limits.cpu"
                variables[entry["name"]] = str(math.ceil(float(spec["resources"]["limits"]["cpu"])))
            else:
                assert source["fieldRef"]["fieldPath"] in INDEX_LABELS
                variables[entry["name"]] = str(index)
        return [f"{name}={value}" for name, value in variables.items()]

    def mounts(self, container):
        """Makes the container's root file system; returns the commands that mount it."""
        root = container.folder / "root"
        for name in ("usr", "proc", "dev", "etc", "opt/dapd/bin", "opt/dapd/demo"):
            (root / name).mkdir(parents=True)
        for name in ("bin", "lib", "lib64"):
            (root / name).symlink_to(f"usr/{name}")
        (root / "etc/nsswitch.conf").write_text("hosts: files\n")
        binds = [("/usr", "/usr"), (BIN, PATH), *((path, path) for path in library_folders())]
        if self.demo:
            binds.append((self.demo, "/opt/dapd/demo"))
        volumes = {volume["name"]: volume for volume in container.pod["volumes"]}
        writable = []
        for mount in container.spec["volumeMounts"]:
            source = self.volume(container, mount["name"], volumes.get(mount["name"]))
            (binds if mount.get("readOnly") else writable).append((source, mount["mountPath"]))
        commands = [f"mount --bind {root} {root}", f"mount --rbind /proc {root}/proc", f"mount --rbind /dev {root}/dev"]
        # Outer folders come first: /tmp is a volume, and the checkout may be in it.
        for source, target in sorted(binds + writable, key=lambda pair: str(pair[1])):
            inside = f"{root}{target}"
            commands += [f"mkdir -p {inside}", f"mount --bind {source} {inside}"]
            if (source, target) in binds:
                commands.append(f"mount -o remount,bind,ro {inside}")
        return [*commands, f"mount -o remount,bind,ro {root}"]

    def volume(self, container, name, volume):
        """Returns the folder behind a volume; a volume that the pod does not list is a claim of its own."""
        group, workload = container.pod["securityContext"]["fsGroup"], container.workload["metadata"]["name"]
        if volume is None:
            return self.claim(f"{name}-{workload}-{container.index}", group)
        if "persistentVolumeClaim" in volume:
            return self.claim(volume["persistentVolumeClaim"]["claimName"], group)
        folder = container.folder / f"volume-{name}"
        folder.mkdir()
        if "configMap" in volume:
            data = find(self.everything, "ConfigMap", volume["configMap"]["name"])["data"]
            write_projected(folder, {file: text.encode() for file, text in data.items()})
        elif "secret" in volume:
            assert "items" not in volume["secret"], f"not understood: {workload}, volume {name}"
            write_projected(folder, self.secrets[volume["secret"]["secretName"]])
            for path in (folder / "..data").iterdir():
                os.chown(path, 0, group)
                path.chmod(volume["secret"].get("defaultMode", 0o644) | 0o040)
        else:
            os.chown(folder, 0, group)
            folder.chmod(0o2777)
        return folder
