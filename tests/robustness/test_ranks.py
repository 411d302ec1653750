"""Several trainer ranks give the result of one; a lost rank ends the step everywhere, and the job resumes."""

import json
import os
import re
import signal
import socket
import time

import pytest
import torch
from safetensors.torch import load_file

import history
from cluster import BATCH, SETTINGS, STEPS
from workspace import children, free_port, wait_for


SHARDED = {"trainer.shard_base": "true"}


def tensors(cluster, run):
    return load_file(cluster.workspace.runs(run) / "adapter" / "adapter_model.safetensors")


def start_ranks(cluster, run, count, failpoints=None, of_rank_1=None, **settings):
    rendezvous = f"127.0.0.1:{free_port()}"
    ranks = []
    for rank in range(count):
        own = {"metrics.trainer_listen": "127.0.0.1:0", **(of_rank_1 or {})} if rank else {}
        ranks.append(cluster.start_trainer(run, failpoints=(failpoints or {}).get(rank, ""), **{
            "run.seed": 1000, "trainer.ranks": count, "trainer.rank": rank, "trainer.rendezvous": rendezvous, **settings, **own}))
    return ranks


def finish(cluster, run, ranks):
    codes = [rank.wait(timeout=180) for rank in ranks]
    assert codes == [0] * len(ranks), f"{codes}\n{cluster.log(run)}"


@pytest.fixture(scope="module")
def two_ranks(shared_cluster):
    run = "ranks-2"
    finish(shared_cluster, run, start_ranks(shared_cluster, run, 2))
    return shared_cluster


def test_two_ranks_give_the_result_of_one(two_ranks, reference):
    _, expected, _ = reference.of_seed(0)
    error = norm = 0.0
    one = tensors(two_ranks, "reference-0")
    for name, value in tensors(two_ranks, "ranks-2").items():
        error += (value - one[name]).double().pow(2).sum().item()
        norm += one[name].double().pow(2).sum().item()
    print(f"adapter of two ranks differs from one's by {(error / norm) ** 0.5:.1e} of its norm")
    assert (error / norm) ** 0.5 < 1e-5
    for line, (step, loss, gradient_norm, terms, _) in zip(two_ranks.workspace.metrics("ranks-2"), expected, strict=True):
        assert line["step"] == step
        print(f"step {step}: loss {loss:.6f}, differs by {abs(line['loss'] - loss):.1e}; gradient norm by {abs(line['gradient_norm'] - gradient_norm):.1e}")
        assert line["loss"] == pytest.approx(loss, rel=1e-4)
        for name, value in terms.items():
            assert line["terms"][name]["value"] == pytest.approx(value, rel=1e-3, abs=1e-6)


def test_the_ranks_of_a_run_share_each_sample_out_once(two_ranks):
    seen = history.check(two_ranks.workspace.runs("ranks-2") / "ledger.jsonl", BATCH, STEPS)
    assert all(len(samples) == BATCH for samples in seen.trained.values())


def test_ranks_share_out_a_batch_whose_last_micro_batch_is_not_full(two_ranks):
    run = "ranks-of-five"
    finish(two_ranks, run, start_ranks(two_ranks, run, 2, **{"trainer.batch_size": 5, "trainer.micro_batch_size": 2, "trainer.steps": 2}))
    seen = history.check(two_ranks.workspace.runs(run) / "ledger.jsonl", 5, 2)
    assert all(len(samples) == 5 for samples in seen.trained.values())


def test_the_same_ranks_give_the_same_bits(two_ranks):
    run = "ranks-2-again"
    finish(two_ranks, run, start_ranks(two_ranks, run, 2))
    assert two_ranks.workspace.adapter_digest(run) == two_ranks.workspace.adapter_digest("ranks-2")


