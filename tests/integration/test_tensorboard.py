"""TensorBoard's own reader sees each step of a run that was killed and resumed once."""

import itertools
import os
import signal

import pytest
from tensorboard.backend.event_processing import event_accumulator, plugin_event_accumulator
from tensorboard.util.tensor_util import make_ndarray
from workspace import children, wait_for

SETTINGS = {"trainer.steps": 12, "trainer.schedule_steps": 12, "checkpoint.interval": 4}


def values(folder):
    """Returns step and value of each point of the loss in TensorBoard's order: from the reader of its pages
    (--load_fast=false), which takes only the second start of a session for a restart, and from the reader for
    programs."""
    pages = plugin_event_accumulator.EventAccumulator(str(folder), tensor_size_guidance={"scalars": 0})
    programs = event_accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0})
    pages.Reload()
    programs.Reload()
    shown = [(event.step, make_ndarray(event.tensor_proto).item()) for event in pages.Tensors("loss/total")]
    assert shown == [(event.step, event.value) for event in programs.Scalars("loss/total")]
    return shown


@pytest.mark.parametrize("kills", [[6], [3], [6, 9]], ids=lambda kills: "-".join(map(str, kills)))
def test_every_step_has_one_value(reference_run, kills):
    name = f"tensorboard-{'-'.join(map(str, kills))}"
    for step in kills:
        process = reference_run.start(name, "worker.before_token=sleep:5", **SETTINGS)
        wait_for(lambda: any(line["step"] == step for line in reference_run.metrics(name)), what=f"step {step}")
        # The trainer is killed by SIGKILL, too, because it would save its last step when its parent is gone.
        process.send_signal(signal.SIGSTOP)
        for trainer in children(process)["dapd-trainer"]:
            os.kill(trainer, signal.SIGKILL)
        process.kill()
        process.wait()
        wait_for(lambda: reference_run.dapd("runs", "list", reference_run.runs(name)).stdout.find("running") < 0, what="the trainer's end")
    reference_run.run(name, **SETTINGS)
    found = values(reference_run.runs(name))
    assert [step for step, _ in found] == list(range(1, 13)), found
    for (_, value), line in itertools.zip_longest(found, reference_run.metrics(name)):
        assert value == pytest.approx(line["loss"], rel=1e-6)
