"""Workers that die, hang, lag, vanish, come and go: the run goes on to the same result."""

import random
import signal
import subprocess
import time

import certificates
import grpc
import pytest
from fault_proxy import FaultProxy

from cluster import BATCH, SEEDS, STEPS, Cluster, Service
from workspace import wait_for

# Slow enough that a fault falls into the run, whatever the machine.
SLOW = "train.before_micro_batch=sleep:150"


@pytest.fixture(scope="session")
def trio(workspace):
    """Three rollouts and two teachers."""
    cluster = Cluster(workspace, rollouts=3, teachers=2).start()
    yield cluster
    cluster.stop()


@pytest.fixture
def many(trio):
    trio.revive()
    return trio


def steps_done(cluster, run):
    return len(cluster.workspace.metrics(run))


def finish(cluster, run, trainer, timeout=180):
    assert trainer.wait(timeout=timeout) == 0, cluster.log(run)


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


@pytest.fixture
def slow_answers(many):
    """Answers so slow that the teachers find time to compute ahead of their requests, whatever the machine."""
    for service in many.rollouts:
        service.kill()
        service.start(failpoints="worker.before_token=sleep:20").wait_until_healthy()
    yield
    for service in many.rollouts:
        service.kill()  # to be revived as it was


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
    """An error behind which a GPU never works again in the same process: code 75 at once, not errors for ever, and the run goes on."""
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
    """What ran goes back to the trainer, which has it sampled again; the worker stays."""
    reference.of_seed(0)
    victim = many.rollouts[0]
    victim.kill()
    victim.start(failpoints="worker.before_token=error@10").wait_until_healthy()
    run = "no-memory-for-a-step"
    trainer = many.start_trainer(run, failpoints=SLOW, **{"run.seed": 1000})
    finish(many, run, trainer)
    reference.assert_equal(run, 0)
    assert victim.alive
    log = (many.workspace.folder / f"{victim.name}.log").read_text()
    assert "decode step failed: failpoint worker.before_token" in log


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


def behind_proxies(cluster, proxies):
    addresses = [proxy.address for proxy in proxies]
    count = len(cluster.rollouts)
    return {"rollouts": addresses[:count], "teachers": addresses[count:]}


def lost(cluster, role):
    return cluster.metric('dapd_trainer_tasks_total{role="%s",outcome="lost"}' % role)


def test_r8_a_blackholed_rollout_is_noticed_within_6_s(cluster, proxies, reference):
    reference.of_seed(0)
    run = "r8"
    trainer = cluster.start_trainer(run, failpoints=SLOW, **behind_proxies(cluster, proxies), **{"run.seed": 1000})
    wait_for(lambda: steps_done(cluster, run) >= 1, what="a step")
    proxies[0].blackhole = True
    start = time.monotonic()
    wait_for(lambda: trainer.poll() is not None or f"rollout worker {proxies[0].address} lost" in cluster.log(run), seconds=30, what="the loss noticed")
    noticed = time.monotonic() - start
    proxies[0].blackhole = False
    finish(cluster, run, trainer)
    print(f"noticed after {noticed:.1f} s")
    assert noticed < 6.5
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
    assert teacher.connections <= 40  # no storm
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
    """A client with another adapter's version gets nothing from a worker that serves this one."""
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
    assert "the request is for the live adapter" in answer.failed.message or "no live adapter was loaded" in answer.failed.message
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


class AddressFile:
    """A file that names workers, changed as users do: written anew beside it and renamed, or appended to."""

    def __init__(self, path):
        self.path = path
        self.address = f"file://{path}"

    def write(self, *lines):
        aside = self.path.with_suffix(".part")
        aside.write_text("".join(f"{line}\n" for line in lines))
        aside.rename(self.path)

    def append(self, line):
        with open(self.path, "a") as file:
            file.write(f"{line}\n")


def workers_of(cluster, role):
    return cluster.metric('dapd_trainer_workers{role="%s"}' % role)