def test_ranks_that_split_the_base_give_the_same_bits(two_ranks, reference):
    run = "ranks-sharded"
    finish(two_ranks, run, start_ranks(two_ranks, run, 2, **SHARDED))
    assert two_ranks.workspace.adapter_digest(run) == two_ranks.workspace.adapter_digest("ranks-2")
    for sharded, whole in zip(two_ranks.workspace.metrics(run), two_ranks.workspace.metrics("ranks-2"), strict=True):
        assert sharded["terms"] == whole["terms"]
        assert sharded["early_micro_batches"] == 0
        assert sharded["gather_wait_seconds"] > 0 == whole["gather_wait_seconds"]
    history.check(two_ranks.workspace.runs(run) / "ledger.jsonl", BATCH, STEPS)


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("failpoint,hit,base", [
    ("optimizer.before_step", 3, "whole"), ("train.before_micro_batch", 4, "whole"), ("publish.after_live", 3, "whole"),
    ("train.before_micro_batch", 4, "split"), ("train.after_last_micro_batch", 2, "split")])
def test_r24_a_rank_that_dies_ends_the_step_everywhere_and_the_job_goes_on(victim, failpoint, hit, base, two_ranks):
    run = f"r24-{victim}-{failpoint}-{base}"
    ranks = start_ranks(two_ranks, run, 2, failpoints={victim: f"{failpoint}=kill@{hit}"}, **(SHARDED if base == "split" else {}))
    assert ranks[victim].wait(timeout=120) == -signal.SIGKILL, two_ranks.log(run)
    start = time.monotonic()
    code = ranks[1 - victim].wait(timeout=60)
    print(f"the other rank ended with code {code} after {time.monotonic() - start:.1f} s")
    assert code == 75, two_ranks.log(run)
    # They resume with the whole base, whatever they had before.
    finish(two_ranks, run, start_ranks(two_ranks, run, 2))
    assert two_ranks.workspace.adapter_digest(run) == two_ranks.workspace.adapter_digest("ranks-2")
    history.check(two_ranks.workspace.runs(run) / "ledger.jsonl", BATCH, STEPS)


NO_CHECKPOINT_IS_DUE = {"trainer.steps": 400, "trainer.schedule_steps": 400, "checkpoint.interval": 400}


@pytest.mark.parametrize("base", ["whole", "split"])
@pytest.mark.parametrize("fault,code", [(signal.SIGTERM, 130), (signal.SIGKILL, -signal.SIGKILL), (signal.SIGSTOP, None)])
def test_rank_0_saves_when_another_rank_is_stopped_lost_or_hangs(fault, code, base, two_ranks):
    """If one of several pods is moved, the steps that all ranks have must not be lost."""
    run = f"rank-lost-{base}-{fault.name}"
    # The fault comes in a step that no rank has ended.
    ranks = start_ranks(two_ranks, run, 2, failpoints={1: "rollout.after_collect=sleep:3000@3"}, **NO_CHECKPOINT_IS_DUE, **(SHARDED if base == "split" else {}))
    wait_for(lambda: len(two_ranks.workspace.metrics(run)) >= 2 or ranks[0].poll() is not None, what="two steps")
    ranks[1].send_signal(fault)
    assert ranks[0].wait(timeout=60) == 75, two_ranks.log(run)
    if code is None:
        ranks[1].kill()
    assert ranks[1].wait(timeout=60) == code or code is None, two_ranks.log(run)
    assert os.listdir(two_ranks.workspace.runs(run) / "checkpoints") == ["step-000002"], two_ranks.log(run)


def test_a_rank_0_that_is_told_to_stop_has_stopped_though_another_ended_first(two_ranks):
    """A stop goes to all ranks of a run, and rank 0 may see the end of another rank before it gets its own signal."""
    run = "rank-ends-first"
    folder = two_ranks.workspace.runs(run)
    ranks = start_ranks(two_ranks, run, 2, failpoints={0: "checkpoint.before_rename=sleep:5000"}, **NO_CHECKPOINT_IS_DUE)
    wait_for(lambda: len(two_ranks.workspace.metrics(run)) >= 1 or ranks[0].poll() is not None, what="a step")
    ranks[1].kill()
    wait_for(lambda: any((folder / "checkpoints").iterdir()) or ranks[0].poll() is not None, what="a checkpoint of rank 0 alone")
    ranks[0].terminate()
    assert ranks[0].wait(timeout=60) == 130, two_ranks.log(run)
    assert json.loads((folder / "outcome.json").read_text())["state"] == "stopped"


