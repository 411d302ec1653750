"""The history checker finds every kind of broken rule: each bug is planted into a sound history and must be named."""

import copy
import json

import pytest

import history

BATCH = 3


def accepted(step, sample, digest, ids=(1, 2)):
    return {"event": "accepted", "step": step, "sample": sample, "id": f"p{sample}", "policy_version": int(digest[1:]),
            "adapter_digest": digest, "rollout_ids": [step, sample, *ids], "finish_reason": "eos"}


def graded(step, sample, **grade):
    return {"event": "graded", "step": step, "sample": sample, **(grade or {"correct": True, "score": 1.0})}


def sound_history():
    """Provides two attempts: the first dies in step 3, after a checkpoint at 2; the second finishes step 4."""
    events = [{"event": "started", "attempt": 1, "step": 0, "adapter_digest": "d0"}]
    for step in (1, 2):
        events += [accepted(step, sample, f"d{step - 1}") for sample in range(BATCH)]
        events.append({"event": "trained", "step": step, "adapter_digest": f"d{step}", "samples": [0, 1, 2]})
    events.append({"event": "checkpointed", "step": 2, "adapter_digest": "d2"})
    events += [accepted(3, sample, "d2") for sample in range(BATCH)]
    events.append({"event": "trained", "step": 3, "adapter_digest": "d3", "samples": [0, 1, 2]})
    events += [accepted(4, 1, "d3"), graded(4, 1)]
    events.append({"event": "started", "attempt": 2, "step": 2, "adapter_digest": "d2"})
    events.append({"event": "trained", "step": 3, "adapter_digest": "d3", "samples": [0, 1, 2]})
    events += [accepted(4, 0, "d3"), accepted(4, 2, "d3"), graded(4, 2, ungraded="timeout")]
    events.append({"event": "trained", "step": 4, "adapter_digest": "d4", "samples": [0, 1, 2]})
    events.append({"event": "checkpointed", "step": 4, "adapter_digest": "d4"})
    events.append({"event": "finished", "step": 4, "adapter_digest": "d4"})
    return events


def with_a_lag(events):
    """Returns the same history as if every answer had been sampled one policy earlier."""
    for event in events:
        if event["event"] == "accepted":
            version = max(0, event["step"] - 2)
            event.update(policy_version=version, adapter_digest=f"d{version}")
    return events


def write(path, events):
    with open(path, "wb") as file:
        for event in events:
            body = json.dumps(event, separators=(",", ":")).encode()[:-1]
            file.write(body + b',"crc":"%08x"}\n' % history.crc32c(body))
    return path


def index(events, **wanted):
    return next(i for i, event in enumerate(events) if all(event.get(k) == v for k, v in wanted.items()))


def change(events, where, **values):
    events[where].update(values)


