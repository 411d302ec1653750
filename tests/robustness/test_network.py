"""Connections that are cut, delayed or damaged: the run continues to the same result."""

import time

import certificates
import pytest
from fault_proxy import FaultProxy

from cluster import SLOW, Cluster, finish, steps_done
from workspace import wait_for


def behind_proxies(cluster, proxies):
    addresses = [proxy.address for proxy in proxies]
    count = len(cluster.rollouts)
    return {"rollouts": addresses[:count], "teachers": addresses[count:]}


def test_r8_a_blackholed_rollout_is_noticed_by_its_pings(cluster, proxies, reference, holds):
    """It is noticed within 6 s plus the delay of a busy machine; every other time-out is a minute or more."""
    reference.of_seed(0)
    run = "r8"
    trainer = cluster.start_trainer(run, failpoints=holds[0].at("train.before_micro_batch", 3), **behind_proxies(cluster, proxies), **{"run.seed": 1000})
    wait_for(lambda: steps_done(cluster, run) >= 1, what="a step")
    wait_for(lambda: cluster.ready("rollout") == len(cluster.rollouts), what="all workers ready")
    proxies[0].blackhole = True
    start = time.monotonic()
    wait_for(lambda: f"rollout worker {proxies[0].address} lost" in cluster.log(run), seconds=50, what="the loss noticed")
    print(f"noticed after {time.monotonic() - start:.1f} s")
    proxies[0].blackhole = False
    holds[0].release()
    finish(cluster, run, trainer)
    reference.assert_equal(run, 0)


@pytest.mark.parametrize("kind", ["partition", "flapping", "asymmetric"])
def test_r9_the_teacher_is_cut_off(kind, cluster, proxies, reference):
    reference.of_seed(0)
    run = f"r9-{kind}"
    teacher = proxies[-1]
    trainer = cluster.start_trainer(run, failpoints=SLOW, **behind_proxies(cluster, proxies), **{"run.seed": 1000})
    wait_for(lambda: steps_done(cluster, run) >= 1, what="a step")
    if kind == "partition":
        teacher.refuse = True
        teacher.reset()
        time.sleep(3)
        teacher.refuse = False
    elif kind == "flapping":
        for _ in range(6):
            teacher.reset()
            time.sleep(0.5)
    else:
        teacher.blackhole = True
        time.sleep(8)
        teacher.blackhole = False
    finish(cluster, run, trainer)
    print(f"{kind}: {teacher.connections} connections")
    assert teacher.connections <= 40  # there is no retry storm
    reference.assert_equal(run, 0)


def test_r10_delay_changes_nothing(cluster, proxies, reference):
    reference.of_seed(0)
    run = "r10-delay"
    for proxy in proxies:
        proxy.delay = 0.05
    finish(cluster, run, cluster.start_trainer(run, **behind_proxies(cluster, proxies), **{"run.seed": 1000}))
    reference.assert_equal(run, 0)


def test_r10_damaged_bytes_are_found_under_tls(workspace, reference, tmp_path):
    """Without TLS only adapters and scores carry checksums of their own (docs/security.md)."""
    reference.of_seed(0)
    certificates.make(tmp_path)
    secured = Cluster(workspace, rollouts=2)
    proxies = []
    try:
        for service in secured.services:
            service.start(**certificates.settings(tmp_path / service.role))
        for service in secured.services:
            service.wait_until_healthy()
        proxies = [FaultProxy(service.port) for service in secured.services]
        run = "r10-damage"
        trainer = secured.start_trainer(run, failpoints=SLOW, **behind_proxies(secured, proxies), **certificates.settings(tmp_path / "trainer"),
                                        **{"run.seed": 1000})
        for step in (1, 2, 3):
            wait_for(lambda: steps_done(secured, run) >= step or trainer.poll() is not None, what="a step")
            for proxy in proxies:
                proxy.corrupt = 2
        finish(secured, run, trainer)
        connections = [proxy.connections for proxy in proxies]
        print("connections by worker:", connections)
        assert min(connections) >= 2, "damaged bytes end a connection"
        reference.assert_equal(run, 0)
    finally:
        secured.stop()
        for proxy in proxies:
            proxy.close()
