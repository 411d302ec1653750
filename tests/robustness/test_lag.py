"""Answers that lag one policy behind by choice (rollout.max_staleness: 1) give the same bits, whatever dies and whoever
helps."""

import random
import signal

import pytest

import history
from cluster import BATCH, STEPS, Reference, Service, copy_run, damage, stop_with_two_checkpoints
from workspace import free_port

SEED = 0
# The rate is so high that a policy's answers differ from those of the policy before.
RATE = {"trainer.learning_rate": 0.02}


@pytest.fixture(scope="module")
def lagging(shared_cluster):
    return Reference(shared_cluster, "lagging", lag=1, **RATE)


def samplers(cluster, run):
    """Returns step -> the policies that sampled its answers."""
    found = {}
    for event in history.read(cluster.workspace.runs(run) / "ledger.jsonl"):
        if event["event"] == "accepted":
            found.setdefault(event["step"], set()).add(event["policy_version"])
    return found


def test_the_lag_is_one_step_from_the_second_on(cluster, lagging):
    _, with_lag, _ = lagging.of_seed(SEED)
    _, without, _ = Reference(cluster, "on-policy", **RATE).of_seed(SEED)
    assert samplers(cluster, f"lagging-{SEED}") == {1: {0}, 2: {0}, 3: {1}, 4: {2}, 5: {3}}
    assert samplers(cluster, f"on-policy-{SEED}") == {1: {0}, 2: {1}, 3: {2}, 4: {3}, 5: {4}}
    print("losses with a lag   ", *(f"{line[1]:.6f}" for line in with_lag))
    print("losses without a lag", *(f"{line[1]:.6f}" for line in without))
    # Both runs sample step 1 under the fresh adapter; only the run without a lag samples step 2 under the adapter after
    # step 1.
    assert with_lag[0] == without[0]
    assert all(a != b for a, b in zip(with_lag[1:], without[1:], strict=True))


@pytest.mark.parametrize("count", [1, 3])
def test_the_number_of_rollout_workers_does_not_show(count, cluster, lagging):
    services = [*cluster.rollouts, Service(cluster.workspace, "rollout", "third-rollout")][:count]
    try:
        for service in services[len(cluster.rollouts):]:
            service.start().wait_until_healthy()
        run = f"lag-{count}-workers"
        assert cluster.train(run, rollouts=[service.address for service in services], **lagging.settings(SEED)) == 0, cluster.log(run)
    finally:
        for service in services[len(cluster.rollouts):]:
            service.kill()
    lagging.assert_equal(run, SEED)


# The kills are where two steps are open, between the two policies, and around the checkpoint that must hold both.
@pytest.mark.parametrize("name,hit", [("rollout.after_submit", 2), ("rollout.after_submit", 4), ("ledger.after_accept", 2 * BATCH + 3), ("train.before_micro_batch", 7),
                                      ("optimizer.after_step", 3), ("publish.after_live", 4), ("checkpoint.after_adapter", 2), ("checkpoint.after_rename", 1),
                                      ("evaluation.before", 2)])
def test_killed_at_a_failpoint_it_goes_on_to_the_same_result(name, hit, cluster, lagging):
    run = f"lag-{name}-{hit}"
    assert cluster.train(run, failpoints=f"{name}=kill@{hit}", **lagging.settings(SEED)) == -signal.SIGKILL, cluster.log(run)
    assert cluster.train(run, **lagging.settings(SEED)) == 0, cluster.log(run)
    seen = lagging.assert_equal(run, SEED)
    print(f"{name}@{hit}: {seen.attempt} attempts, {seen.sampled} answers accepted for {STEPS * BATCH} samples, {seen.resampled} again")
    assert seen.resampled == 0


def test_more_steps_go_on_with_the_lag(cluster, lagging):
    run, longer = "lag-more-steps", {**lagging.settings(SEED), "trainer.steps": STEPS + 2}
    assert cluster.train(run, **lagging.settings(SEED)) == 0, cluster.log(run)
    assert cluster.train(run, **longer) == 0, cluster.log(run)
    assert cluster.train("lag-all-steps", **longer) == 0, cluster.log("lag-all-steps")
    assert cluster.workspace.adapter_digest(run) == cluster.workspace.adapter_digest("lag-all-steps")
    history.check(cluster.workspace.runs(run) / "ledger.jsonl", BATCH, STEPS + 2, lag=1)


@pytest.fixture(scope="module")
def stopped_run(shared_cluster, lagging):
    return stop_with_two_checkpoints(shared_cluster, "lag-damaged", "train.before_micro_batch=kill@9", **lagging.settings(SEED))


@pytest.mark.parametrize("file", ["adapter_model.safetensors", "adapter_config.json"])
def test_a_checkpoint_whose_previous_adapter_is_damaged_is_set_aside(file, cluster, lagging, stopped_run):
    run = f"lag-damaged-{file}"
    _, new = copy_run(cluster.workspace, stopped_run, run)
    damage(new, f"previous/{file}", random.Random(file))
    assert cluster.train(run, **lagging.settings(SEED)) == 0, cluster.log(run)
    lagging.assert_equal(run, SEED)
    assert "is damaged" in cluster.log(run) and "resuming after step 2" in cluster.log(run)


def test_a_run_with_a_lag_does_not_go_on_without(cluster, lagging, stopped_run):
    run = "lag-changed"
    copy_run(cluster.workspace, stopped_run, run)
    assert cluster.train(run, **{**lagging.settings(SEED), "rollout.max_staleness": 0}) == 3
    assert "rollout.max_staleness: was 1, is 0" in cluster.log(run)


def test_ranks_with_a_lag_go_on_to_the_same_result(cluster, lagging):
    def train(run, failpoints="", of_rank_0=None):
        rendezvous = f"127.0.0.1:{free_port()}"
        ranks = [cluster.start_trainer(run, failpoints=failpoints if rank else "", **{
            **lagging.settings(SEED), "trainer.ranks": 2, "trainer.rank": rank, "trainer.rendezvous": rendezvous,
            **({"metrics.trainer_listen": "127.0.0.1:0"} if rank else of_rank_0 or {})}) for rank in range(2)]
        return [rank.wait(timeout=120) for rank in ranks]

    assert train("lag-ranks") == [0, 0], cluster.log("lag-ranks")
    assert train("lag-ranks-killed", failpoints="optimizer.before_step=kill@4") == [75, -signal.SIGKILL], cluster.log("lag-ranks-killed")
    assert train("lag-ranks-killed") == [0, 0], cluster.log("lag-ranks-killed")
    assert lagging.result("lag-ranks-killed") == lagging.result("lag-ranks")
    # The other ranks need not know of rank 0's evaluations.
    assert train("lag-ranks-evaluated", of_rank_0={"evaluation.interval": 2}) == [0, 0], cluster.log("lag-ranks-evaluated")
    assert lagging.result("lag-ranks-evaluated") == lagging.result("lag-ranks")
    for run in ("lag-ranks", "lag-ranks-killed", "lag-ranks-evaluated"):
        lagging.check(run)
