"""Runs the steps of deploy/Dockerfile without an engine, one after another, in a Debian made with debootstrap.

    python tests/deploy/image_root.py cuda FOLDER     as root; the image's root file system becomes FOLDER/cpu

An engine with its own network, as in the tests, reaches neither Debian's packages nor PyPI, which a build from the sources needs. The build
takes as long as installing and compiling, so no test runs it; tests that start the programs of an image share `start`.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

from debian_root import debian_root

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy/Dockerfile"
# A container sees this of /proc and /dev; a build also gets a folder in place of /root/.cache.
NAMESPACE = """set -e
if [ -n "$CACHE" ]; then mkdir -p "$0/root/.cache"; mount --bind "$CACHE" "$0/root/.cache"; fi
mkdir -p "$0/proc" "$0/dev"
mount -t proc proc "$0/proc"
mount -t tmpfs dev "$0/dev"
mknod -m 666 "$0/dev/null" c 1 3
mknod -m 666 "$0/dev/zero" c 1 5
mknod -m 666 "$0/dev/urandom" c 1 9
ln -s /proc/self/fd "$0/dev/fd"
exec chroot "$@"
"""

# The programs of an image share this machine's network with other tests, so they listen on any free ports.
ANY_PORTS = tuple(part for role in ("rollout", "teacher", "trainer") for part in ("--set", f"metrics.{role}_listen=127.0.0.1:0"))


def instructions(text):
    """Returns the (name, arguments) of the Dockerfile's instructions, with continued lines joined."""
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE)
    lines = re.sub(r"\\\n", "", text).splitlines()
    return [tuple(line.split(None, 1)) for line in lines if line.strip()]


def stages(text):
    """Maps each stage to (its base, its instructions), in their order."""
    found = {}
    for name, rest in instructions(text):
        if name == "FROM":
            base, stage = re.fullmatch(r"(\S+) AS (\S+)", rest).groups()
            found[stage] = (base, [])
        elif found:
            found[stage][1].append((name, rest))
    return found


def inside(root, *command, user="0:0", environment, **keywords):
    """Runs a program, given by an absolute path, with `root` as its root file system."""
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", NAMESPACE, root]
    return subprocess.run([str(part) for part in (*unshare, f"--userspec={user}", root, *command)], stdin=subprocess.DEVNULL,
                          env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **environment}, **keywords)


def start(root, program, *arguments, **environment):
    """Starts a program of a finished image as a container would, without root's rights."""
    return inside(root, f"/opt/dapd/bin/{program}", *arguments, user="10001:10001", environment=environment,
                  capture_output=True, text=True, timeout=300)


class Build:
    """Holds the stages of a Dockerfile as folders. A stage that begins as another stage goes on in its folder."""

    def __init__(self, folder, arguments, cache):
        self.folder = folder
        self.cache = cache
        self.arguments = arguments
        self.stages = {}
        self.folders = {}  # the working folder at the end of a stage

    def run(self, target):
        stage = None
        for name, rest in instructions(DOCKERFILE.read_text()):
            if name == "FROM":
                if stage == target:
                    break
                base, stage = re.fullmatch(r"(\S+) AS (\S+)", rest).groups()
                self.begin(base, stage)
            elif stage is not None:
                {"WORKDIR": self.workdir, "ARG": self.arg, "COPY": self.copy, "RUN": self.step}.get(name, self.ignore)(rest)
        return self.stages[target]

    def begin(self, base, stage):
        self.work = self.folders.get(base, pathlib.PurePosixPath("/"))
        self.set = {}
        if base in self.stages:
            self.root = self.stages[base]
        else:
            self.root = self.folder / stage
            shutil.rmtree(self.root, ignore_errors=True)
            self.folder.mkdir(parents=True, exist_ok=True)
            if base == "scratch":
                self.root.mkdir()
            else:
                subprocess.run(["cp", "-a", debian_root({"ca-certificates"}), self.root], check=True)
                # These files tell how this machine reaches registries.
                for name in ("resolv.conf", "hosts", "pip.conf", "ssl/certs/ca-certificates.crt", "apt/apt.conf.d"):
                    if pathlib.Path("/etc", name).exists():
                        subprocess.run(["cp", "-rL", "--no-target-directory", f"/etc/{name}", self.root / "etc" / name], check=True)
        self.stage = stage
        self.stages[stage] = self.root
        self.folders[stage] = self.work

    def ignore(self, rest):
        """Ignores instructions that matter only in a container: a user, a command, labels."""

    def workdir(self, rest):
        self.work = self.folders[self.stage] = pathlib.PurePosixPath(rest)
        (self.root / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)

    def arg(self, rest):
        name, _, value = rest.partition("=")
        self.set[name] = self.arguments.get(name, value)

    def copy(self, rest):
        options = dict(part[2:].split("=", 1) for part in rest.split() if part.startswith("--"))
        *sources, target = [part for part in rest.split() if not part.startswith("--")]
        there = self.root / str(self.work / target).lstrip("/")
        if "from" in options:
            (source,) = (self.stages[options["from"]] / name.lstrip("/") for name in sources)
            if source.resolve() == there.resolve():  # both stages began as the same stage
                return
            there.mkdir(parents=True, exist_ok=True)
            subprocess.run(["cp", "-a", f"{source}/.", there], check=True)
            if "chown" in options:
                os.chown(there, *map(int, options["chown"].split(":")))
            return
        there.mkdir(parents=True, exist_ok=True)
        if sources == ["."]:
            self.copy_context(there)
            return
        for pattern in sources:
            for path in ROOT.glob(pattern):
                shutil.copy(path, there)

    @staticmethod
    def copy_context(there):
        """Copies the files that git knows, without the files that .dockerignore names."""
        named = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
        files = subprocess.run(["git", "ls-files", *named], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
        subprocess.run(["cp", "--parents", *files, there], cwd=ROOT, check=True)

    def step(self, rest):
        print(f"--- {rest[:100]}", flush=True)
        passed = {"JOBS": os.environ["JOBS"]} if "JOBS" in os.environ else {}
        environment = {"HOME": "/root", "DEBIAN_FRONTEND": "noninteractive", "CACHE": self.cache, **passed, **self.set}
        inside(self.root, "/bin/sh", "-c", f"cd {self.work} || exit; {rest}", environment=environment, check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", choices=["cpu", "cuda"])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--cache", default="", help="a folder that stands for /root/.cache: downloads, compiled files")
    options = parser.parse_args()
    root = Build(options.folder.resolve(), {"DAPD_COMMIT": "by-hand"}, options.cache).run(options.target)
    result = start(root, "dapd", "--version")
    print(f"{root}: dapd {result.stdout.strip()}{result.stderr}")
    sys.exit(result.returncode)


if __name__ == "__main__":
    main()
