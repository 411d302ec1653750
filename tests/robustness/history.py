"""Checks a run's ledger against a model of what a run may do.

    python tests/robustness/history.py runs/NAME/ledger.jsonl [--batch-size N] [--lag 1]

It proves for the steps that count (an attempt that continues after step S voids what earlier attempts did after S):
  * every sample of every step is trained exactly once (or was empty), on an answer that was accepted for it (a sample may have
    further answers, its attempts from 1 on);
  * the adapter that was live sampled each accepted answer, by version and digest; or with a lag (rollout.max_staleness) the adapter
    of exactly so many steps before, but not before the first: never staler, never fresher;
  * a grader of the user's own grades each accepted answer at most once;
  * steps follow each other without gaps; an attempt continues only from a checkpoint or the start;
  * a step that is done again leads to the same adapter and the same answers, bit for bit.
"""

import argparse
import json
import pathlib
import sys

_TABLE = []
for i in range(256):
    for _ in range(8):
        i = (i >> 1) ^ (0x82F63B78 if i & 1 else 0)
    _TABLE.append(i)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


class Violation(AssertionError):
    pass


def read(path):
    """Returns the events of a ledger; the checksums are computed again here, independently."""
    events = []
    for number, line in enumerate(pathlib.Path(path).read_bytes().split(b"\n"), 1):
        if not line:
            continue
        body, seal = line[:-18], line[-18:]
        if seal != b',"crc":"%08x"}' % crc32c(body):
            raise Violation(f"{path}:{number}: the checksum differs: {line[:80]!r}")
        events.append(json.loads(line))
    return events


