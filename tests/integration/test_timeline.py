"""timeline.json, the file for Perfetto, agrees with what the steps measured themselves, and recording it changes
nothing."""

import collections
import json
import signal

import pytest

from workspace import wait_for

STEPS = 3
# Names in the timeline and in metrics.jsonl.
PHASES = {"rollout": "rollout", "scoring": "score", "training": "train", "optimizing": "optimizer", "publishing": "publish"}
# Allowed difference between a phase's slices and its seconds: the time between two readings of the clock on a busy
# machine.
TOLERANCE_SECONDS, TOLERANCE_SHARE = 0.05, 0.05


class Timeline:
    def __init__(self, path):
        self.trace = json.loads(path.read_text())
        self.slices = [event for event in self.trace["traceEvents"] if event["ph"] == "X"]
        named = {(event["pid"], event["tid"], event["name"]): event["args"] for event in self.trace["traceEvents"] if event["ph"] == "M"}
        self.processes = {pid: args["name"] for (pid, _, name), args in named.items() if name == "process_name"}
        self.tracks = {(pid, tid): args["name"] for (pid, tid, name), args in named.items() if name == "thread_name"}
        self.clock_error = float(self.trace["otherData"]["clock_error_ms"]) * 1e-3

    def of(self, process, track=""):
        """Returns the slices of the tracks whose process and name begin like this, sorted by start."""
        found = [s for s in self.slices if self.processes[s["pid"]].startswith(process) and self.tracks[s["pid"], s["tid"]].startswith(track)]
        return sorted(found, key=lambda s: (s["ts"], -s["dur"]))


def seconds(slices):
    return sum(s["dur"] for s in slices) * 1e-6


def end(slice_):
    return slice_["ts"] + slice_["dur"]


def check_format(timeline):
    """Checks the rules of the Trace Event Format for the events used, and that everything shown has a name."""
    assert timeline.trace.keys() == {"displayTimeUnit", "otherData", "traceEvents"} and timeline.trace["displayTimeUnit"] == "ms"
    for event in timeline.trace["traceEvents"]:
        assert event["ph"] in "XM" and isinstance(event["name"], str)
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int) and isinstance(event["args"], dict)
        if event["ph"] == "X":
            assert isinstance(event["ts"], int) and isinstance(event["dur"], int) and event["dur"] >= 0
            assert (event["pid"], event["tid"]) in timeline.tracks and event["pid"] in timeline.processes
    assert timeline.trace["otherData"]["slices_left_out"] == "0"


def check_tracks(timeline):
    """Checks that slices of a track follow each other. Only phases may lie within another slice, and then wholly."""
    for (pid, tid), track in timeline.tracks.items():
        around = []
        for slice_ in timeline.of(timeline.processes[pid], track):
            if (slice_["pid"], slice_["tid"]) != (pid, tid):
                continue
            while around and end(around[-1]) <= slice_["ts"]:
                around.pop()
            if around:
                assert track == "phases" and end(slice_) <= end(around[-1]), (track, around[-1], slice_)
            around.append(slice_)


@pytest.fixture(scope="module", params=[0, 1], ids=["synchronous", "lagging"])
def recorded(request, workspace):
    """Provides a run of which the first steps are recorded, and its timeline."""
    name = f"timeline-{request.param}"
    settings = {"rollout.max_staleness": request.param, "run.rollout_workers": 2, "run.teacher_workers": 2, "teacher.chunk_tokens": 8}
    workspace.run(name, **settings, **{"trainer.timeline_steps": STEPS})
    workspace.run(f"{name}-without", **settings)
    return workspace, name, Timeline(workspace.runs(name) / "timeline.json")


def test_the_file_is_what_the_format_demands(recorded):
    check_format(recorded[2])
    check_tracks(recorded[2])


def test_it_changes_no_result_and_is_not_there_unless_asked_for(recorded):
    workspace, name, _ = recorded
    assert workspace.adapter_digest(name) == workspace.adapter_digest(f"{name}-without")
    assert not (workspace.runs(f"{name}-without") / "timeline.json").exists()


def test_phases_are_as_long_as_the_steps_say(recorded):
    workspace, name, timeline = recorded
    phases = timeline.of("trainer", "phases")
    for row in workspace.metrics(name)[:STEPS]:
        of_step = [s for s in phases if s["args"]["step"] == row["step"]]
        measured = {phase: seconds([s for s in of_step if s["name"] == phase]) for phase in PHASES}
        (rollout,) = [s for s in of_step if s["name"] == "rollout"]
        # Training while answers are sampled lies within the rollout and is not part of it.
        measured["rollout"] -= seconds([s for s in of_step if s["name"] == "training" and end(s) <= end(rollout)])
        for phase, key in PHASES.items():
            expected = row["seconds"][key]
            print(f"step {row['step']} {phase}: {measured[phase]:.4f} s in the timeline, {expected:.4f} s measured")
            assert abs(measured[phase] - expected) <= TOLERANCE_SECONDS + TOLERANCE_SHARE * expected, (row["step"], phase)
    steps = timeline.of("trainer", "steps")
    assert [s["args"]["step"] for s in steps] == [1, 2, 3]