BUGS = {
    "a sample is trained twice": lambda e: change(e, index(e, event="trained", step=2), samples=[0, 1, 1]),
    "a sample is trained that was never answered": lambda e: change(e, index(e, event="trained", step=1), samples=[0, 1, 7]),
    "a step is trained twice": lambda e: e.insert(index(e, event="checkpointed"), copy.deepcopy(e[index(e, event="trained", step=2)])),
    "a step is left out": lambda e: [e.pop(index(e, event="trained", step=2)), e.pop(index(e, event="checkpointed", step=2))],
    "an answer is lost": lambda e: e.pop(index(e, event="accepted", step=4, sample=2)),
    "an answer is accepted twice": lambda e: e.insert(3, copy.deepcopy(e[index(e, event="accepted", step=1, sample=0)])),
    "an answer is stale by its version": lambda e: change(e, index(e, event="accepted", step=2, sample=1), policy_version=0),
    "an answer is stale by its adapter": lambda e: change(e, index(e, event="accepted", step=2, sample=1), adapter_digest="d0"),
    "a step that is done again leads elsewhere": lambda e: change(e, len(e) - 1 - index(e[::-1], event="trained", step=3), adapter_digest="x"),
    "an answer that is sampled again differs": lambda e: e.insert(index(e, event="started", attempt=2) + 1, accepted(3, 0, "d2", ids=(9,))),
    "an attempt goes on where no checkpoint is": lambda e: change(e, index(e, event="started", attempt=2), step=1, adapter_digest="d1"),
    "an attempt goes on with another adapter": lambda e: change(e, index(e, event="started", attempt=2), adapter_digest="x"),
    "attempts are not counted": lambda e: change(e, index(e, event="started", attempt=2), attempt=5),
    "a checkpoint holds another adapter": lambda e: change(e, index(e, event="checkpointed", step=4), adapter_digest="d3"),
    "the end is at another step": lambda e: change(e, len(e) - 1, step=3),
    "training goes on behind the end": lambda e: e.append({"event": "trained", "step": 5, "adapter_digest": "d5", "samples": []}),
    "an answer is graded twice": lambda e: e.insert(index(e, event="accepted", step=4, sample=0), graded(4, 1)),
    "an answer is graded that was never accepted": lambda e: e.insert(index(e, event="accepted", step=4, sample=0), graded(4, 0)),
    "a grade is neither a score nor a reason": lambda e: e[index(e, event="graded", step=4, sample=1)].pop("score"),
    "an event is unknown": lambda e: e.insert(4, {"event": "guessed", "step": 1}),
    "nothing was started": lambda e: e.pop(0),
}


def test_a_sound_history_breaks_no_rule(tmp_path):
    seen = history.check(write(tmp_path / "ledger.jsonl", sound_history()), BATCH, steps=4)
    assert seen.attempt == 2 and seen.resampled == 0
    assert seen.trained == {step: [0, 1, 2] for step in (1, 2, 3, 4)}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug, tmp_path):
    events = sound_history()
    BUGS[bug](events)
    with pytest.raises(history.Violation) as violation:
        history.check(write(tmp_path / "ledger.jsonl", events), BATCH, steps=4)
    print(f"{bug}: {violation.value}")


def test_a_lag_is_sound_only_where_it_is_asked_for(tmp_path):
    path = write(tmp_path / "ledger.jsonl", with_a_lag(sound_history()))
    assert history.check(path, BATCH, steps=4, lag=1).resampled == 0
    with pytest.raises(history.Violation, match="another policy version than 1"):
        history.check(path, BATCH)
    with pytest.raises(history.Violation, match="another policy version than 0"):
        history.check(write(path, sound_history()), BATCH, lag=1)


@pytest.mark.parametrize("version,digest", [(0, "d1"), (1, "d0"), (0, "d0"), (2, "d2")])
def test_with_a_lag_only_the_policy_before_the_last_may_sample(version, digest, tmp_path):
    events = with_a_lag(sound_history())
    change(events, index(events, event="accepted", step=3, sample=1), policy_version=version, adapter_digest=digest)
    with pytest.raises(history.Violation, match="stale"):
        history.check(write(tmp_path / "ledger.jsonl", events), BATCH, lag=1)


def test_steps_that_sample_nothing_have_no_answers(tmp_path):
    events = [event for event in sound_history() if event["event"] != "accepted" or event["step"] != 2]
    path = write(tmp_path / "ledger.jsonl", events)
    history.check(path, BATCH, steps=4, answers={1, 3, 4})
    with pytest.raises(history.Violation, match="without an accepted answer"):
        history.check(path, BATCH, steps=4)
    whole = write(tmp_path / "whole.jsonl", sound_history())
    with pytest.raises(history.Violation, match="nothing reads"):
        history.check(whole, BATCH, steps=4, answers={1, 3, 4})


def test_a_damaged_record_is_found(tmp_path):
    path = write(tmp_path / "ledger.jsonl", sound_history())
    path.write_bytes(path.read_bytes().replace(b'"sample":1', b'"sample":2', 1))
    with pytest.raises(history.Violation, match="checksum"):
        history.check(path, BATCH)