class History:
    """The model: what holds after the last event."""

    def __init__(self, batch_size=None, lag=0, answers=True):
        self.batch_size = batch_size
        # False if nothing reads them (objective.preset sft), or the steps that have answers (gkd)
        self.answered_steps = answers
        self.lag = lag
        self.attempt = 0
        self.step = 0
        self.digests = {}  # step -> adapter, for every step ever done
        self.answers = {}  # (step, (sample, attempt)) -> answer, for every step ever done
        self.accepted = {}  # (sample, attempt) -> answer, in the open step
        self.graded = {}  # (step, (sample, attempt)) -> the answer that was graded
        self.trained = {}  # step -> samples, for the steps that count
        self.checkpoints = {0}
        self.finished = False
        self.sampled = self.resampled = 0  # all accepted answers; those of them that had been accepted before

    def apply(self, event):
        handler = getattr(self, "on_" + event["event"], None)
        if handler is None:
            raise Violation(f"unknown event {event}")
        if self.attempt == 0 and event["event"] != "started":
            raise Violation(f"the first event is not 'started': {event}")
        handler(event)

    def expect(self, condition, event, why):
        if not condition:
            raise Violation(f"{why}: {event} (attempt {self.attempt}, behind step {self.step})")

    def needs_answers(self, step):
        return self.answered_steps if isinstance(self.answered_steps, bool) else step in self.answered_steps

    def on_started(self, event):
        self.expect(event["attempt"] == self.attempt + 1, event, "attempts are not counted one by one")
        step = event["step"]
        # A kill may come between the renaming of a checkpoint and its event.
        self.expect(step in self.checkpoints or step == self.step, event, "goes on where no checkpoint is")
        self.expect(self.digests.setdefault(step, event["adapter_digest"]) == event["adapter_digest"], event,
                    "goes on with another adapter than this step had led to")
        self.attempt += 1
        open_step = self.step + 1
        self.step = step
        self.checkpoints = {s for s in self.checkpoints if s <= step} | {step}
        self.trained = {s: samples for s, samples in self.trained.items() if s <= step}
        # Answers of the step that is open again count as accepted, because they are recalled.
        self.accepted = {place: a for (s, place), a in self.answers.items() if s == step + 1 and s <= open_step}
        self.finished = False

    def on_accepted(self, event):
        step, place = event["step"], (event["sample"], event.get("attempt", 0))
        self.expect(self.needs_answers(step), event, "an answer that nothing reads")
        self.expect(step == self.step + 1, event, "an answer for a step that is not open")
        sampler = max(0, self.step - self.lag)
        self.expect(event["policy_version"] == sampler, event, f"sampled by another policy version than {sampler}: stale")
        self.expect(event["adapter_digest"] == self.digests[sampler], event, "sampled under another adapter: stale")
        answer = (event["id"], event["adapter_digest"], event["rollout_ids"], event["finish_reason"])
        known = self.answers.setdefault((step, place), answer)
        self.expect(known == answer, event, "the same attempt at a sample has another answer now")
        self.expect(self.attempt > 1 or place not in self.accepted, event, "accepted twice")
        self.sampled += 1
        self.resampled += place in self.accepted
        self.accepted[place] = answer

    def on_graded(self, event):
        step, place = event["step"], (event["sample"], event.get("attempt", 0))
        self.expect(step == self.step + 1, event, "a grade for a step that is not open")
        self.expect(place in self.accepted, event, "a grade of an answer that was not accepted")
        self.expect((step, place) not in self.graded, event, "an answer is graded twice")
        self.expect(("ungraded" in event) != ("score" in event), event, "neither a score nor a reason")
        self.graded[step, place] = self.accepted[place]

    def on_held_out_graded(self, event):
        self.expect(event["step"] == self.step, event, "a held-out grade of another policy than the live one")
        key = (event["step"], event["sample"], event["answer"])
        self.expect(key not in self.graded, event, "a held-out answer is graded twice")
        self.graded[key] = event

    def on_trained(self, event):
        step, samples = event["step"], event.get("samples", [])
        self.expect(not self.finished, event, "trained behind the end")
        self.expect(step == self.step + 1, event, "steps do not follow each other")
        self.expect(len(set(samples)) == len(samples), event, "a sample is trained twice in one step")
        answered = {sample for sample, attempt in self.accepted if attempt == 0}
        if self.needs_answers(step):
            self.expect(set(samples) <= answered, event, "a sample is trained without an accepted answer")
        if self.batch_size is not None:
            given = answered if self.needs_answers(step) else samples
            self.expect(len(given) == self.batch_size, event, f"{len(given)} answers, not {self.batch_size}")
        digest = event["adapter_digest"]
        self.expect(self.digests.setdefault(step, digest) == digest, event, "done again, the step led to another adapter")
        self.step = step
        self.trained[step] = samples
        self.accepted = {place: a for (s, place), a in self.answers.items() if s == step + 1}

    def on_checkpointed(self, event):
        self.expect(event["step"] == self.step, event, "a checkpoint of another step than the last")
        self.expect(event["adapter_digest"] == self.digests[self.step], event, "a checkpoint of another adapter")
        self.checkpoints.add(self.step)

    def on_finished(self, event):
        self.expect(event["step"] == self.step, event, "finished at another step than the last")
        self.finished = True


def check(path, batch_size=None, steps=None, lag=0, answers=True):
    """Returns the History after the last event; Violation names the first event that breaks a rule."""
    history = History(batch_size, lag, answers)
    for event in read(path):
        history.apply(event)
    if steps is not None:
        if not history.finished or sorted(history.trained) != list(range(1, steps + 1)):
            raise Violation(f"{path}: trained {sorted(history.trained)}, finished {history.finished}, expected {steps} steps")
    return history


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ledger")
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--lag", type=int, default=0)
    parser.add_argument("--without-answers", action="store_true", help="of an objective that reads no rollouts")
    arguments = parser.parse_args()
    try:
        history = check(arguments.ledger, arguments.batch_size, lag=arguments.lag, answers=not arguments.without_answers)
    except Violation as violation:
        sys.exit(f"violated: {violation}")
    print(f"{len(history.trained)} steps, {sum(map(len, history.trained.values()))} samples, {history.attempt} attempts, "
          f"{history.sampled} answers accepted, {history.resampled} of them again: every sample trained exactly once")


if __name__ == "__main__":
    main()
