"""A Docker engine for these tests alone.

`dockerd` runs in its own network, mount and process namespaces: its bridges, firewall rules and published ports are separate from the
machine's, and everything that it started ends with it. Needs root.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ("dockerd", "docker-compose", "debootstrap", "ip", "nsenter", "setpriv", "unshare")


class EngineUnavailable(Exception):
    """No engine can run here; the text says why."""


def debian_docker():
    """Returns the client that belongs to the engine: a newer client may refuse to talk to it."""
    beside = pathlib.Path(shutil.which("dockerd")).parent.parent / "bin" / "docker"
    return beside if beside.exists() else shutil.which("docker")


class Engine:
    def __init__(self, folder):
        """`folder` holds the engine's images, logs and socket."""
        if os.geteuid() != 0:
            raise EngineUnavailable("a container engine needs root")
        missing = [name for name in PROGRAMS if shutil.which(name) is None]
        if missing:
            raise EngineUnavailable(f"not installed: {', '.join(missing)}")
        self.folder = folder
        self.socket = folder / "docker.sock"
        (folder / "bin").mkdir()
        (folder / "bin/docker").symlink_to(debian_docker())
        (folder / "daemon.json").write_text("{}")
        self.environment = {**os.environ, "DOCKER_HOST": f"unix://{self.socket}", "PATH": f"{folder}/bin:{os.environ['PATH']}"}
        script = f"""mount -t tmpfs tmpfs /run && ip link set lo up && exec dockerd --config-file {folder}/daemon.json \\
            --data-root {folder}/data --exec-root {folder}/exec --pidfile {folder}/pid --host unix://{self.socket}"""
        namespaces = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
        with open(folder / "dockerd.log", "w") as log:
            self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *namespaces, "sh", "-c", script], stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        while self.docker("info", check=False).returncode != 0:
            if self.process.poll() is not None or time.monotonic() > deadline:
                last = (folder / "dockerd.log").read_text().splitlines()[-1:]
                self.stop()
                raise EngineUnavailable(f"dockerd does not start: {' '.join(last)}")
            time.sleep(0.1)
        (self.pid,) = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()

    def stop(self):
        """Ends the engine and all of its containers."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def docker(self, *arguments, check=True, stdin=None, timeout=300):
        return self._run([self.folder / "bin/docker", *arguments], check, stdin=stdin, timeout=timeout)

    def compose(self, *arguments, check=True, timeout=300, **environment):
        return self._run(["docker-compose", *arguments], check, timeout=timeout, env={**self.environment, **environment})

    def import_root(self, root, tag, *changes):
        """Makes an image of one layer from a folder."""
        tar = subprocess.Popen(["tar", "--create", "--directory", root, "."], stdout=subprocess.PIPE)
        self.docker("import", *(part for change in changes for part in ("--change", change)), "-", tag, stdin=tar.stdout)
        assert tar.wait() == 0

    def volume(self, name):
        """Returns the folder of a volume, which exists once a container has used the volume."""
        return self.folder / "data/volumes" / name / "_data"

    def run(self, *command, check=True, timeout=300):
        """Runs a command of this machine that talks to the engine."""
        return self._run(command, check, timeout=timeout)

    def fetch(self, url):
        """Returns the answer to a GET from the network where the engine publishes ports."""
        script = "import sys, urllib.request; sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())"
        return self._run(["nsenter", f"--net=/proc/{self.pid}/ns/net", sys.executable, "-c", script, url], True, timeout=30).stdout

    def kill(self, container):
        """Sends SIGKILL from outside, as the kernel does when memory runs out; after the engine's own `kill` the container would not be
        started again."""
        self._inside("kill", "-9", self._main_process(container))

    def process_status(self, container):
        """Returns /proc/PID/status of the container's first process."""
        text = self._inside("cat", f"/proc/{self._main_process(container)}/status").stdout
        return {name: value.strip() for name, value in (line.split(":", 1) for line in text.splitlines())}

    def inspect(self, container, template):
        return self.docker("inspect", "--format", template, container).stdout.strip()

    def _main_process(self, container):
        return self.inspect(container, "{{.State.Pid}}")

    def _inside(self, *command):
        """Runs a command in the engine's namespaces of processes and mounts."""
        return self._run(["nsenter", f"--target={self.pid}", "--pid", "--mount", *command], True, timeout=30)

    def _run(self, command, check, stdin=None, timeout=300, env=None):
        result = subprocess.run([str(part) for part in command], stdin=stdin, capture_output=True, text=True, timeout=timeout,
                                env=env or self.environment)
        if check and result.returncode != 0:
            raise AssertionError(f"{command}: code {result.returncode}\n{result.stdout[-3000:]}\n{result.stderr[-3000:]}")
        return result
