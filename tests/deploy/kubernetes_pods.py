"""A very small kubelet: runs the pods of rendered manifests on this machine, as their manifests say.

Every container gets a root file system of its own, read-only, with nothing but this machine's /usr, our programs and the
volumes of its pod; the user and group of its security context, no capabilities; the environment, command and working
folder of its manifest. All pods share one network without a way out, in which the names of services resolve, so that there
can be one pod of a role at a time. Needs root and namespaces.
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

from kubernetes_manifests import ROOT, find, name_of, pod_of, role, workloads

BIN = pathlib.Path(os.environ.get("DAPD_BIN", ROOT / "build" / "bin"))
PATH = "/opt/dapd/bin"  # of the image
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
    """Why pods cannot run here; empty if they can."""
    if os.geteuid() != 0:
        return "only root may make namespaces"
    for tool in ("unshare", "nsenter", "setpriv", "ip"):
        if shutil.which(tool) is None:
            return f"no {tool}"
    if subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True).returncode != 0:
        return "namespaces are not allowed here"
    return ""


def library_folders():
    """Where the programs' shared libraries are, outside /usr and /lib."""
    text = subprocess.run(["ldd", *BIN.glob("dapd*")], capture_output=True, text=True).stdout
    found = {os.path.dirname(path) for path in re.findall(r"=> (/\S+)", text)}
    return sorted(path for path in found if not path.startswith(("/usr/", "/lib")))


def write_projected(folder, files):
    """As kubelet projects config maps and secrets: links to a folder behind a link."""
    version = folder / "..version-1"
    version.mkdir(parents=True)
    (folder / "..data").symlink_to(version.name)
    for name, content in files.items():
        (version / name).write_bytes(content)
        (folder / name).symlink_to(f"..data/{name}")


