"""A minimal Debian made with debootstrap, which takes the place of a base image if no image registry can be reached."""

import fcntl
import functools
import hashlib
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def owning_packages(files):
    """Returns the installed Debian packages that the files belong to. dpkg knows a file by the path that it had before /lib became a
    link."""
    paths = {str(pathlib.Path(file).resolve()) for file in files} | {str(file).removeprefix("/usr") for file in files}
    found = subprocess.run(["dpkg-query", "--search", *paths], capture_output=True, text=True)
    return {line.split(":")[0] for line in found.stdout.splitlines()}


def system_libraries(folder):
    """Returns the libraries that the programs and libraries of `folder` load from this machine."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
    lines = subprocess.run(["ldd", *files], capture_output=True, text=True, check=True).stdout.splitlines()
    paths = {line.split("=>")[1].split()[0] for line in lines if "=>" in line}
    return {path for path in paths if not path.startswith(str(folder))}


def this_release():
    return subprocess.run(["sh", "-c", '. /etc/os-release && echo "$VERSION_CODENAME"'], capture_output=True, text=True).stdout.strip()


def debian_root(packages, release=None):
    """Returns a folder with the root file system of this machine's release of Debian, or of another release. It is made once for each set
    of packages, from the mirror of this machine's apt."""
    release = release or this_release()
    digest = hashlib.sha256(" ".join([release, *sorted(packages)]).encode()).hexdigest()[:12]
    deps = ROOT / ".deps"
    root = deps / f"debian-root-{digest}"
    if root.exists():
        return root
    # Checkouts may share .deps, and tests run side by side: one test makes the root, and the other tests wait for it.
    deps.mkdir(exist_ok=True)
    with open(deps / f"debian-root-{digest}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            make_root(root, packages, release)
    return root


def make_root(root, packages, release):
    aside = root.with_suffix(".tmp")
    shutil.rmtree(aside, ignore_errors=True)
    log = root.parent / f"logs/{root.name}.log"
    log.parent.mkdir(exist_ok=True)
    with open(log, "w") as output:
        make = functools.partial(subprocess.run, stdout=output, stderr=output, check=True, timeout=540)
        if packages:
            make(["cp", "-a", debian_root(set(), release), aside])
            install(aside, packages, make)
        else:
            bootstrap(aside, release, make)
    aside.rename(root)


def in_namespaces(*command):
    """Runs the command with its own /proc. If it is killed, no mount and no process remains, so a half-made root can be removed without
    touching this machine's /proc."""
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *command]


def bootstrap(aside, release, make):
    mirror = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", f"Codename: {this_release()}"],
                            capture_output=True, text=True, check=True).stdout.split()[0]
    make(in_namespaces("debootstrap", "--variant=minbase", release, aside, mirror))


def install(aside, packages, make):
    """Installs the packages in a quarter of the time that debootstrap takes. This machine's apt, which knows the way to the mirror,
    downloads them; the root's apt installs them."""
    there = ["-o", f"Dir={aside}", "-o", f"Dir::State::status={aside}/var/lib/dpkg/status"]
    wanted = ["install", "--quiet", "--yes", "--no-install-recommends", *sorted(packages)]
    make(["apt-get", *there, "--quiet", "update"])
    make(["apt-get", *there, "--download-only", *wanted])
    make(in_namespaces("sh", "-c", 'mount -t proc proc "$1/proc" && exec chroot "$@"', "sh", aside, "apt-get", "--no-download", *wanted),
         env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"})
    # These folders are more than half of the root, and an image's layer does not need them.
    for folder in ("var/cache/apt", "var/lib/apt/lists"):
        shutil.rmtree(aside / folder)
        (aside / folder).mkdir()