@pytest.mark.parametrize("base", ["whole", "split"])
def test_ranks_are_there_until_the_last_evaluation_is_over(base, two_ranks):
    """Ranks that had ended before it would not come again for a rank 0 that has to be restarted."""
    run = f"ranks-evaluated-{base}"
    settings = SHARDED if base == "split" else {}
    ranks = start_ranks(two_ranks, run, 2, failpoints={0: "evaluation.after=kill@2"}, **settings)
    assert ranks[0].wait(timeout=120) == -signal.SIGKILL, two_ranks.log(run)
    assert ranks[1].wait(timeout=60) == 75, two_ranks.log(run)
    finish(two_ranks, run, start_ranks(two_ranks, run, 2, **settings))
    assert two_ranks.workspace.adapter_digest(run) == two_ranks.workspace.adapter_digest("ranks-2")


@pytest.mark.parametrize("victim", [0, 1])
def test_r24_a_rank_that_hangs_is_found_out(victim, two_ranks):
    run = f"r24-hang-{victim}"
    ranks = start_ranks(two_ranks, run, 2, failpoints={victim: "optimizer.before_step=stop@2"})
    start = time.monotonic()
    code = ranks[1 - victim].wait(timeout=60)
    print(f"the other rank ended with code {code}, {time.monotonic() - start:.1f} s behind the start")
    assert code == 75, two_ranks.log(run)
    ranks[victim].kill()
    ranks[victim].wait()
    finish(two_ranks, run, start_ranks(two_ranks, run, 2))
    assert two_ranks.workspace.adapter_digest(run) == two_ranks.workspace.adapter_digest("ranks-2")


def test_answers_that_take_a_rank_long_are_waited_for(two_ranks):
    run = "ranks-late"
    late = {1: "rollout.after_collect=sleep:4000@2"}
    finish(two_ranks, run, start_ranks(two_ranks, run, 2, failpoints=late, **{"trainer.rank_timeout_seconds": 2}))
    assert two_ranks.workspace.adapter_digest(run) == two_ranks.workspace.adapter_digest("ranks-2")


def test_ranks_that_together_overrun_a_worker_are_never_refused(two_ranks, lone_rollout):
    """Each rank has as many requests as the worker has slots, together more than run and wait there. The worker dies
    meanwhile."""
    run, slots, worker = "ranks-overrun", 80, lone_rollout
    slow = {"rollout.slots": slots, "failpoints": "worker.before_token=sleep:100"}
    worker.start(**slow).wait_until_healthy()
    ranks = start_ranks(two_ranks, run, 2, rollouts=[worker.address], **{
        "trainer.batch_size": 2 * slots, "trainer.micro_batch_size": slots, "trainer.steps": 1, "trainer.schedule_steps": 1})
    wait_for(lambda: worker.metric("dapd_rollout_requests_waiting") > 0, what="a full worker")
    worker.kill()
    worker.start(**slow).wait_until_healthy()
    finish(two_ranks, run, ranks)
    log = two_ranks.log(run)
    lost = re.findall(r"rollout worker \S+ lost: (.*)", log)
    assert len(lost) == 2 and "already waiting" not in log, log


