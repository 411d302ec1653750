"""Workers that die, hang, lag, come and go: the run continues to the same result."""

import random
import signal
import time

import grpc
import pytest

from cluster import BATCH, SEEDS, SLOW, STEPS, Service, finish, steps_done
from workspace import wait_for

PHASES = {
    "idle": "",
    "prefill": "worker.before_prefill=kill@{hit}",
    "decode": "worker.before_token=kill@{token}",
    "before the answer": "worker.before_answer=kill@{hit}",
    "behind the answer": "worker.after_answer=kill@{hit}",
    "before the adapter": "worker.before_adapter=kill@{load}",
    "behind the adapter": "worker.after_adapter=kill@{load}",
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("phase", PHASES)
def test_r1_a_rollout_killed_in_any_phase(phase, seed, many, reference):
    reference.of_seed(seed)
    chance = random.Random(f"{phase}{seed}")
    victim = many.rollouts[0]
    victim.kill()
    failpoints = PHASES[phase].format(hit=chance.randint(1, 3), token=chance.randint(2, 20), load=chance.randint(1, 3))
    victim.start(failpoints=failpoints).wait_until_healthy()
    run = f"r1-{phase.replace(' ', '-')}-{seed}"
    trainer = many.start_trainer(run, failpoints=SLOW, **{"run.seed": 1000 + seed})
    if phase == "idle":
        wait_for(lambda: steps_done(many, run) >= 1, what="a step")
        victim.kill()
    else:
        wait_for(lambda: not victim.alive or trainer.poll() is not None, what="the worker dead")
    died = not victim.alive
    if died:
        victim.start()
    finish(many, run, trainer)
    reference.assert_equal(run, seed)
    print(f"{phase}: died {died}")
    assert died


def test_r2_without_any_rollout_the_run_waits_and_goes_on_by_itself(many, reference):
    reference.of_seed(0)
    run = "r2"
    trainer = many.start_trainer(run, failpoints=SLOW, **{"run.seed": 1000})
    wait_for(lambda: steps_done(many, run) >= 1, what="a step")
    for service in many.rollouts:
        service.kill()
    done = steps_done(many, run)
    time.sleep(5)
    assert trainer.poll() is None and steps_done(many, run) <= done + 1
    accepted = many.metric('dapd_trainer_tasks_total{role="rollout",outcome="accepted"}')
    many.rollouts[0].start().wait_until_healthy()
    start = time.monotonic()
    wait_for(lambda: many.metric('dapd_trainer_tasks_total{role="rollout",outcome="accepted"}') > accepted, what="an answer")
    print(f"the first answer came {time.monotonic() - start:.1f} s after the first worker was healthy")
    many.revive()
    finish(many, run, trainer)
    reference.assert_equal(run, 0)


@pytest.mark.parametrize("role", ["rollout", "teacher", "trainer"])
def test_a_killed_process_that_is_started_again_is_back_in_the_work(role, many, reference, holds):
    """It also measures how soon after the kill, for the figures of docs/robustness.md."""
    reference.of_seed(0)
    run = f"back-{role}"
    trained, sampled, _ = holds
    # The kill is in the second step, and a killed trainer comes back in the third: work is left, and a trainer that
    # gives it.
    trainer = many.start_trainer(run, failpoints=trained.at("train.before_micro_batch", 3), **{"run.seed": 1000})
    wait_for(lambda: steps_done(many, run) >= 1, what="a step")
    if role != "trainer":  # it notices the loss of a worker that it had
        wait_for(lambda: many.ready(role) == len(getattr(many, f"{role}s")), what="all workers ready")

    def work_done():
        """This counts the new process only, whose counters begin at 0."""
        if role == "trainer":
            return many.metric('dapd_trainer_tasks_total{role="rollout",outcome="accepted"}')
        return victim.metric(f"dapd_{role}_requests_total")

    start = time.monotonic()
    if role == "trainer":
        trainer.kill()
        trainer.wait()
        trainer = many.start_trainer(run, failpoints=sampled.at("train.before_micro_batch", 5), **{"run.seed": 1000})
        wait_for(lambda: many.log(run).count("] training; status on ") == 2, what="the second trainer ready")
        ready = time.monotonic() - start
    else:
        victim = getattr(many, f"{role}s")[0]
        victim.kill()
        victim.start().wait_until_healthy()
        ready = time.monotonic() - start
        wait_for(lambda: f"{role} worker {victim.address} lost" in many.log(run), what="the loss noticed")
        wait_for(lambda: many.ready(role) == len(getattr(many, f"{role}s")), what="the worker taken back")
    trained.release()
    wait_for(lambda: work_done() > 0, what="work by the new process")
    worked = time.monotonic() - start
    sampled.release()
    print(f"a killed {role}: ready again after {ready:.1f} s, at work after {worked:.1f} s")
    finish(many, run, trainer)
    reference.assert_equal(run, 0)


@pytest.fixture
def slow_answers(many):
    """Answers are so slow that the teachers have time to compute prefixes ahead of their requests on any machine."""
    for service in many.rollouts:
        service.kill()
        service.start(failpoints="worker.before_token=sleep:20").wait_until_healthy()
    yield
    for service in many.rollouts:
        service.kill()  # revived with its earlier settings


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("failpoint", ["worker.before_chunk", "worker.before_score", "worker.after_score", "worker.before_adapter", "worker.after_adapter"])
def test_r3_a_teacher_killed_in_any_phase(failpoint, seed, many, reference, request):
    reference.of_seed(seed)
    if failpoint == "worker.before_chunk":
        request.getfixturevalue("slow_answers")
    victim = many.teachers[0]
    victim.kill()
    hit = random.Random(f"{failpoint}{seed}").randint(1, 2)
    victim.start(failpoints=f"{failpoint}=kill@{hit}").wait_until_healthy()
    run = f"r3-{failpoint}-{seed}"
    trainer = many.start_trainer(run, failpoints=SLOW, **{"run.seed": 1000 + seed})
    wait_for(lambda: not victim.alive or trainer.poll() is not None, what="the teacher dead")
    died = not victim.alive
    if died:
        victim.start()
    finish(many, run, trainer)
    reference.assert_equal(run, seed)
    assert died


@pytest.mark.parametrize("role, hit", [("rollouts", 25), ("teachers", 3)])
def test_a_worker_whose_device_is_lost_ends_for_a_restart(role, hit, many, reference):
    """After this error a GPU never works again in the same process: it ends at once with code 75 instead of failing for
    ever, and the run continues."""
    reference.of_seed(0)
    victim = getattr(many, role)[0]
    victim.kill()
    victim.start(failpoints=f"device.compute=error@{hit}").wait_until_healthy()
    run = f"lost-device-{role}"
    trainer = many.start_trainer(run, failpoints=SLOW, **{"run.seed": 1000})
    wait_for(lambda: not victim.alive or trainer.poll() is not None, what="the worker's end")
    code = victim.process.poll()
    victim.start()
    finish(many, run, trainer)
    reference.assert_equal(run, 0)
    print(f"{role}: code {code}")
    assert code == 75


def test_a_rollout_without_memory_for_a_step_goes_on(many, reference):
    """The running requests go back to the trainer, which has them sampled again; the worker stays."""
    reference.of_seed(0)
    victim = many.rollouts[0]
    victim.kill()
    victim.start(failpoints="worker.before_token=error@10").wait_until_healthy()
    run = "no-memory-for-a-step"
    trainer = many.start_trainer(run, failpoints=SLOW, **{"run.seed": 1000})
    finish(many, run, trainer)
    reference.assert_equal(run, 0)
    assert victim.alive
    log = victim.log_path.read_text()
    assert "decode step failed: cannot write at failpoint worker.before_token" in log


@pytest.mark.parametrize("role", ["rollouts", "teachers"])
def test_r7_sigterm_hands_work_back_and_ends_in_the_grace_period(role, many, reference):
    reference.of_seed(0)
    run = f"r7-{role}"
    trainer = many.start_trainer(run, failpoints=SLOW, **{"run.seed": 1000})
    wait_for(lambda: steps_done(many, run) >= 1, what="a step")
    victim = getattr(many, role)[0]
    start = time.monotonic()
    code = victim.stop()
    took = time.monotonic() - start
    print(f"{role}: code {code} after {took:.1f} s")
    assert code == 0 and took < 30
    victim.start()
    finish(many, run, trainer)
    reference.assert_equal(run, 0)


@pytest.mark.parametrize("kind", ["ten times slower", "stopped for 8 s"])
def test_r11_one_slow_worker_does_not_hold_the_step(kind, many, reference):
    reference.of_seed(0)
    run = f"r11-{kind.replace(' ', '-')}"
    victim = many.rollouts[0]
    if kind == "ten times slower":
        victim.kill()
        victim.start(failpoints="worker.before_token=sleep:300").wait_until_healthy()
    trainer = many.start_trainer(run, failpoints=SLOW, **{"run.seed": 1000})
    wait_for(lambda: steps_done(many, run) >= 1, what="a step")
    if kind != "ten times slower":
        victim.suspend()
        time.sleep(8)
        victim.wake()
    wait_for(lambda: steps_done(many, run) >= STEPS, what="the last step")
    seconds = [line["seconds"]["rollout"] for line in many.workspace.metrics(run)]
    finish(many, run, trainer)
    print(f"{kind}: rollout seconds by step {[round(s, 2) for s in seconds]}")
    victim.kill()
    reference.assert_equal(run, 0)


def test_r12_stale_and_foreign_requests_are_refused_with_a_reason(many):
    """A client that names another adapter's version gets nothing from a worker that serves this one."""
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
    from google.protobuf import descriptor_pool, message_factory

    victim = many.rollouts[0]
    channel = grpc.insecure_channel(victim.address)
    pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
    request_class = message_factory.GetMessageClass(pool.FindMessageTypeByName("dapd.v1.GenerateRequest"))
    response_class = message_factory.GetMessageClass(pool.FindMessageTypeByName("dapd.v1.GenerateResponse"))
    generate = channel.stream_stream("/dapd.v1.RolloutService/Generate", request_serializer=request_class.SerializeToString,
                                     response_deserializer=response_class.FromString)
    request = request_class(request_id=1, prompt_ids=[1, 2, 3], sampling={"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 4},
                            policy_version=10**6, adapter_digest="0" * 64)
    (answer,) = generate(iter([request]), timeout=10)
    print(answer)
    assert answer.failed.code == grpc.StatusCode.FAILED_PRECONDITION.value[0]
    assert "the request is for the live adapter" in answer.failed.message or "no live adapter has been loaded" in answer.failed.message
    channel.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_r22_workers_join_and_leave_during_a_run(seed, workspace, many, reference):
    reference.of_seed(seed)
    run = f"r22-{seed}"
    joining = [Service(workspace, "rollout", f"late-{i}") for i in range(4)]
    everybody = [many.rollouts[0], *joining]
    trainer = many.start_trainer(run, failpoints=SLOW, rollouts=[s.address for s in everybody], **{"run.seed": 1000 + seed})
    try:
        wait_for(lambda: steps_done(many, run) >= 1, what="a step")
        for service in joining:
            service.start()
        joining[0].wait_until_healthy()
        start = time.monotonic()
        wait_for(lambda: trainer.poll() is not None or joining[0].metric("dapd_rollout_requests_total") > 0, what="work for the new worker")
        print(f"a new worker had work {time.monotonic() - start:.1f} s after it was healthy; trainer done: {trainer.poll() is not None}")
        for service in joining[1:]:
            service.stop()
        finish(many, run, trainer)
    finally:
        for service in joining:
            if service.alive:
                service.kill()
    reference.assert_equal(run, seed)


def test_r23_a_rolling_restart_of_everything(many, reference):
    reference.of_seed(0)
    run = "r23"
    trainer = many.start_trainer(run, failpoints=SLOW, **{"run.seed": 1000})
    wait_for(lambda: steps_done(many, run) >= 1, what="a step")
    for service in many.services:
        service.stop()
        service.start().wait_until_healthy()
    if trainer.poll() is None:
        trainer.send_signal(signal.SIGTERM)
        assert trainer.wait(timeout=60) in (0, 130)
    trainer = many.start_trainer(run, **{"run.seed": 1000})
    finish(many, run, trainer)
    seen = reference.assert_equal(run, 0)
    print(f"{seen.attempt} attempts, {len(seen.trained)} steps of {BATCH}")


def test_a_worker_that_never_was_there_is_named_and_the_run_ends(cluster):
    run = "nobody"
    code = cluster.train(run, rollouts=["127.0.0.1:1"], **{"trainer.peer_timeout_seconds": 2})
    assert code == 5
    assert "127.0.0.1:1" in cluster.log(run)