def test_every_answer_has_its_slices(recorded):
    workspace, name, timeline = recorded
    answers = collections.defaultdict(list)
    for slice_ in timeline.of("rollout", "slot"):
        answers[slice_["name"], slice_["args"]["step"]].append(slice_)
    for row in workspace.metrics(name)[:STEPS]:
        for part in ("prefill", "sampling"):
            slices = answers[part, row["step"]]
            assert len({(s["args"]["example"], s["args"]["sample"]) for s in slices}) == len(slices) == 6, (part, row["step"])
        assert sum(s["args"]["tokens"] for s in answers["sampling", row["step"]]) == row["generated_tokens"]
        # The trainer cannot have had an answer before it was sampled.
        (rollout,) = [s for s in timeline.of("trainer", "phases") if s["name"] == "rollout" and s["args"]["step"] == row["step"]]
        assert max(map(end, answers["sampling", row["step"]])) <= end(rollout) + 1e6 * timeline.clock_error + 1
    assert {timeline.tracks[s["pid"], s["tid"]] for s in timeline.of("rollout")} <= {f"slot {i}" for i in range(4)}
    assert len({s["pid"] for s in timeline.of("rollout")}) == 2


def test_teachers_did_what_they_say_it_cost(recorded):
    workspace, name, timeline = recorded
    rows = workspace.metrics(name)[:STEPS]
    teachers = timeline.of("teacher")
    scores = [s for s in teachers if s["name"] == "score"]
    payloads = [s for s in teachers if s["name"] == "payload"]
    # If a busy machine delays a teacher for too long, the request is sent to another teacher. Both may answer, and the
    # second answer is not used.
    sent = {s["args"]["task"]: s["args"]["bytes"] for s in payloads}
    print(f"teachers: {len(scores)} scores of {len(sent)} requests")
    assert len(scores) == len(payloads) and {s["args"]["task"] for s in scores} == set(sent)
    # With a lag there are scores of the next step, too.
    exact = name.endswith("0")
    bytes_sent = sum(sent.values())
    bytes_taken = sum(row["payload_bytes"] for row in rows)
    assert bytes_sent == bytes_taken if exact else bytes_sent >= bytes_taken
    # References are computed ahead as well, but not as a prefix, so only the sum agrees.
    told = sum(row["teacher_seconds"] + row["teacher_ahead_seconds"] for row in rows)
    shown = seconds(scores) + seconds([s for s in teachers if s["name"] == "prefix"])
    print(f"teachers: {shown:.4f} s in the timeline, {told:.4f} s measured")
    assert shown >= told * (1 - TOLERANCE_SHARE) - TOLERANCE_SECONDS


def test_what_the_trainer_computes_pushes_and_waits_for(recorded):
    _, _, timeline = recorded
    compute = timeline.of("trainer", "compute")
    names = {s["name"] for s in compute}
    assert {"forward", "losses", "backward", "optimizer", "push"} <= names
    assert names & {"wait for answers", "wait for scores"}
    assert sum(s["name"] == "optimizer" for s in compute) == STEPS
    pushes = timeline.of("trainer", "push to")
    workers = {name.split()[1] for name in timeline.processes.values() if not name.startswith("trainer")}
    assert {timeline.tracks[s["pid"], s["tid"]].split()[-1] for s in pushes} <= workers
    assert len({s["tid"] for s in pushes if s["name"] == "push"}) >= 2
    # Calls on one machine take less than this, and all processes have the same clock.
    assert timeline.clock_error < 0.5


def test_a_run_that_is_stopped_leaves_what_there_is(workspace):
    process = workspace.start("timeline-stopped", **{"trainer.timeline_steps": 1000, "trainer.steps": 1000, "trainer.schedule_steps": 2000})
    wait_for(lambda: len(workspace.metrics("timeline-stopped")) >= 2, what="two steps")
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) == 130
    timeline = Timeline(workspace.runs("timeline-stopped") / "timeline.json")
    check_format(timeline)
    check_tracks(timeline)
    assert len(timeline.of("trainer", "steps")) >= 2


def test_each_rank_has_its_own(workspace):
    workspace.run("timeline-ranks", **{"trainer.ranks": 2, "trainer.steps": 2, "trainer.timeline_steps": 2})
    of_ranks = [Timeline(workspace.runs("timeline-ranks") / file) for file in ("timeline.json", "timeline-rank-1.json")]
    assert not of_ranks[0].processes.keys() & of_ranks[1].processes.keys()
    answers = []
    for timeline in of_ranks:
        check_format(timeline)
        check_tracks(timeline)
        answers += [(s["args"]["step"], s["args"]["example"]) for s in timeline.of("rollout", "slot") if s["name"] == "sampling"]
    assert len(answers) == len(set(answers)) == 2 * 6