def test_a_rank_that_waits_for_the_others_has_started_and_does_not_serve(two_ranks):
    """Kubernetes restarts a pod that does not start, and sends no requests to a pod that does not serve."""
    address = f"127.0.0.1:{free_port()}"
    rank = two_ranks.start_trainer("rank-alone", **{
        "run.seed": 1000, "trainer.ranks": 2, "trainer.rank": 0, "trainer.rendezvous": f"127.0.0.1:{free_port()}", "trainer.listen": address})
    ask = lambda *service: two_ranks.workspace.dapd("health", address, *service, check=False)
    wait_for(lambda: ask().returncode == 0 or rank.poll() is not None, what="a rank that has started")
    assert ask().stdout == "SERVING\n", two_ranks.log("rank-alone")
    service = ask("--service=dapd.v1.TrainerService")
    assert service.returncode == 5 and "NOT_SERVING" in service.stderr
    rank.kill()
    rank.wait()


@pytest.mark.parametrize("of_rank_0,of_rank_1", [({}, {"trainer.learning_rate": 0.5}), (SHARDED, {}), ({"security.insecure": "true"}, {})],
                         ids=["learning rate", "whole base", "secure"])
def test_a_rank_with_another_configuration_is_refused(of_rank_0, of_rank_1, two_ranks):
    run = f"other-rank-{'-'.join([*of_rank_0, *of_rank_1])}"
    rendezvous = f"127.0.0.1:{free_port()}"
    common = {"run.seed": 1000, "trainer.ranks": 2, "trainer.rendezvous": rendezvous, "trainer.peer_timeout_seconds": 20}
    leader = two_ranks.start_trainer(run, **{**common, **of_rank_0, "trainer.rank": 0})
    code = two_ranks.train(run, **{**common, **of_rank_1, "trainer.rank": 1, "metrics.trainer_listen": "127.0.0.1:0"})
    leader.kill()
    leader.wait()
    assert code == 4, two_ranks.log(run)
    assert "differs from rank 0's" in two_ranks.log(run)


def test_each_rank_may_have_the_base_in_a_folder_of_its_own(two_ranks):
    run = "base-elsewhere"
    elsewhere = two_ranks.workspace.folder / "the-same-base"
    elsewhere.symlink_to(two_ranks.workspace.model)
    finish(two_ranks, run, start_ranks(two_ranks, run, 2, of_rank_1={"model.path": elsewhere}))
    assert two_ranks.workspace.adapter_digest(run) == two_ranks.workspace.adapter_digest("ranks-2")


def test_dapd_run_starts_the_ranks_and_starts_them_again(workspace, two_ranks):
    settings = {**SETTINGS, "run.seed": 1000, "trainer.ranks": 2}
    process = workspace.start("run-ranks", **settings)
    wait_for(lambda: len(workspace.metrics("run-ranks")) >= 1 or process.poll() is not None, what="a step")
    trainers = sorted(children(process).get("dapd-trainer", []))
    assert len(trainers) == 2, workspace.log("run-ranks")
    os.kill(trainers[1], signal.SIGKILL)
    assert process.wait(timeout=180) == 0, workspace.log("run-ranks")
    assert "restarting from the newest checkpoint" in workspace.log("run-ranks")
    same = all(torch.equal(a, b) for a, b in zip(tensors(two_ranks, "run-ranks").values(), tensors(two_ranks, "ranks-2").values(), strict=True))
    assert same


def test_a_signal_lets_rank_0_of_dapd_run_save(workspace):
    run = "run-ranks-stopped"
    settings = {**SETTINGS, "run.seed": 1000, "trainer.ranks": 2, "trainer.steps": 400, "trainer.schedule_steps": 400, "checkpoint.interval": 400}
    process = workspace.start(run, failpoints="checkpoint.before_rename=sleep:3000", **settings)
    wait_for(lambda: len(workspace.metrics(run)) >= 1 or process.poll() is not None, what="a step")
    process.terminate()
    assert process.wait(timeout=60) == 130, workspace.log(run)
    assert list((workspace.runs(run) / "checkpoints").glob("step-*/manifest.json")), workspace.log(run)
    assert json.loads((workspace.runs(run) / "outcome.json").read_text())["state"] == "stopped"


