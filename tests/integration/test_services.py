"""Each process shows its state, and answers bad input."""

import concurrent.futures
import json
import os
import shutil
import signal
import socket
import subprocess
import urllib.request

import grpc
import grpc_health.v1.health
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from workspace import BIN, free_port, set_flags, wait_for

REQUIRED = {
    "dapd-trainer": ["dapd_trainer_steps_total", "dapd_trainer_tasks_total", "dapd_build_info", "process_resident_memory_bytes"],
    "dapd-rollout": ["dapd_rollout_generated_tokens_total", "dapd_rollout_requests_waiting", "dapd_rollout_policy_version"],
    "dapd-teacher": ["dapd_teacher_scored_tokens_total", "dapd_teacher_requests_waiting", "dapd_teacher_payload_bytes_total"],
}
AFTER_A_STEP = [
    "dapd_trainer_loss", "dapd_trainer_clipped_ratio", "dapd_trainer_gradient_norm", "dapd_trainer_learning_rate",
    "dapd_trainer_step_duration_seconds", "dapd_trainer_policy_version", "dapd_trainer_rollout_policy_version",
    "dapd_trainer_adapter_push_duration_seconds", "dapd_trainer_payload_bytes_total", "dapd_trainer_samples_total",
    "dapd_trainer_generated_tokens_total",
]


def fetch(port):
    return urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode()


