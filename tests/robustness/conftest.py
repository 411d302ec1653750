"""Fixtures of workers that stay, of trainers that are killed, and of proxies and servers between them."""

import os
import pathlib
import sys

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fakes"))

from cluster import Cluster, Reference  # noqa: E402
from fault_proxy import FaultProxy  # noqa: E402
from hold import Hold  # noqa: E402
from stores import SERVERS  # noqa: E402
from workspace import Workspace  # noqa: E402


@pytest.fixture(scope="session")
def workspace(tmp_path_factory):
    return Workspace(tmp_path_factory.mktemp("robustness"))


@pytest.fixture(scope="session")
def shared_cluster(workspace):
    cluster = Cluster(workspace, rollouts=2).start()
    yield cluster
    cluster.stop()


@pytest.fixture
def cluster(shared_cluster):
    shared_cluster.revive()
    yield shared_cluster
    shared_cluster.say_who_is_dead()
    shared_cluster.end_trainers()


@pytest.fixture(scope="session")
def trio(workspace):
    """Provides three rollouts and two teachers."""
    cluster = Cluster(workspace, rollouts=3, teachers=2).start()
    yield cluster
    cluster.stop()


@pytest.fixture
def many(trio):
    trio.revive()
    yield trio
    trio.say_who_is_dead()
    trio.end_trainers()


@pytest.fixture
def lone_rollout(workspace):
    """Provides a rollout worker that is not started."""
    cluster = Cluster(workspace, rollouts=1, teachers=0)
    yield cluster.rollouts[0]
    cluster.stop()


@pytest.fixture(scope="session")
def reference(shared_cluster):
    return Reference(shared_cluster)


@pytest.fixture
def holds(tmp_path):
    """Provides three holds, so that a test can stop a run at several places. A process that a failed test leaves behind does not
    wait for ever."""
    made = [Hold(tmp_path / f"hold-{i}") for i in range(3)]
    yield made
    for hold in made:
        hold.release()


@pytest.fixture
def proxies(shared_cluster):
    """Provides one FaultProxy per worker, rollouts first."""
    made = [FaultProxy(service.port) for service in shared_cluster.services]
    yield made
    for proxy in made:
        proxy.close()


@pytest.fixture(scope="module")
def servers(workspace):
    """Provides the server of each kind, started when a test first needs it."""
    made = {}

    def of(kind):
        if kind not in made:
            made[kind] = SERVERS[kind](workspace.folder).start()
        return made[kind]

    yield of
    for server in made.values():
        server.kill()


@pytest.fixture
def store(request, servers, monkeypatch):
    """Provides the running server of the test's kind, with its address and credentials in the environment."""
    server = servers(getattr(request, "param", "s3"))
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    server.wake()
    if server.process.poll() is not None:
        server.start()
    return server
