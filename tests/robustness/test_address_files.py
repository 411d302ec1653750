"""Files that name workers: a run follows what becomes of them."""

import time

import pytest

from cluster import SEEDS, finish, steps_done
from workspace import wait_for


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