def promtool(text):
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("promtool is not installed")
    result = subprocess.run([tool, "check", "metrics"], input=text, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def start(program, workspace, **settings):
    flags = set_flags(settings)
    return subprocess.Popen([BIN / program, workspace.config, *flags], stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("role", ["rollout", "teacher"])
def test_a_worker_has_health_reflection_and_metrics(role, workspace):
    port, metrics_port = free_port(), free_port()
    settings = {f"{role}.listen": f"127.0.0.1:{port}", f"metrics.{role}_listen": f"127.0.0.1:{metrics_port}"}
    process = start(f"dapd-{role}", workspace, **settings)
    try:
        channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        health = health_pb2_grpc.HealthStub(channel)

        def serving():
            try:
                name = f"dapd.v1.{role.capitalize()}Service"
                return health.Check(health_pb2.HealthCheckRequest(service=name), timeout=1).status == 1
            except grpc.RpcError:
                return False

        wait_for(serving, what="SERVING")
        assert workspace.dapd("health", f"127.0.0.1:{port}").stdout == "SERVING\n"
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        (answer,) = reflection.ServerReflectionInfo(iter([request]), timeout=5)
        assert f"dapd.v1.{role.capitalize()}Service" in [s.name for s in answer.list_services_response.service]
        text = fetch(metrics_port)
        promtool(text)
        for name in REQUIRED[f"dapd-{role}"]:
            assert f"\n{name}" in text, name
    finally:
        process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 0


@pytest.mark.parametrize("role", ["rollout", "teacher"])
def test_a_stopped_worker_can_say_that_it_is_not_done(role, workspace):
    """Some supervisors do not replace a process that ends with 0 (run.stopped_worker)."""
    port = free_port()
    settings = {f"{role}.listen": f"127.0.0.1:{port}", f"metrics.{role}_listen": f"127.0.0.1:{free_port()}",
                "run.stopped_worker": "interrupted"}
    process = start(f"dapd-{role}", workspace, **settings)
    try:
        wait_for(lambda: workspace.dapd("health", f"127.0.0.1:{port}", check=False).stdout == "SERVING\n", what="SERVING")
    finally:
        process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 130


def test_the_trainers_metrics_and_status(workspace):
    metrics_port, port = free_port(), free_port()
    settings = {"metrics.trainer_listen": f"127.0.0.1:{metrics_port}", "trainer.listen": f"127.0.0.1:{port}",
                "trainer.steps": 400, "trainer.schedule_steps": 400}
    process = workspace.start("looked-at", **settings)
    try:
        wait_for(lambda: len(workspace.metrics("looked-at")) >= 2, what="two steps")
        text = fetch(metrics_port)
        promtool(text)
        for name in REQUIRED["dapd-trainer"] + AFTER_A_STEP:
            assert f"\n{name}" in text, name
        status = json.loads(workspace.dapd("status", f"127.0.0.1:{port}", "--json").stdout)
        assert status["step"] >= 2 and status["run_name"] == "looked-at", status
        assert "entangled_rollout" in workspace.dapd("status", f"127.0.0.1:{port}").stdout
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def expect(result, code, *texts):
    assert result.returncode == code, (result.returncode, result.stderr)
    for text in texts:
        assert text in result.stderr, (text, result.stderr)


def trainer(workspace, name, **settings):
    flags = set_flags({"run.name": name, **settings})
    return subprocess.run([BIN / "dapd-trainer", workspace.config, *flags], capture_output=True, text=True, timeout=60)


def test_health_is_what_the_service_says_of_itself(workspace):
    """The comparison is with gRPC's own health service in Python."""
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    servicer = grpc_health.v1.health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        servicer.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
        expect(workspace.dapd("health", address, check=False), 5, address, "NOT_SERVING")
        servicer.set("", health_pb2.HealthCheckResponse.SERVING)
        assert workspace.dapd("health", address).stdout == "SERVING\n"
        servicer.set("some.Service", health_pb2.HealthCheckResponse.NOT_SERVING)
        expect(workspace.dapd("health", address, "--service=some.Service", check=False), 5, address, "NOT_SERVING")
        servicer.set("some.Service", health_pb2.HealthCheckResponse.SERVING)
        assert workspace.dapd("health", address, "--service=some.Service").stdout == "SERVING\n"
        expect(workspace.dapd("health", address, "--service=none.such", check=False), 5, address)
    finally:
        server.stop(None)
    expect(workspace.dapd("health", address, check=False), 5, address)
    expect(workspace.dapd("health", "no-port", check=False), 2, "no-port")


def test_a_peer_that_is_down_is_named(workspace):
    port = free_port()
    result = trainer(workspace, "lonely", **{"rollout.addresses": f"[127.0.0.1:{port}]", "teacher.addresses": f"[127.0.0.1:{port}]",
                                             "trainer.listen": "127.0.0.1:0", "trainer.peer_timeout_seconds": 2})
    expect(result, 5, f"127.0.0.1:{port}")


def test_a_port_in_use_is_named(workspace):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = subprocess.run([BIN / "dapd-rollout", workspace.config, "--set", f"rollout.listen={address}"],
                                capture_output=True, text=True, timeout=60)
        expect(result, 3, address)
        result = subprocess.run([BIN / "dapd-teacher", workspace.config, "--set", f"metrics.teacher_listen={address}"],
                                capture_output=True, text=True, timeout=60)
        expect(result, 3, address)


def test_bad_configurations_name_key_and_line(workspace):
    bad = workspace.folder / "bad.yaml"
    bad.write_text("model:\n  path: x\ntrainer:\n  stepz: 3\n")
    for program in ("dapd-trainer", "dapd-rollout", "dapd-teacher"):
        result = subprocess.run([BIN / program, bad], capture_output=True, text=True, timeout=60)
        expect(result, 3, "bad.yaml:4", "trainer.stepz", "trainer.steps")
    expect(workspace.dapd("check", bad, check=False), 3, "bad.yaml:4")
    expect(workspace.dapd("nonsense", check=False), 2)


def test_a_problem_that_does_not_fit_the_context_ends_the_run_at_its_start(workspace):
    rows = [{"id": "huge", "problem": "long " * 5000, "solution": "s", "answer": "1"}]
    path = workspace.folder / "huge.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    expect(trainer(workspace, "huge", **{"data.path": path}), 4, "'huge'", "context")


@pytest.mark.parametrize(
    "damage, text",
    [
        (lambda p: p.write_bytes(p.read_bytes()[:-100]), "truncated"),
        (lambda p: p.write_bytes(b"\xff" * 8 + p.read_bytes()[8:]), "header"),
        (lambda p: p.unlink(), "model.safetensors"),
        (lambda p: p.write_bytes(p.read_bytes()[:-4] + b"\x00\x00\xc0\x7f"), "not finite"),
    ],
)
def test_a_damaged_model_is_refused_by_every_service(damage, text, workspace, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(workspace.model, model)
    damage(model / "model.safetensors")
    for program in ("dapd-rollout", "dapd-teacher", "dapd-trainer"):
        result = subprocess.run([BIN / program, workspace.config, *set_flags({"model.path": model, "run.name": "damaged"}),
                                 *set_flags({f"{program[5:]}.listen": "127.0.0.1:0"})], capture_output=True, text=True, timeout=60)
        expect(result, 4, text)


def test_a_folder_for_runs_that_cannot_be_written_is_one_message(workspace):
    """The folder is like a volume of another user: nobody can make folders in /sys."""
    result = trainer(workspace, "unwritable", **{"run.output_dir": "/sys/dapd-runs"})
    expect(result, 3, "cannot create folder /sys/dapd-runs", f"user {os.getuid()} lacks the permission", "run.output_dir must be a folder that this user can write to")
    assert sum(line.startswith("E ") for line in result.stderr.splitlines()) == 1, result.stderr


def test_an_empty_model_folder_is_one_message(workspace, tmp_path):
    """A mount that failed leaves an empty folder."""
    for program in ("dapd-rollout", "dapd-teacher", "dapd-trainer"):
        result = subprocess.run([BIN / program, workspace.config, *set_flags({"model.path": tmp_path, "run.name": "empty"}),
                                 *set_flags({f"{program[5:]}.listen": "127.0.0.1:0"})], capture_output=True, text=True, timeout=60)
        expect(result, 4, f"{tmp_path} is an empty folder")
        assert sum(line.startswith("E ") for line in result.stderr.splitlines()) == 1, result.stderr


def test_a_bad_row_is_named_and_can_be_skipped(workspace):
    path = workspace.folder / "rows.jsonl"
    good = json.dumps({"problem": "1 + 1?", "solution": "2"})
    path.write_text(f"{good}\n{{\"problem\": \"\", \"solution\": \"x\"}}\n{good}\n")
    expect(workspace.dapd("check", workspace.config, "--set", f"data.path={path}", check=False), 4, "rows.jsonl:2")
    result = workspace.dapd("check", workspace.config, "--set", f"data.path={path}", "--set", "data.on_bad_row=skip")
    assert "2 problems, 1 rows skipped" in result.stdout
    path.write_text(json.dumps({"question": "a", "text": "b"}) + "\n")
    expect(workspace.dapd("check", workspace.config, "--set", f"data.path={path}", check=False), 4, "question, text")


def test_answers_that_are_whole_texts_are_named(workspace):
    """GSM8K's answers state their results. A text that states none is not an answer, and every grade would silently be
    wrong."""
    path = workspace.folder / "worked.jsonl"
    worked = "She sold 24 in May.\nThat makes 72."
    for answer, warnings in ((f"{worked}\n#### 72", 0), (worked, 2)):
        path.write_text(json.dumps({"problem": "How many?", "answer": answer}) + "\n")
        settings = {"data.path": path, "evaluation.path": path, "data.solution_column": "answer"}
        result = workspace.dapd("check", workspace.config, *set_flags(settings))
        assert result.stderr.count("1 of 1 expected answers are whole texts") == warnings, result.stderr


def test_rows_that_are_too_long_are_named_or_left_out(workspace):
    rows = (workspace.folder / "train.jsonl").read_text().splitlines()
    long_row = json.dumps({"id": "long", "problem": "1 + 1?", "solution": "2 " * 3000})
    path = workspace.folder / "long.jsonl"
    path.write_text("".join(row + "\n" for row in [*rows[:20], long_row, *rows[20:]]))
    settings = {"data.path": path, "trainer.pack_tokens": 2000}
    for result in (workspace.dapd("check", workspace.config, *set_flags(settings), check=False), trainer(workspace, "long", **settings)):
        expect(result, 4, "1 of 61 rows", "long.jsonl:21: problem 'long'", "trainer.pack_tokens allows 2000", "data.on_bad_row: skip")
    settings["data.on_bad_row"] = "skip"
    result = workspace.dapd("check", workspace.config, *set_flags(settings))
    assert "60 problems, 1 rows skipped" in result.stdout and "'long'" in result.stderr
    result = workspace.run("long", **settings)
    assert "60 problems (1 rows skipped)" in result.stderr
    workspace.run("without", **{"trainer.pack_tokens": 2000})
    assert workspace.adapter_digest("long") == workspace.adapter_digest("without")
