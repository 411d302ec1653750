"""A copy is restored to the run of its newest complete commit, all of it or nothing."""

import json
import os
import random
import subprocess

import pytest

from copies import SEED, copied, restore
from fault_proxy import FaultProxy
from workspace import BIN, wait_for


@pytest.fixture(scope="module")
def two_copies(shared_cluster, servers):
    """Provides a run whose copy has steps 4 and 5, and the objects of the copy."""
    run, server = "two-copies", servers("s3")
    saved = dict(os.environ)
    os.environ.update(server.environment())
    try:
        assert shared_cluster.train(run, **copied(server.url("g"), **{"checkpoint.keep": 2})) == 0, shared_cluster.log(run)
        yield run, server.objects(f"g/{run}")
    finally:
        os.environ.clear()
        os.environ.update(saved)


@pytest.mark.parametrize("what", ["commit cut off", "commit bit", "object bit", "object cut off", "object missing"])
def test_a_damaged_copy_gives_way_to_the_one_before(what, cluster, reference, store, two_copies):
    run, objects = two_copies
    prefix = f"g-{what.replace(' ', '-')}/{run}"
    newest, before = (json.loads(objects[f"commits/step-00000{step}.json"].split(b"\n")[0])["files"] for step in (5, 4))
    only_newest = sorted({part for parts in newest.values() for _, part in parts} - {part for parts in before.values() for _, part in parts})
    name = "commits/step-000005.json" if what.startswith("commit") else f"objects/{only_newest[0]}"
    chance = random.Random(what)
    for each, data in objects.items():
        if each == name and what.endswith("missing"):
            continue
        if each == name and what.endswith("cut off"):
            data = data[:chance.randrange(len(data))]
        if each == name and what.endswith("bit"):
            data = bytearray(data)
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            data = bytes(data)
        store.damage(prefix, each, data)
    back = f"{run}-{what.replace(' ', '-')}"
    refused = restore(cluster.workspace, store.url(prefix), back, "--step", 5, check=False)
    assert refused.returncode == 6 and not cluster.workspace.runs(back).exists(), refused.stderr
    shown = restore(cluster.workspace, store.url(prefix), back)
    assert "after step 4" in shown.stdout and "the copy of step 4 is tried" in shown.stderr
    assert cluster.train(back, **SEED) == 0, cluster.log(back)
    reference.assert_equal(back, 0)


def test_restore_killed_in_the_middle_goes_on_and_never_shows_half_a_run(cluster, store, two_copies):
    run, objects = two_copies
    back = cluster.workspace.runs("restore-killed")
    proxy = FaultProxy(store.port)
    proxy.rate = 100_000
    environment = {**os.environ, **store.environment(proxy.port)}
    try:
        process = subprocess.Popen([BIN / "dapd", "restore", store.url(f"g/{run}"), back], env=environment, stderr=subprocess.PIPE)
        aside = back.with_name(back.name + ".restoring")
        wait_for(lambda: aside.is_dir() and len([path for path in aside.rglob("*") if path.is_file()]) >= 2, what="a restore under way")
        second = subprocess.run([BIN / "dapd", "restore", store.url(f"g/{run}"), back], env=environment, capture_output=True, text=True)
        assert second.returncode == 5 and "another process is restoring" in second.stderr
        process.kill()
        process.wait()
    finally:
        proxy.close()
    assert not back.exists() and aside.is_dir()
    restore(cluster.workspace, store.url(f"g/{run}"), back.name)
    assert back.is_dir() and not aside.exists()
    assert cluster.workspace.adapter_digest(back.name) == cluster.workspace.adapter_digest(run)


def test_restore_refuses_a_folder_that_is_there_and_says_what_there_is(cluster, store, two_copies):
    run, _ = two_copies
    there = restore(cluster.workspace, store.url(f"g/{run}"), run, check=False)
    assert there.returncode == 4 and "a run is never overwritten" in there.stderr
    above = restore(cluster.workspace, store.url("g"), "nothing", check=False)
    assert above.returncode == 4 and run in above.stderr and not cluster.workspace.runs("nothing").exists()
    nobody = restore(cluster.workspace, store.url("nobody"), "nothing", check=False)
    assert nobody.returncode == 4 and "there is no complete copy" in nobody.stderr