def start_machine(cluster, run, **settings):
    rendezvous = f"127.0.0.1:{free_port()}"
    return cluster.start_trainer(run, **{
        "run.seed": 1000, "trainer.rendezvous": rendezvous, "metrics.trainer_listen": "127.0.0.1:0", **settings})


def test_a_trainer_that_starts_the_ranks_of_its_machine_gives_the_same_bits(two_ranks, holds):
    run = "ranks-of-a-machine"
    machine = {"trainer.ranks_per_machine": 2, **SHARDED}
    trainer = start_machine(two_ranks, run, failpoints=holds[0].at("step.after_metrics", 1), **machine)
    wait_for(lambda: len(two_ranks.workspace.metrics(run)) >= 1 or trainer.poll() is not None, what="a step")
    ranks = children(trainer).get("dapd-trainer", [])
    assert len(ranks) == 2, two_ranks.log(run)
    os.kill(ranks[1], signal.SIGKILL)
    holds[0].release()
    assert trainer.wait(timeout=60) == 75, two_ranks.log(run)
    assert not [rank for rank in ranks if os.path.exists(f"/proc/{rank}")]
    finish(two_ranks, run, [start_machine(two_ranks, run, **machine)])
    assert two_ranks.workspace.adapter_digest(run) == two_ranks.workspace.adapter_digest("ranks-2")
    history.check(two_ranks.workspace.runs(run) / "ledger.jsonl", BATCH, STEPS)
    # For a finished run rank 0 is enough.
    finish(two_ranks, run, [start_machine(two_ranks, run, **{"trainer.ranks_per_machine": 2})])


def test_ranks_of_two_machines_give_the_same_bits(two_ranks):
    run = "ranks-of-two-machines"
    place = {"trainer.ranks_per_machine": 1, "trainer.machines": 2, "trainer.rendezvous": f"127.0.0.1:{free_port()}"}
    finish(two_ranks, run, [start_machine(two_ranks, run, **place, **{"trainer.machine": machine}) for machine in range(2)])
    assert two_ranks.workspace.adapter_digest(run) == two_ranks.workspace.adapter_digest("ranks-2")


def test_of_a_finished_run_no_rank_waits_for_the_others(two_ranks):
    """Ranks on another machine see the run folder; rank 0, which ends at once, is no longer there to tell them."""
    start = {"run.seed": 1000, "trainer.rendezvous": f"127.0.0.1:{free_port()}", "metrics.trainer_listen": "127.0.0.1:0"}
    alone = two_ranks.start_trainer("ranks-2", **start, **{"trainer.ranks": 2, "trainer.rank": 1})
    machine = two_ranks.start_trainer("ranks-2", **start, **{"trainer.ranks_per_machine": 1, "trainer.machines": 2, "trainer.machine": 1})
    assert [alone.wait(timeout=30), machine.wait(timeout=30)] == [0, 0], two_ranks.log("ranks-2")


def test_a_rank_that_comes_behind_the_end_waits_for_another_beginning(two_ranks):
    """Only rank 0, which stays, has the folder of the finished run: on Kubernetes a claim belongs to one pod."""
    run, here = "ranks-behind-the-end", two_ranks.workspace.folder
    rendezvous = f"127.0.0.1:{free_port()}"

    def start(rank, steps, folder):
        own = {"metrics.trainer_listen": "127.0.0.1:0"} if rank else {}
        return two_ranks.start_trainer(run, **{
            "run.seed": 1000, "run.output_dir": here / folder, "trainer.ranks": 2, "trainer.rank": rank, "trainer.rendezvous": rendezvous,
            "trainer.steps": steps, "trainer.when_done": "serve", **own})

    def says(text):
        return lambda: text in two_ranks.log(run) or rank_0.poll() is not None or rank_1.poll() is not None

    rank_0, rank_1 = start(0, 1, "runs"), start(1, 1, "others")
    wait_for(lambda: two_ranks.log(run).count("the run is done") == 2 or rank_0.poll() is not None, what="the end")
    rank_1.kill()
    rank_1 = start(1, 2, "others")
    wait_for(says("the run is over"), what="the word of rank 0")
    rank_0.terminate()
    assert rank_0.wait(timeout=60) == 0 and rank_1.poll() is None, two_ranks.log(run)
    rank_0 = start(0, 2, "runs")
    wait_for(lambda: len(two_ranks.workspace.metrics(run)) == 2 or rank_0.poll() is not None, what="another step")
    wait_for(lambda: two_ranks.log(run).count("the run is done") == 4 or rank_0.poll() is not None, what="the end")
    for rank in (rank_0, rank_1):
        rank.terminate()
        assert rank.wait(timeout=60) == 0, two_ranks.log(run)


