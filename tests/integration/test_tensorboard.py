"""TensorBoard's own reader sees each step of a run that was killed and resumed once."""

import itertools

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from workspace import wait_for

SETTINGS = {"trainer.steps": 12, "trainer.schedule_steps": 12, "checkpoint.interval": 4}


def values(folder):
    """Step and value of each point of the loss, in the order in which TensorBoard has them."""
    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    reader.Reload()
    return [(event.step, event.value) for event in reader.Scalars("loss/total")]


@pytest.mark.parametrize("kills", [[6], [3], [6, 11]], ids=lambda kills: "-".join(map(str, kills)))
def test_every_step_has_one_value(reference_run, kills):
    name = f"tensorboard-{'-'.join(map(str, kills))}"
    for step in kills:
        process = reference_run.start(name, "worker.before_token=sleep:5", **SETTINGS)
        wait_for(lambda: any(line["step"] == step for line in reference_run.metrics(name)), what=f"step {step}")
        process.kill()
        process.wait()
        # The trainer, too, before the next attempt: its lock says that it is there.
        wait_for(lambda: reference_run.dapd("runs", "list", reference_run.runs(name)).stdout.find("running") < 0, what="the trainer's end")
    reference_run.run(name, **SETTINGS)
    found = values(reference_run.runs(name))
    assert [step for step, _ in found] == list(range(1, 13)), found
    for (_, value), line in itertools.zip_longest(found, reference_run.metrics(name)):
        assert value == pytest.approx(line["loss"], rel=1e-6)
