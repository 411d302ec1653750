"""A machine whose Python has torch and nothing else: a Debian that debootstrap made, in its own namespaces, without a network, with an
ordinary user. Needs root."""

import importlib.metadata
import pathlib
import re
import subprocess

from debian_root import debian_root

NOBODY = 65534
# torch, and the packages that its wheel requires in addition to nvidia-*.
TORCH = ["torch", "triton", "sympy", "mpmath", "networkx", "Jinja2", "MarkupSafe", "filelock", "fsspec", "typing_extensions"]
SCRIPT = """
set -euo pipefail
root=$1 mounted=$2 pack=$3 work=$4; shift 4
mount --bind "$root" "$mounted"
mount -t tmpfs -o mode=1777 tmpfs "$mounted/tmp"
mount -t tmpfs tmpfs "$mounted/opt"
mount -t tmpfs -o mode=755 tmpfs "$mounted/dev"
mkdir "$mounted/dev/shm" && chmod 1777 "$mounted/dev/shm"
for device in null zero urandom; do touch "$mounted/dev/$device"; mount --bind "/dev/$device" "$mounted/dev/$device"; done
while read -r path; do
  if [ -d "$path" ]; then mkdir "$mounted/opt/${path##*/}"; else touch "$mounted/opt/${path##*/}"; fi
  mount --bind -o ro "$path" "$mounted/opt/${path##*/}"
done
mount --bind "$pack" "$mounted/mnt"
mount --bind "$work" "$mounted/srv"
mount -t proc proc "$mounted/proc"
ip link set lo up
exec chroot --userspec=65534:65534 "$mounted" env --ignore-environment HOME=/tmp PATH=/usr/bin:/bin PYTHONPATH=/opt DAPD_GPU_WORK=/srv "$@"
"""


def torch_files():
    """Returns the folders and modules of TORCH and of NVIDIA's wheels in this environment."""
    tops = set()
    for distribution in importlib.metadata.distributions():
        if distribution.name in TORCH or distribution.name.startswith("nvidia-"):
            tops |= {distribution.locate_file(file.parts[0]) for file in distribution.files if file.parts[0] not in ("..", "__pycache__")}
    return sorted(pathlib.Path(top).resolve() for top in tops)


def python_version(root):
    """Returns the version of the root's python3, such as '3.11'."""
    return re.search(r"python(3\.\d+)$", str((root / "usr/bin/python3").resolve().name))[1]


class BareMachine:
    """A machine with `pack` at /mnt and with `work`, which the user may write, at /srv."""

    def __init__(self, folder, pack):
        self.root, self.pack, self.work, self.mounted = debian_root({"python3"}), pack, folder / "work", folder / "root"
        self.mounted.mkdir()
        self.work.mkdir()
        self.work.chmod(0o777)

    def run(self, *command, timeout=300):
        namespaces = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child"]
        return subprocess.run([*namespaces, "bash", "-c", SCRIPT, "bash", self.root, self.mounted, self.pack, self.work, *command], text=True,
                              input="".join(f"{path}\n" for path in torch_files()), capture_output=True, timeout=timeout)