def test_rank_0_tells_of_the_end_once_the_rendezvous_is_its_own(two_ranks):
    """After a pod was moved, its name still resolves to the old place for a while."""
    run, here = "ranks-behind-a-move", two_ranks.workspace.folder
    (here / "runs" / run).mkdir(parents=True)
    (here / "runs" / run / "summary.json").write_text('{"steps": 5}')
    with socket.create_server(("127.0.0.1", 0)) as taken:
        start = lambda rank, **own: two_ranks.start_trainer(run, **{
            "trainer.ranks": 2, "trainer.rank": rank, "trainer.rendezvous": f"127.0.0.1:{taken.getsockname()[1]}", "trainer.when_done": "serve",
            "metrics.trainer_listen": "127.0.0.1:0", **own})
        rank_0 = start(0)
        wait_for(lambda: "not told yet" in two_ranks.log(run) or rank_0.poll() is not None, what="a rendezvous that is taken")
        rank_1 = start(1, **{"run.output_dir": here / "others"})
    wait_for(lambda: "rank 0 says that the run is over" in two_ranks.log(run) or rank_1.poll() is not None, what="the word of rank 0")
    assert rank_0.poll() is rank_1.poll() is None, two_ranks.log(run)


@pytest.mark.parametrize("bad,code,message", [({"data.path": "/no/such/file"}, 4, "/no/such/file"), ({"trainer.ranks": 3}, 3, "leave it out")],
                         ids=["data", "ranks"])
def test_ranks_of_a_machine_that_cannot_start_end_with_their_reason(bad, code, message, two_ranks):
    run = f"no-ranks-{code}"
    trainer = start_machine(two_ranks, run, **{"trainer.ranks_per_machine": 2, **bad})
    assert trainer.wait(timeout=60) == code, two_ranks.log(run)
    assert message in two_ranks.log(run)


def test_rank_0_of_a_machine_that_lost_another_has_the_time_to_save(two_ranks):
    run = "ranks-lost"
    failpoints = "rollout.after_collect=sleep:3000@2;checkpoint.before_rename=sleep:9000"
    trainer = start_machine(two_ranks, run, failpoints=failpoints, **{"trainer.ranks_per_machine": 2, **NO_CHECKPOINT_IS_DUE})
    wait_for(lambda: len(two_ranks.workspace.metrics(run)) >= 1 or trainer.poll() is not None, what="a step")
    os.kill(children(trainer)["dapd-trainer"][1], signal.SIGKILL)
    assert trainer.wait(timeout=60) == 75, two_ranks.log(run)
    assert os.listdir(two_ranks.workspace.runs(run) / "checkpoints") == ["step-000001"], two_ranks.log(run)


def test_a_signal_ends_the_ranks_of_a_machine_with_a_checkpoint(two_ranks):
    run = "ranks-stopped"
    settings = {"trainer.ranks_per_machine": 2, "trainer.steps": 400, "trainer.schedule_steps": 400}
    trainer = start_machine(two_ranks, run, **settings)
    wait_for(lambda: len(two_ranks.workspace.metrics(run)) >= 1 or trainer.poll() is not None, what="a step")
    trainer.terminate()
    assert trainer.wait(timeout=60) == 130, two_ranks.log(run)
    assert list((two_ranks.workspace.runs(run) / "checkpoints").glob("step-*"))
