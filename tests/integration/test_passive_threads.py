"""Services that share a machine sleep while they wait, however they are started (common/base/passive_threads.cc)."""

import os
import re
import subprocess

import pytest
from workspace import BIN, free_port, wait_for


def displayed(environment, *command):
    """Returns how often a waiting thread of GNU OpenMP looks before it sleeps, once for each initialization: 0 with the
    passive policy."""
    given = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, env={**given, **environment, "OMP_DISPLAY_ENV": "verbose"})
    return result, [int(count) for count in re.findall(r"GOMP_SPINCOUNT = '(\d+)'", result.stderr)]


@pytest.mark.parametrize("service", ["rollout", "teacher", "trainer"])
def test_a_service_started_by_hand_waits_passively(service, workspace):
    result, spins = displayed({}, BIN / f"dapd-{service}", "--version")
    assert result.returncode == 0 and spins == [0], result.stderr
    # The service's arguments and its name are unchanged.
    result, spins = displayed({}, BIN / f"dapd-{service}", "/no such file", "--set", "a=b c")
    assert result.returncode == 3 and "/no such file" in result.stderr and spins == [0], result.stderr


@pytest.mark.parametrize("service", ["rollout", "teacher", "trainer"])
def test_a_users_own_setting_stays(service):
    result, spins = displayed({"OMP_WAIT_POLICY": "ACTIVE"}, BIN / f"dapd-{service}", "--version")
    assert result.returncode == 0 and len(spins) == 1 and spins[0] > 1000, result.stderr


def test_a_service_is_the_process_that_was_started(workspace):
    given = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    with subprocess.Popen([BIN / "dapd-teacher", workspace.config, "--listen", f"127.0.0.1:{free_port()}"], env=given, stderr=subprocess.PIPE,
                          text=True) as process:
        wait_for(lambda: "ready for" in process.stderr.readline(), what="the teacher")
        with open(f"/proc/{process.pid}/comm") as name, open(f"/proc/{process.pid}/environ") as environ:
            assert name.read() == "dapd-teacher\n" and "OMP_WAIT_POLICY=PASSIVE" in environ.read().split("\0")
        process.terminate()
        process.communicate(timeout=30)
        assert process.returncode == 0