class Container:
    """A started container."""

    def __init__(self, pods, process, log):
        self.pods, self.process, self.log_path = pods, process, log

    def log(self):
        return self.log_path.read_text()

    def execute(self, *command, user=None):
        """As `kubectl exec`; as root if no user is given."""
        identity = ["/usr/bin/setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if user else []
        return subprocess.run(
            ["nsenter", f"--target={self.process.pid}", "--mount", "--net", "--root", "/usr/bin/env", "-i", *self.environment,
             *identity, *command],
            capture_output=True,
            text=True,
        )  # fmt: skip

    def probe(self, kind):
        """True if the manifest's probe of this kind succeeds now."""
        probe = self.spec[kind]
        if "exec" in probe:
            user = self.pod["securityContext"]["runAsUser"]
            return self.execute(*probe["exec"]["command"], user=user).returncode == 0
        grpc = probe["grpc"]
        timeout = str(probe.get("timeoutSeconds", 1))
        arguments = [f"127.0.0.1:{grpc['port']}", grpc.get("service", ""), timeout]
        return self.pods.inside(sys.executable, "-c", PROBE, *arguments).returncode == 0

    def terminate(self):
        """As kubelet ends a pod: SIGTERM, then the grace period. The exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=self.pod["terminationGracePeriodSeconds"])


class Pods:
    """The pods of one set of manifests; a context manager that ends them."""

    def __init__(self, folder, everything, secrets=None, demo=None):
        """`secrets`: name -> {file: bytes}. `demo`: the folder that the image has at /opt/dapd/demo."""
        self.folder, self.everything, self.secrets, self.demo = folder, everything, secrets or {}, demo
        self.containers = []
        self.claims = {}

    def __enter__(self):
        script = "ip link set lo up && echo up && exec sleep infinity"
        self.network = subprocess.Popen(["unshare", "--net", "sh", "-c", script], stdout=subprocess.PIPE, text=True)
        assert self.network.stdout.readline() == "up\n"
        return self

    def __exit__(self, *_):
        for process in [container.process for container in self.containers] + [self.network]:
            process.kill()
            process.wait()

    def inside(self, *command):
        """Runs a command of this machine in the pods' network."""
        return subprocess.run(["nsenter", f"--target={self.network.pid}", "--net", *command], capture_output=True, text=True)

    def claim(self, name, owner):
        """The folder behind a persistent volume."""
        if name not in self.claims:
            self.claims[name] = self.folder / "claims" / name
            self.claims[name].mkdir(parents=True)
            os.chown(self.claims[name], 0, owner)
            self.claims[name].chmod(0o2775)
        return self.claims[name]

    def start(self, role_name, command=None, index=0):
        """Starts the pod `index` of a role; `command` instead of its own."""
        workload = next(entry for entry in workloads(self.everything) if role(entry) == role_name)
        pod = pod_of(workload)
        (spec,) = pod["containers"]
        place = self.folder / f"pod-{len(self.containers)}"
        place.mkdir(parents=True)
        environment = self.environment(spec, index)
        script = self.mounts(place, workload, spec)
        user = pod["securityContext"]["runAsUser"]
        script += [
            f"exec chroot {place}/root /usr/bin/env -i -C {spec['workingDir']} {shlex.join(environment)} "
            f"/usr/bin/setpriv --reuid={user} --regid={pod['securityContext']['runAsGroup']} "
            f"--groups={pod['securityContext']['fsGroup']} --no-new-privs --inh-caps=-all --bounding-set=-all "
            f"{shlex.join(command or spec['command'])}"
        ]
        log = place / "log"
        process = subprocess.Popen(
            ["nsenter", f"--target={self.network.pid}", "--net", "unshare", "--mount", "bash", "-euc", "\n".join(script)],
            stdout=log.open("w"),
            stderr=subprocess.STDOUT,
        )
        container = Container(self, process, log)
        container.spec, container.pod, container.environment = spec, pod, environment
        self.containers.append(container)
        return container

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
                assert source["fieldRef"]["fieldPath"] == "metadata.labels['apps.kubernetes.io/pod-index']"
                variables[entry["name"]] = str(index)
        return [f"{name}={value}" for name, value in variables.items()]

    def mounts(self, place, workload, spec):
        """Lays out the container's root file system; the commands that mount it."""
        root = place / "root"
        for name in ("usr", "proc", "dev", "etc", "opt/dapd/bin", "opt/dapd/demo"):
            (root / name).mkdir(parents=True)
        for name in ("bin", "lib", "lib64"):
            (root / name).symlink_to(f"usr/{name}")
        names = [entry["metadata"]["name"] for entry in self.everything if entry["kind"] == "Service"]
        names += [f"{name}-0.{name}" for name in names]
        (root / "etc/hosts").write_text(f"127.0.0.1 localhost {' '.join(names)}\n")
        (root / "etc/nsswitch.conf").write_text("hosts: files\n")
        binds = [("/usr", "/usr"), (BIN, PATH), *((path, path) for path in library_folders())]
        if self.demo:
            binds.append((self.demo, "/opt/dapd/demo"))
        volumes = {volume["name"]: volume for volume in pod_of(workload)["volumes"]}
        writable = []
        for mount in spec["volumeMounts"]:
            source = self.volume(place, workload, mount["name"], volumes.get(mount["name"]))
            (binds if mount.get("readOnly") else writable).append((source, mount["mountPath"]))
        commands = [f"mount --bind {root} {root}", f"mount --rbind /proc {root}/proc", f"mount --rbind /dev {root}/dev"]
        for source, target in binds + writable:
            inside = pathlib.Path(f"{root}{target}")
            if not inside.exists():
                inside.mkdir(parents=True)
            commands.append(f"mount --bind {source} {inside}")
            if (source, target) in binds:
                commands.append(f"mount -o remount,bind,ro {inside}")
        return [*commands, f"mount -o remount,bind,ro {root}"]

    def volume(self, place, workload, name, volume):
        """The folder behind a volume; one that the pod does not list is a claim of its workload."""
        group = pod_of(workload)["securityContext"]["fsGroup"]
        if volume is None:
            return self.claim(f"{name}-{workload['metadata']['name']}-0", group)
        if "persistentVolumeClaim" in volume:
            return self.claim(volume["persistentVolumeClaim"]["claimName"], group)
        folder = place / f"volume-{name}"
        folder.mkdir()
        if "configMap" in volume:
            data = find(self.everything, "ConfigMap", volume["configMap"]["name"])["data"]
            write_projected(folder, {file: text.encode() for file, text in data.items()})
        elif "secret" in volume:
            assert "items" not in volume["secret"], f"not understood: {name_of(workload)}, volume {name}"
            write_projected(folder, self.secrets[volume["secret"]["secretName"]])
            for path in (folder / "..data").iterdir():
                os.chown(path, 0, group)
                path.chmod(volume["secret"].get("defaultMode", 0o644) | 0o040)
        else:
            os.chown(folder, 0, group)
            folder.chmod(0o2777)
        return folder
