"""A minimal Debian made with debootstrap: stands in for a base image where no image registry is in reach."""

import fcntl
import hashlib
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def owning_packages(files):
    """The installed Debian packages that the files came with. dpkg knows a file by the path that it had before /lib
    became a link."""
    paths = {str(pathlib.Path(file).resolve()) for file in files} | {str(file).removeprefix("/usr") for file in files}
    found = subprocess.run(["dpkg-query", "--search", *paths], capture_output=True, text=True)
    return {line.split(":")[0] for line in found.stdout.splitlines()}


def system_libraries(folder):
    """What the programs and libraries of `folder` load from this machine."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
    lines = subprocess.run(["ldd", *files], capture_output=True, text=True, check=True).stdout.splitlines()
    paths = {line.split("=>")[1].split()[0] for line in lines if "=>" in line}
    return {path for path in paths if not path.startswith(str(folder))}


def this_release():
    return subprocess.run(["sh", "-c", '. /etc/os-release && echo "$VERSION_CODENAME"'], capture_output=True, text=True).stdout.strip()


def debian_root(packages, release=None):
    """A folder with the root file system of this machine's release of Debian, or of another; made once for each set of packages, from where
    this machine's apt gets its own."""
    release = release or this_release()
    digest = hashlib.sha256(" ".join([release, *sorted(packages)]).encode()).hexdigest()[:12]
    deps = ROOT / ".deps"
    root = deps / f"debian-root-{digest}"
    if root.exists():
        return root
    # Checkouts may share .deps, and tests run side by side: one makes it, the others wait and find it.
    deps.mkdir(exist_ok=True)
    with open(deps / f"debian-root-{digest}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            make_root(root, packages, release)
    return root


def make_root(root, packages, release):
    mirror = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", f"Codename: {this_release()}"],
                            capture_output=True, text=True, check=True).stdout.split()[0]
    aside = root.with_suffix(".tmp")
    shutil.rmtree(aside, ignore_errors=True)
    log = root.parent / f"logs/debootstrap-{root.name}.log"
    log.parent.mkdir(exist_ok=True)
    include = [f"--include={','.join(sorted(packages))}"] if packages else []
    with open(log, "w") as output:
        # debootstrap mounts /proc in its root. In namespaces that end with it, nothing stays mounted, or runs on, when it is killed: what
        # is half made can be removed without going into this machine's own /proc.
        subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
                        "debootstrap", "--variant=minbase", *include, release, aside, mirror],
                       stdout=output, stderr=output, check=True, timeout=540)
    aside.rename(root)
