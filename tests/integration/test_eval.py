"""`dapd eval` as a whole program: benchmark files, reports, and interrupted calls."""

import json
import sys

import certificates
import pytest
from receiver import Receiver

from test_services import start
from workspace import free_port


@pytest.fixture(scope="module")
def benchmark(workspace):
    """Provides three problems with other column names and without solutions; one answer is worked text, as in GSM8K."""
    path = workspace.folder / "benchmark.jsonl"
    targets = [0, 2, "2 + 2 = <<2+2=4>>4\n#### 4"]
    rows = [{"name": f"q{i}", "question": f"What is {i} + {i}?", "target": target} for i, target in enumerate(targets)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def arguments(workspace, benchmark, *more):
    return ("eval", "--model", workspace.model, "--data", benchmark, "--id-column", "name", "--problem-column", "question",
            "--answer-column", "target", "--device", "cpu", "--samples", 2, "--max-new-tokens", 12, "--temperature", 1, "--json", *more)


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_benchmark_without_solutions_is_evaluated(workspace, benchmark, tmp_path):
    output = tmp_path / "answers.jsonl"
    done = workspace.dapd(*arguments(workspace, benchmark, "--output", output, "--kv-memory-mib", 64))
    report = json.loads(done.stdout)
    assert (report["problems"], report["samples"]) == (3, 2)
    rows = rows_of(output)
    assert [(row["id"], row["sample"]) for row in rows] == [(f"q{i}", k) for i in range(3) for k in range(2)]
    assert [row["answer"] for row in rows] == ["0", "0", "2", "2", "4", "4"]
    assert report["mean_tokens"] == pytest.approx(sum(row["tokens"] for row in rows) / 6)
    assert report["truncated"]["mean"] == pytest.approx(sum(row["finish_reason"] == "length" for row in rows) / 6)
    assert report["accuracy"]["mean"] == pytest.approx(sum(row["correct"] for row in rows) / 6)
    assert list(report["pass_at"]) == ["1", "2"]
    tokens = sum(row["tokens"] for row in rows)
    assert f"6 answers with {tokens} tokens were sampled; 0 tokens were computed once more (0.00 %)" in done.stderr, done.stderr


def test_a_second_call_goes_on_where_the_first_was_killed(workspace, benchmark, tmp_path):
    output = tmp_path / "answers.jsonl"
    call = arguments(workspace, benchmark, "--output", output)
    report = workspace.dapd(*call).stdout
    whole = output.read_text()
    lines = whole.splitlines(keepends=True)
    # A kill leaves this: some answers, in any order, and a part of one.
    output.write_text(lines[4] + lines[1] + lines[2][:20])
    again = workspace.dapd(*call)
    assert again.stdout == report and output.read_text() == whole
    assert "2 of 6 answers" in again.stderr
    # Nothing is left to do, so the model is not even loaded.
    assert workspace.dapd(*call).stdout == report


def test_the_marker_is_asked_of_answers_that_are_there(workspace, benchmark, tmp_path):
    """The marker does not change the answers: a second call with another marker only reads them."""
    output = tmp_path / "answers.jsonl"
    call = arguments(workspace, benchmark, "--output", output)
    assert "marker_rate" not in json.loads(workspace.dapd(*call).stdout)
    texts = [row["text"] for row in rows_of(output)]
    whole = output.read_text()
    letter = next(character for text in texts for character in text if character.isascii() and character.isalnum())
    for marker in (letter, "no such text"):
        report = json.loads(workspace.dapd(*call, "--marker", marker).stdout)
        assert report["marker"] == marker
        assert report["marker_rate"]["mean"] == pytest.approx(sum(marker in text for text in texts) / 6)
    assert output.read_text() == whole
    lines = whole.splitlines(keepends=True)
    output.write_text(lines[4] + lines[1])
    # Some answers existed before, the others are new.
    again = json.loads(workspace.dapd(*call, "--marker", letter).stdout)
    assert again["marker_rate"]["mean"] == pytest.approx(sum(letter in text for text in texts) / 6)
    assert 'with "no such text"' in workspace.dapd(*call[:call.index("--json")], "--output", output, "--marker", "no such text").stdout


def test_greedy_answers_that_are_all_the_same_are_warned_of(workspace, benchmark):
    call = [*arguments(workspace, benchmark, "--limit", 1)]
    assert "no effect" not in workspace.dapd(*call).stderr
    call[call.index("--temperature") + 1] = 0
    assert "--samples 2 has no effect" in workspace.dapd(*call).stderr


def test_an_output_of_other_settings_is_refused(workspace, benchmark, tmp_path):
    output = tmp_path / "answers.jsonl"
    workspace.dapd(*arguments(workspace, benchmark, "--output", output))
    before = output.read_text()
    changes = ((("--seed", 43), "seed was 42, now 43"), (("--thinking",), "thinking was false, now true"), (("--limit", 2), "data was"))
    for more, named in changes:
        refused = workspace.dapd(*arguments(workspace, benchmark, "--output", output, *more), check=False)
        assert refused.returncode == 4 and named in refused.stderr, refused.stderr
        assert "choose another --output" in refused.stderr
    assert output.read_text() == before


def test_the_prompt_decides_what_is_answered(workspace, benchmark, tmp_path):
    """A random model answers another prompt differently, and the same prompt in the same way."""
    texts = []
    for name, more in (("training", ()), ("plain", ("--prompt", "plain")), ("again", ("--prompt", "plain"))):
        output = tmp_path / f"{name}.jsonl"
        workspace.dapd(*arguments(workspace, benchmark, "--output", output, *more))
        texts.append([row["text"] for row in rows_of(output)])
    assert texts[0] != texts[1] and texts[1] == texts[2]


def test_a_row_without_an_answer_is_named(workspace, benchmark, tmp_path):
    path = tmp_path / "holes.jsonl"
    path.write_text(benchmark.read_text() + '{"name": "q9", "question": "?", "target": ""}\n')
    refused = workspace.dapd(*arguments(workspace, path), check=False)
    assert refused.returncode == 4 and "holes.jsonl:4" in refused.stderr and "column 'target' is empty" in refused.stderr
    missing = workspace.dapd("eval", "--model", workspace.model, "--data", benchmark, check=False)
    assert missing.returncode == 4 and "--problem-column" in missing.stderr


def test_workers_give_the_answers_of_this_process(workspace, benchmark, tmp_path):
    """Two rollout services, and then the service that is left, give the same answers, in float32 bit for bit."""
    flags = ("--precision", "float32")
    alone, together = tmp_path / "alone.jsonl", tmp_path / "together.jsonl"
    workspace.dapd(*arguments(workspace, benchmark, "--output", alone, *flags))
    ports = [free_port(), free_port()]
    services = [start("dapd-rollout", workspace, **{"rollout.listen": f"127.0.0.1:{port}", "metrics.rollout_listen": "127.0.0.1:0"}) for port in ports]
    try:
        addresses = ",".join(f"127.0.0.1:{port}" for port in ports)
        report = workspace.dapd(*arguments(workspace, benchmark, "--output", together, *flags, "--workers", addresses))
        assert json.loads(report.stdout)["problems"] == 3
        assert rows_of(together) == rows_of(alone)
        services[0].kill()
        again = tmp_path / "again.jsonl"
        workspace.dapd(*arguments(workspace, benchmark, "--output", again, *flags, "--workers", addresses))
        assert rows_of(again) == rows_of(alone)
    finally:
        for service in services:
            service.kill()
            service.wait()


def test_conversations_of_a_column_are_what_a_live_worker_answers(workspace, tmp_path):
    """The system message of each conversation stands where data.system would put it, and its last question in place of the row's own."""
    flags = ("--precision", "float32")
    rows = [{"name": f"q{i}", "question": f"What is {i} + {i}?", "target": str(2 * i)} for i in range(3)]
    system = "Answer like a pirate."

    def with_chats(earlier):
        return [{**row, "question": "Which colour has the sky?", "chat": [
            {"role": "system", "content": system}, *earlier, {"role": "user", "content": row["question"]},
            {"role": "assistant", "content": "It is " + row["target"]}]} for row in rows]

    earlier = [{"role": "user", "content": "May I ask you something?"}, {"role": "assistant", "content": "Aye."}]
    files = {"plain": rows, "chats": with_chats([]), "longer": with_chats(earlier)}
    for name, lines in files.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name, system_of_all in (("silent", ""), ("pirate", system)):
        (tmp_path / f"{name}.yaml").write_text(json.dumps({"model": {"path": "none"}, "data": {"system": system_of_all}}))
    port = free_port()
    service = start("dapd-rollout", workspace, **{"rollout.listen": f"127.0.0.1:{port}", "metrics.rollout_listen": "127.0.0.1:0"})

    def answers(data, config, *more):
        output = tmp_path / f"{data}-{config}{len(more)}.jsonl"
        call = arguments(workspace, tmp_path / f"{data}.jsonl", "--output", output, *flags, "--workers", f"127.0.0.1:{port}", *more)
        workspace.dapd(*call, "--config", tmp_path / f"{config}.yaml")
        return [row["text"] for row in rows_of(output)]

    try:
        expected = answers("plain", "pirate")
        assert answers("chats", "silent", "--messages-column", "chat") == expected
        assert answers("plain", "silent") != expected
        assert answers("chats", "silent") != expected
        assert answers("longer", "silent", "--messages-column", "chat") != expected
    finally:
        service.kill()
        service.wait()


def test_no_worker_is_an_error_that_names_the_address(workspace, benchmark):
    refused = workspace.dapd(*arguments(workspace, benchmark, "--workers", f"127.0.0.1:{free_port()}", "--peer-timeout", 1), check=False)
    assert refused.returncode == 5 and "127.0.0.1:" in refused.stderr
    wrong = workspace.dapd(*arguments(workspace, benchmark, "--workers", "nowhere"), check=False)
    assert wrong.returncode == 3, wrong.stderr
    none = workspace.dapd(*arguments(workspace, benchmark, "--workers", ","), check=False)
    assert none.returncode == 2 and "names no worker" in none.stderr, none.stderr


GRADER = """
import json, sys
notes = open(sys.argv[1], "a")
for line in sys.stdin:
    q = json.loads(line)
    print(q["id"], q["problem_id"], file=notes, flush=True)
    assert q["problem"] == q["row"]["question"] and q["reference"] == ""
    score = len(q["answer"]) % 4 / 4
    print(json.dumps({"id": q["id"], "score": score, "feedback": "of " + q["row"]["note"]}), flush=True)
"""


def test_a_grader_of_the_users_own_grades_each_answer_once(workspace, tmp_path):
    """Its rows need no answers."""
    data, notes, output, config = (tmp_path / name for name in ("data.jsonl", "notes", "answers.jsonl", "run.yaml"))
    data.write_text("".join(json.dumps({"name": f"q{i}", "question": f"What is {i} + {i}?", "note": f"row {i}"}) + "\n" for i in range(3)))
    (tmp_path / "grade.py").write_text(GRADER)
    config.write_text(json.dumps({"model": {"path": "none"}, "grader": {
        "command": [sys.executable, str(tmp_path / "grade.py"), str(notes)], "workers": 2}}))
    call = arguments(workspace, data, "--output", output, "--config", config)
    report = json.loads(workspace.dapd(*call).stdout)
    rows = rows_of(output)
    assert [(row["id"], row["feedback"]) for row in rows] == [(f"q{i}", f"of row {i}") for i in range(3) for _ in range(2)]
    assert all(row["score"] == len(row["text"]) % 4 / 4 and row["correct"] == (row["score"] >= 0.5) for row in rows)
    assert report["accuracy"]["mean"] == pytest.approx(sum(row["correct"] for row in rows) / 6)
    assert len(notes.read_text().splitlines()) == 6
    lines = output.read_text().splitlines(keepends=True)
    output.write_text(lines[4] + lines[1])
    assert json.loads(workspace.dapd(*call).stdout) == report and output.read_text() == "".join(lines)
    assert len(notes.read_text().splitlines()) == 6 + 4
    # The built-in grader needs answers.
    refused = workspace.dapd(*arguments(workspace, data), check=False)
    assert refused.returncode == 4 and "target" in refused.stderr, refused.stderr


def test_a_grader_by_https_needs_the_authority_that_is_named(workspace, tmp_path):
    for authority in ("right", "wrong"):
        certificates.make(tmp_path / authority)
    server = certificates.make_odd(tmp_path / "right/ca", tmp_path / "server", "IP:127.0.0.1")
    answers, grades, config = (tmp_path / name for name in ("answers.jsonl", "grades.jsonl", "run.yaml"))
    answers.write_text("".join(json.dumps({"id": f"q{i}", "text": str(i)}) + "\n" for i in range(2)))

    def grade(document):
        return {"grades": [{"id": asked["id"], "score": int(asked["answer"]) / 4} for asked in document["answers"]]}

    with Receiver(certificate=server, answer=grade) as receiver:
        for authority in (None, "wrong", "right"):
            options = {"url": receiver.url, "on_error": "ungraded", **({"ca_file": str(tmp_path / authority / "ca/ca.crt")} if authority else {})}
            config.write_text(json.dumps({"model": {"path": "none"}, "grader": options}))
            workspace.dapd("grade", "--input", answers, "--output", grades, "--config", config)
            if authority == "right":
                assert [row["score"] for row in rows_of(grades)] == [0, 0.25]
            else:
                # No secret leaves before the server is known.
                assert receiver.documents == []
                assert [row["ungraded"] for row in rows_of(grades)] == ["refused"] * 2
                assert all("127.0.0.1" in row["error"] and "certificate" in row["error"] for row in rows_of(grades)), rows_of(grades)
