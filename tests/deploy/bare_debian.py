"""A Debian that debootstrap made, in its own namespaces and without a network: like a user's machine, it has nothing of the build
machine."""

import os
import shutil
import subprocess

import pytest


def skip_without_debootstrap():
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        pytest.skip("bare Debians need root and debootstrap")


class BareDebian:
    """A Debian with `root`, which debian_root made. `folder` is at /srv; `shown` is at /mnt, read-only."""

    def __init__(self, root, folder, shown=None):
        self.root, self.folder, self.shown = root, folder, shown

    def run(self, *command, check=True, timeout=300, **variables):
        script = """root=$1 folder=$2 shown=$3; shift 3; ip link set lo up && mount -t proc proc "$root/proc" && mount --bind "$folder" "$root/srv" &&
            { [ -z "$shown" ] || mount --bind -o ro "$shown" "$root/mnt"; } && exec chroot "$root" "$@" """
        namespaces = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child"]
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", **variables}
        result = subprocess.run([*namespaces, "sh", "-c", script, "sh", self.root, self.folder, self.shown or "", *command], capture_output=True,
                                text=True, env=environment, timeout=timeout)
        assert not check or result.returncode == 0, f"{command}: code {result.returncode}\n{result.stdout[-2000:]}\n{result.stderr[-2000:]}"
        return result
