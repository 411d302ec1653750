"""A grader of the user's own: a run is reproducible although its grader is random, and asks about no answer twice."""

import collections
import json
import signal
import sys
import time

import pytest
from cluster import BATCH, STEPS

import history
from test_answers import samples
from test_ranks import finish, start_ranks
from workspace import wait_for

# Notes each question and grades by chance; with --fair, by the answer alone. Both give feedback.
GRADER = """
import hashlib, json, random, sys
notes, fair = open(sys.argv[1], "a"), "--fair" in sys.argv
for line in sys.stdin:
    q = json.loads(line)
    score = random.random()
    if fair:
        score = hashlib.sha256((q["problem_id"] + q["answer"]).encode()).digest()[0] / 255
    notes.write(json.dumps([q["problem_id"], q["answer"]]) + "\\n")
    notes.flush()
    print(json.dumps({"id": q["id"], "score": score, "feedback": f"{score:.3f}"}), flush=True)
"""
GROUPS = {"objective.preset": "sdpo", "rollout.group_size": 2, "objective.sdpo.feedback": "always"}
KINDS = {"groups": GROUPS, "verified": {"rollout.source": "verified"}}


class Run:
    def __init__(self, cluster, name, kind, *flags):
        self.cluster, self.name = cluster, name
        self.notes = cluster.workspace.folder / f"{name}.notes"
        grader = cluster.workspace.folder / "grader.py"
        grader.write_text(GRADER)
        self.settings = {**KINDS[kind], "run.seed": 7, "grader.workers": 2, "grader.max_feedback_bytes": 100,
                         "grader.command": json.dumps([sys.executable, str(grader), str(self.notes), *flags])}

    def train(self, **more):
        return self.cluster.train(self.name, **more, **self.settings)

    def events(self):
        return history.read(self.cluster.workspace.runs(self.name) / "ledger.jsonl")

    def check(self):
        return history.check(self.cluster.workspace.runs(self.name) / "ledger.jsonl", BATCH, STEPS)

    def digest(self):
        return self.events()[-1]["adapter_digest"]

    def asked(self):
        return len(self.notes.read_text().splitlines())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name, hit", [("step.after_ledger", 1), ("optimizer.before_step", 2)])
def test_a_random_grader_is_asked_about_no_answer_twice(name, hit, kind, cluster):
    run = Run(cluster, f"random-grader-{kind}-{name}", kind)
    assert run.train(failpoints=f"{name}=kill@{hit}") == -signal.SIGKILL, cluster.log(run.name)
    assert run.train() == 0, cluster.log(run.name)
    # Steps that were done again led to the same adapter, and no answer has two grades.
    seen = run.check()
    graded = [event for event in run.events() if event["event"] in ("graded", "held_out_graded")]
    print(f"{kind}: {seen.attempt} attempts, {len(graded)} grades, {run.asked()} questions, adapter {run.digest()[:12]}")
    assert seen.attempt == 2 and len(graded) == run.asked() == len(seen.graded) > 0
    scores = collections.Counter(event["score"] for event in graded)
    assert len(scores) == len(graded), "a random score occurred twice"


@pytest.mark.parametrize("kind", KINDS)
def test_a_kill_around_a_grade_changes_nothing(kind, cluster):
    fair = Run(cluster, f"fair-grader-{kind}", kind, "--fair")
    assert fair.train() == 0, cluster.log(fair.name)
    killed = Run(cluster, f"fair-grader-{kind}-killed", kind, "--fair")
    for failpoint in ("ledger.before_grade", "ledger.after_grade"):
        assert killed.train(failpoints=f"{failpoint}=kill@3") == -signal.SIGKILL, cluster.log(killed.name)
    assert killed.train() == 0, cluster.log(killed.name)
    killed.check()
    assert killed.digest() == fair.digest()
    # Another grader's grades lead elsewhere.
    other = Run(cluster, f"other-grader-{kind}", kind)
    assert other.train() == 0, cluster.log(other.name)
    assert other.digest() != fair.digest()


@pytest.mark.parametrize("kind", KINDS)
def test_two_ranks_grade_as_one(kind, cluster):
    one = Run(cluster, f"one-rank-{kind}", kind, "--fair")
    assert one.train() == 0, cluster.log(one.name)
    two = Run(cluster, f"two-ranks-{kind}", kind, "--fair")
    finish(cluster, two.name, start_ranks(cluster, two.name, 2, **two.settings))
    two.check()
    graded = [event for event in two.events() if event["event"] in ("graded", "held_out_graded")]
    assert two.asked() == len(graded)
    # After the first step the policies differ by rounding, and so may an answer.
    assert samples(cluster, two.name)[0] == samples(cluster, one.name)[0]


def test_a_run_without_its_grader_is_refused(cluster):
    run = Run(cluster, "grader-left-out", "groups")
    assert run.train(failpoints="step.after_ledger=kill@2") == -signal.SIGKILL
    run.settings.pop("grader.command")
    assert run.train() == 3, cluster.log(run.name)
    assert "grader" in cluster.log(run.name)


HANGING = "import sys, time\nfor line in sys.stdin:\n    open(sys.argv[1], 'a').write('asked\\n')\n    time.sleep(600)\n"


def test_a_grader_that_hangs_holds_up_no_stop(cluster):
    """The same run then goes on with a grader that answers, and its answers are not sampled again."""
    run = Run(cluster, "hanging-grader", "groups", "--fair")
    command = run.settings.pop("grader.command")
    script = cluster.workspace.folder / "hanging.py"
    script.write_text(HANGING)
    run.settings["grader.command"] = json.dumps([sys.executable, str(script), str(run.notes)])
    trainer = cluster.start_trainer(run.name, **run.settings)
    wait_for(lambda: run.notes.exists(), what="a question")
    start = time.monotonic()
    trainer.send_signal(signal.SIGTERM)
    assert trainer.wait(timeout=60) == 130, cluster.log(run.name)
    print(f"stopped in {time.monotonic() - start:.1f} s")
    run.notes.unlink()
    run.settings["grader.command"] = command
    assert run.train() == 0, cluster.log(run.name)
    assert run.check().resampled == 0


def test_a_grader_that_never_grades_is_counted_or_ends_the_run(cluster):
    never = [sys.executable, "-c", "raise SystemExit('no grades today')"]
    run = Run(cluster, "no-grader", "verified")
    run.settings |= {"grader.command": json.dumps(never), "grader.workers": 16, "trainer.steps": 1}
    assert run.train() == 0, cluster.log(run.name)
    graded = [event for event in run.events() if event["event"] == "graded"]
    assert len(graded) == 5 * BATCH and all(event["ungraded"] == "ended" for event in graded)
    assert "the grader says: no grades today" in cluster.log(run.name)
    assert cluster.log(run.name).count("could not be graded (ended)") < 10
    run.name, run.settings["grader.on_error"] = "no-grader-fails", "fail"
    assert run.train() == 5, cluster.log(run.name)
    assert "grader.on_error" in cluster.log(run.name)