@pytest.mark.parametrize("seed", SEEDS)
def test_r22_files_of_addresses_change_under_a_run(seed, many, reference, tmp_path):
    """Late, appended to, with a typo, without a worker that is alive, gone: every change but the mistakes is followed."""
    reference.of_seed(seed)
    run = f"r22-file-{seed}"
    rollouts, teachers = AddressFile(tmp_path / "rollouts"), AddressFile(tmp_path / "teachers")
    first, second, third = many.rollouts
    answered = {service: service.metric("dapd_rollout_requests_total") for service in many.rollouts}
    # Every change is noticed within two seconds, and should be within the run.
    trainer = many.start_trainer(run, failpoints="train.before_micro_batch=sleep:2500", rollouts=[rollouts.address], teachers=[teachers.address],
                                 **{"run.seed": 1000 + seed})

    def done():
        return trainer.poll() is not None

    def has_work(service):
        return done() or service.metric("dapd_rollout_requests_total") > answered[service]

    # No file yet is as a name that does not resolve yet: the run waits.
    wait_for(lambda: done() or f"cannot open {rollouts.path}" in many.log(run), what="the warning")
    assert not done(), many.log(run)
    teachers.write("# teachers", "", *(service.address for service in many.teachers))
    rollouts.write(f"{first.address}  # the first")
    wait_for(lambda: done() or steps_done(many, run) >= 1, what="a step")

    rollouts.append(second.address)
    start = time.monotonic()
    wait_for(lambda: has_work(second), what="work for the worker that joined")
    joined = time.monotonic() - start

    rollouts.append("127.0.0.1:70O1")
    wait_for(lambda: done() or f"{rollouts.path}:3: " in many.log(run), what="the typo's warning")
    assert done() or workers_of(many, "rollout") == 2

    # The first leaves though it lives; so does a teacher.
    rollouts.write(second.address, third.address)
    teachers.write(many.teachers[0].address)
    wait_for(lambda: has_work(third), what="work for the third")
    wait_for(lambda: done() or (workers_of(many, "rollout"), workers_of(many, "teacher")) == (2, 1), what="two that left")
    rollouts.path.unlink()
    finish(many, run, trainer)
    print(f"work {joined:.1f} s after the line was appended")
    assert many.log(run).count(f"{rollouts.path}:3: ") == 1, "one mistake, one warning"
    assert first.alive and many.teachers[1].alive
    reference.assert_equal(run, seed)


def test_a_file_that_never_comes_is_named_and_the_run_ends(cluster, tmp_path):
    run = "no-file"
    code = cluster.train(run, rollouts=[f"file://{tmp_path}/nobody"], **{"trainer.peer_timeout_seconds": 2})
    assert code == 5
    assert f"cannot open {tmp_path}/nobody: No such file" in cluster.log(run)


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


def fill(mount):
    """Takes the last byte of a disk; what it returns gives it back."""
    ballast = mount / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        try:
            while file.write(b"x" * 4096):
                pass
        except OSError:
            pass
    return ballast.unlink


def make_read_only(mount):
    # A file system with open files cannot be made read-only; new files and appends by name cannot be had from it then.
    checkpoints = next(mount.glob("*/checkpoints"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", checkpoints], check=True)
    return lambda: subprocess.run(["umount", checkpoints], check=True)


@pytest.mark.parametrize("refuse", [fill, make_read_only], ids=["full", "read-only"])
def test_a_disk_that_refuses_pauses_training_until_it_takes_the_write(refuse, cluster, reference, tmp_path):
    """A small tmpfs that another file fills and leaves; a read-only one over the checkpoints."""
    reference.of_seed(0)
    mount = tmp_path / "disk"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", mount], capture_output=True).returncode != 0:
        pytest.skip("ARefusingDiskNeedsToMountATmpfs")
    try:
        run = f"disk-{refuse.__name__}"
        trainer = cluster.start_trainer(run, failpoints=SLOW, **{"run.seed": 1000, "run.output_dir": mount, "checkpoint.interval": 3})
        metrics = mount / run / "metrics.jsonl"
        wait_for(lambda: metrics.exists() and metrics.read_bytes().count(b"\n") >= 1, what="a step")
        mend = refuse(mount)
        wait_for(lambda: "training pauses" in cluster.log(run), what="the pause")
        assert cluster.metric("dapd_trainer_paused_for_disk") == 1
        assert trainer.poll() is None
        mend()
        finish(cluster, run, trainer)
        assert "training goes on" in cluster.log(run)
        (cluster.workspace.folder / "runs" / run).symlink_to(mount / run)
        reference.assert_equal(run, 0)
    finally:
        subprocess.run(["umount", "-R", "-l", mount], capture_output=True)


def test_a_failing_sync_keeps_the_checkpoint_before_it(cluster, reference):
    """fsync fails while the second checkpoint is written; with the policy `fail` the run ends, and goes on from the first."""
    reference.of_seed(0)
    run = "sync-fails"
    # Checkpoints at 2 and 4: the files of the first are synced well, then every sync fails.
    code = cluster.train(run, failpoints="file.sync=error@20", **{
        "run.seed": 1000, "checkpoint.on_write_error": "fail", "checkpoint.keep": 2})
    assert code != 0, cluster.log(run)
    assert "No space left" in cluster.log(run)
    checkpoints = sorted(path.name for path in (cluster.workspace.runs(run) / "checkpoints").iterdir())
    print("left behind:", checkpoints)
    assert "step-000002" in checkpoints
    assert cluster.train(run, **{"run.seed": 1000}) == 0, cluster.log(run)
    reference.assert_equal(run, 0)


@pytest.mark.parametrize("policy,code", [("continue", 0), ("fail", 1)])
def test_a_disk_that_refuses_once_ends_or_does_not_end_the_run_as_configured(policy, code, cluster, reference):
    reference.of_seed(0)
    run = f"disk-{policy}"
    trained = cluster.train(run, failpoints="append.before_write=error:2", **{"run.seed": 1000, "checkpoint.on_write_error": policy})
    assert (trained == 0) == (code == 0), cluster.log(run)
    if code == 0:
        assert cluster.workspace.adapter_digest(run) == reference.of_seed(0)[0]
        assert "training goes on without" in cluster.log(run)
    else:
        assert "No space left" in cluster.log(run)
