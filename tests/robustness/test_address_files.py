"""Files that name workers: a run follows their changes. The last test is of a worker with two addresses."""

import time

import pytest

from cluster import SEEDS, finish, steps_done
from workspace import wait_for


class AddressFile:
    """A file that names workers, changed as users do: written beside it and renamed, or appended to."""

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


@pytest.mark.parametrize("seed", SEEDS)
def test_r22_files_of_addresses_change_under_a_run(seed, many, reference, tmp_path, holds):
    """The file comes late, is appended to, has a typo, omits a live worker, and is removed: the run follows every
    change but the mistakes."""
    reference.of_seed(seed)
    run = f"r22-file-{seed}"
    rollouts, teachers = AddressFile(tmp_path / "rollouts"), AddressFile(tmp_path / "teachers")
    first, second, third = many.rollouts
    answered = {service: service.metric("dapd_rollout_requests_total") for service in many.rollouts}
    # The run waits for the changes before its steps 2 and 5, and after its second evaluation.
    second_step, fifth_step, end = holds
    failpoints = (second_step.at("rollout.before_start", 2), fifth_step.at("step.after_metrics", 4), end.at("evaluation.after", 2))
    trainer = many.start_trainer(run, failpoints=";".join(failpoints), rollouts=[rollouts.address], teachers=[teachers.address],
                                 **{"run.seed": 1000 + seed})

    def has_work(service):
        return service.metric("dapd_rollout_requests_total") > answered[service]

    def goes_on():
        assert trainer.poll() is None, many.log(run)
        return True

    # A missing file is like a name that does not resolve yet: the run waits.
    wait_for(lambda: goes_on() and f"cannot open {rollouts.path}" in many.log(run), what="the warning")
    teachers.write("# teachers", "", *(service.address for service in many.teachers))
    rollouts.write(f"{first.address}  # the first")
    wait_for(lambda: goes_on() and steps_done(many, run) >= 1, what="a step")

    rollouts.append(second.address)
    start = time.monotonic()
    wait_for(lambda: goes_on() and many.ready("rollout") == 2, what="the second worker")
    second_step.release()
    wait_for(lambda: goes_on() and has_work(second), what="work for the worker that joined")
    joined = time.monotonic() - start

    rollouts.append("127.0.0.1:70O1")
    wait_for(lambda: goes_on() and f"{rollouts.path}:3: " in many.log(run), what="the typo's warning")
    assert many.ready("rollout") == 2

    # The first worker leaves the file although it lives, and so does a teacher.
    rollouts.write(second.address, third.address)
    teachers.write(many.teachers[0].address)
    wait_for(lambda: goes_on() and third.metric("dapd_rollout_policy_version") == 4, what="the third worker")
    wait_for(lambda: goes_on() and (many.ready("rollout"), many.ready("teacher")) == (2, 1), what="two that left")
    fifth_step.release()
    wait_for(lambda: goes_on() and has_work(third), what="work for the third")
    # Without the file its last valid content counts.
    warnings = many.log(run).count(f"cannot open {rollouts.path}")
    rollouts.path.unlink()
    wait_for(lambda: goes_on() and many.log(run).count(f"cannot open {rollouts.path}") > warnings, what="the lost file's warning")
    assert many.ready("rollout") == 2
    end.release()
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


def test_two_addresses_of_a_worker_are_one(cluster, lone_rollout, holds):
    """They are like the IPv4 and the IPv6 address of one name."""
    run, port = "two-addresses", lone_rollout.port
    everywhere = {"security.insecure": "true"}
    lone_rollout.start(**everywhere, **{"rollout.listen": f'"[::]:{port}"'}).wait_until_healthy()
    trainer = cluster.start_trainer(run, failpoints=holds[0].at("step.after_metrics", 1),
                                    rollouts=[f"127.0.0.1:{port}", f'"[::1]:{port}"'], **everywhere)
    wait_for(lambda: steps_done(cluster, run) == 1 or trainer.poll() is not None, what="a step")
    wait_for(lambda: " is not used: it is the worker at " in cluster.log(run), what="the second address found out")
    assert cluster.metric('dapd_trainer_workers{role="rollout"}') == 1
    holds[0].release()
    finish(cluster, run, trainer)
