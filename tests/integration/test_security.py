"""Who is admitted, who is refused, and what is logged about it, with real processes and real certificates."""

import contextlib
import os
import re
import secrets
import socket
import ssl
import subprocess
import time
import urllib.error

import grpc
import pytest

import certificates
from service_process import Process, call, fetch, generate, running
from workspace import BIN, free_port, set_flags, wait_for

DESCRIBE = "/dapd.v1.{}Service/Describe"
HEALTH = "/grpc.health.v1.Health/Check"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
REFUSED, NOBODY, FORBIDDEN = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Certificates of every role, and wrong ones."""
    folder = tmp_path_factory.mktemp("certificates")
    certificates.make(folder)
    certificates.make(folder / "stranger", "trainer")
    names = "URI:spiffe://dapd/trainer"
    certificates.make_odd(folder / "ca", folder / "expired", f"{names},URI:spiffe://dapd/rollout", days=-1)
    certificates.make_odd(folder / "ca", folder / "nobody", "DNS:trainer")
    certificates.make_odd(folder / "ca", folder / "other-domain", "URI:spiffe://example.org/trainer")
    return folder


@pytest.fixture(scope="session")
def rollout(workspace, folder):
    """Provides a rollout worker with mutual TLS on every address."""
    viewer = folder / "viewer.token"
    viewer.write_text("v" * 40)
    viewer.chmod(0o600)
    settings = {**certificates.settings(folder / "rollout"), "security.tokens.viewer": viewer}
    with running("dapd-rollout", workspace, settings, host="0.0.0.0") as process:
        yield process


@pytest.mark.parametrize(
    "name, show, expected",
    [
        ("no certificate", None, REFUSED),
        ("another authority", "stranger/trainer", REFUSED),
        ("expired", "expired", REFUSED),
        ("no role", "nobody", NOBODY),
        ("another trust domain", "other-domain", NOBODY),
        ("role viewer", "viewer", FORBIDDEN),
        ("role rollout", "rollout", FORBIDDEN),
        ("role trainer", "trainer", None),
    ],
)
def test_of_all_certificates_only_the_trainers_drives_a_worker(name, show, expected, rollout, folder):
    with certificates.channel(rollout.port, show and folder / show, ca=folder / "ca") as channel:
        assert generate(channel) == expected, name


def test_plaintext_and_a_server_of_a_strange_authority_meet_nobody(rollout, folder):
    with grpc.insecure_channel(f"127.0.0.1:{rollout.port}") as channel:
        assert generate(channel) == REFUSED
    with certificates.channel(rollout.port, folder / "trainer", ca=folder / "stranger" / "ca") as channel:
        assert generate(channel) == REFUSED


def test_reflection_is_the_admins(rollout, folder):
    request = b"\x3a\x00"  # list_services
    for role, expected in (("viewer", FORBIDDEN), ("trainer", FORBIDDEN), ("admin", None)):
        with certificates.channel(rollout.port, folder / role) as channel:
            try:
                answers = list(channel.stream_stream(REFLECTION)(iter([request]), timeout=10))
                assert expected is None and b"dapd.v1.RolloutService" in answers[0]
            except grpc.RpcError as error:
                assert error.code() == expected, role


def test_commands_show_their_certificate_and_compare_the_servers_role(rollout, workspace, folder):
    address = f"127.0.0.1:{rollout.port}"
    assert workspace.dapd("health", address, *set_flags(certificates.settings(folder / "viewer"))).returncode == 0
    assert workspace.dapd("health", address, check=False).returncode == 5
    environment = {f"DAPD_SECURITY__{key.split('.')[1].upper()}": str(value)
                   for key, value in certificates.settings(folder / "viewer").items()}
    result = subprocess.run([BIN / "dapd", "health", address], env={**os.environ, **environment}, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    # The caller is a worker and not a trainer.
    result = workspace.dapd("status", address, *set_flags(certificates.settings(folder / "viewer")), check=False)
    assert result.returncode == 5, result.stderr


def test_metrics_on_other_addresses_want_https_and_a_reader(rollout, folder):
    with certificates.channel(rollout.port, folder / "viewer") as channel:
        assert call(channel, HEALTH) is None
    base = f"https://127.0.0.1:{rollout.metrics_port}"
    anonymous = certificates.https(folder / "ca")
    assert fetch(f"{base}/metrics", anonymous)[0] == 401
    assert fetch(f"{base}/healthz", anonymous) == (200, "ok\n")
    status, text = fetch(f"{base}/metrics", certificates.https(folder / "ca", folder / "viewer"))
    assert status == 200 and re.search(r'^dapd_insecure\{.*listener="metrics".*\} 0$', text, re.MULTILINE), text
    for name in ("dapd_certificate_expiry_timestamp_seconds", "dapd_rpc_refused_total", "dapd_rpc_handled_total"):
        assert f"\n{name}" in text, name
    assert fetch(f"{base}/metrics", certificates.https(folder / "ca", folder / "rollout"))[0] == 403
    assert fetch(f"{base}/metrics", anonymous, Authorization="Bearer " + "v" * 40)[0] == 200
    assert fetch(f"{base}/metrics", anonymous, Authorization="Bearer " + "w" * 40)[0] == 401
    for context in (certificates.https(folder / "ca", folder / "stranger" / "trainer"), certificates.https(folder / "ca", folder / "expired"),
                    certificates.https(folder / "stranger" / "ca")):
        with pytest.raises((urllib.error.URLError, ssl.SSLError, ConnectionError)):
            fetch(f"{base}/metrics", context)
    with pytest.raises((urllib.error.URLError, ConnectionError)):
        fetch(base.replace("https", "http") + "/metrics")


@pytest.mark.parametrize("program", ["dapd-rollout", "dapd-teacher", "dapd-trainer"])
@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0"])
def test_plaintext_is_served_to_nobody_without_a_flag(program, address, workspace):
    role = program.removeprefix("dapd-")
    for key in (f"{role}.listen", f"metrics.{role}_listen"):
        result = subprocess.run([BIN / program, workspace.config, "--set", f"{key}='{address}'"], capture_output=True, text=True, timeout=60)
        assert result.returncode == 3 and key in result.stderr and "security.insecure" in result.stderr, (key, result.stderr)
    result = subprocess.run([BIN / program, workspace.config, "--listen", f"'{address}'"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 3, result.stderr
    result = subprocess.run([BIN / program, workspace.config], capture_output=True, text=True, timeout=60,
                            env={**os.environ, f"DAPD_{role.upper()}__LISTEN": f"'{address}'"})
    assert result.returncode == 3, result.stderr


def test_what_a_flag_opens_is_shown_in_log_and_metrics(workspace):
    settings = {"security.insecure": "true"}
    with running("dapd-rollout", workspace, settings, host="0.0.0.0") as process:
        assert re.search(r"^W .*security\.insecure", process.log(), re.MULTILINE)
        _, text = fetch(f"http://127.0.0.1:{process.metrics_port}/metrics")
        assert len(re.findall(r"^dapd_insecure\{.*\} 1$", text, re.MULTILINE)) == 2, text
        with grpc.insecure_channel(f"127.0.0.1:{process.port}") as channel:
            assert generate(channel) is None
            assert call(channel, REFLECTION) == FORBIDDEN


def test_a_certificate_that_peers_would_refuse_is_found_at_start(workspace, folder):
    for settings, text in (
        (certificates.settings(folder / "viewer"), "this process needs rollout"),
        (certificates.settings(folder / "expired"), "expired"),
        ({**certificates.settings(folder / "rollout"), "security.ca": folder / "stranger/ca/ca.crt"}, "do not vouch"),
        ({**certificates.settings(folder / "rollout"), "security.private_key": folder / "teacher/tls.key"}, "is not the key"),
    ):
        result = subprocess.run([BIN / "dapd-rollout", workspace.config, *set_flags(settings)], capture_output=True, text=True, timeout=60)
        assert result.returncode == 3 and text in result.stderr, result.stderr


def start_all(workspace, name, settings_of, **more):
    """Starts the three services separately, as on three machines; returns the trainer's process and the workers."""
    workers = [Process(f"dapd-{role}", workspace, settings_of(role), host="0.0.0.0") for role in ("rollout", "teacher")]
    trainer_port, metrics_port = free_port(), free_port()
    settings = {
        "run.name": name, "rollout.addresses": f"[127.0.0.1:{workers[0].port}]", "teacher.addresses": f"[127.0.0.1:{workers[1].port}]",
        "trainer.listen": f"0.0.0.0:{trainer_port}", "metrics.trainer_listen": f"0.0.0.0:{metrics_port}", **settings_of("trainer"), **more,
    }
    log = open(workspace.folder / f"{name}.log", "w")
    trainer = subprocess.Popen([BIN / "dapd-trainer", workspace.config, *set_flags(settings)], stdout=log, stderr=log)
    trainer.port, trainer.metrics_port = trainer_port, metrics_port
    return trainer, workers


def test_a_run_over_mutual_tls_with_new_certificates_all_the_time_gives_the_same_adapter(reference_run, tmp_path):
    certificates.make(tmp_path)
    trainer, workers = start_all(reference_run, "tls", lambda role: certificates.settings(tmp_path / role, in_one_file=True))
    rotations = 0
    viewer = set_flags(certificates.settings(tmp_path / "viewer"))
    try:
        while trainer.poll() is None:
            seen = len(reference_run.metrics("tls"))
            certificates.make(tmp_path)
            rotations += 1
            wait_for(lambda: trainer.poll() is not None or len(reference_run.metrics("tls")) > seen, seconds=120, what="the next step")
            if rotations == 2 and trainer.poll() is None:
                status = reference_run.dapd("status", f"127.0.0.1:{trainer.port}", *viewer, check=False)
                assert status.returncode == 0 or trainer.poll() is not None, status.stderr
    finally:
        trainer.kill()
        for worker in workers:
            worker.stop()
    log = reference_run.log("tls")
    assert trainer.wait() == 0, log
    print(f"{rotations} rotations of every certificate")
    assert rotations >= 2 and " lost: " not in log, log
    assert reference_run.adapter_digest("tls") == reference_run.adapter_digest("reference")


def test_dapd_run_with_one_certificate_for_all_three(workspace, tmp_path):
    roles = "rollout+teacher+trainer"
    certificates.make(tmp_path, roles)
    workspace.run("one-certificate", **certificates.settings(tmp_path / roles), **{"trainer.steps": 1})
    assert len(workspace.metrics("one-certificate")) == 1


def secret_file(path, text):
    path.write_text(text)
    path.chmod(0o600)
    return path


def bearer(token):
    return (("authorization", f"Bearer {token}"),)


def test_no_secret_is_in_anything_that_a_run_with_failed_logins_writes(workspace, tmp_path):
    canary = "canary" + secrets.token_hex(16)
    roles = {role: canary + role for role in ("viewer", "trainer", "admin")}
    settings = {f"security.tokens.{role}": secret_file(tmp_path / role, token) for role, token in roles.items()}
    with running("dapd-rollout", workspace, settings, environment={"GRPC_VERBOSITY": "DEBUG"}) as process:
        said = []
        with grpc.insecure_channel(f"127.0.0.1:{process.port}") as channel:

            def code(method, metadata=()):
                try:
                    channel.unary_unary(method)(b"", metadata=metadata, timeout=10)
                except grpc.RpcError as error:
                    said.append(f"{error.details()} {error.trailing_metadata()} {error.initial_metadata()}")
                    return error.code()
                return None

            describe = DESCRIBE.format("Rollout")
            assert code(describe) == NOBODY
            assert code(describe, bearer(roles["viewer"])) is None
            assert generate(channel, bearer(roles["viewer"])) == FORBIDDEN
            assert generate(channel, bearer(roles["trainer"])) is None
            for wrong in (canary + "wrong", roles["viewer"][:-1], roles["viewer"] + "x", roles["viewer"].upper()):
                assert code(describe, bearer(wrong)) == NOBODY
            assert code(describe, (("authorization", roles["viewer"]),)) == NOBODY
            assert code(describe, (("authorization", f"Basic {roles['viewer']}"),)) == NOBODY
            assert code(describe, bearer(roles["viewer"]) + bearer(roles["viewer"])) == NOBODY
            assert code(f"/{canary}/{canary}", bearer(roles["viewer"])) == grpc.StatusCode.UNIMPLEMENTED
            assert code(f"/{canary}/{canary}") == NOBODY
        url = f"http://127.0.0.1:{process.metrics_port}"
        for path in ("/metrics", f"/{canary}", f"/metrics?token={canary}"):
            said.append(fetch(url + path, Authorization=f"Bearer {canary}wrong", **{f"X-{canary}": canary})[1])
        # A token is given instead of its file, and the files cannot be used.
        open_to_all = secret_file(tmp_path / "open", canary + "open")
        open_to_all.chmod(0o644)
        for value in (canary + "itself", open_to_all, secret_file(tmp_path / "malformed", canary + " with spaces")):
            for key in ("security.token", "security.tokens.admin"):
                refused = subprocess.run([BIN / "dapd-rollout", workspace.config, "--set", f"{key}={value}"], capture_output=True, text=True, timeout=60)
                assert refused.returncode == 3 and key in refused.stderr
                said.append(refused.stdout + refused.stderr)
        # A trainer presents a wrong token; the check covers its run folder and the end of its patience.
        wrong = secret_file(tmp_path / "wrong", canary + "presented-but-wrong")
        address = f"[127.0.0.1:{process.port}]"
        result = subprocess.run(
            [BIN / "dapd-trainer", workspace.config, *set_flags({
                "run.name": "canary", "security.token": wrong, "rollout.addresses": address, "teacher.addresses": address,
                "trainer.listen": "127.0.0.1:0", "trainer.peer_timeout_seconds": 3})],
            capture_output=True, text=True, timeout=120, env={**os.environ, "GRPC_VERBOSITY": "DEBUG"})
        assert result.returncode == 5 and "token" in result.stderr, result.stderr
        said.append(result.stdout + result.stderr)
    said.append(process.log())
    said += [path.read_bytes().decode(errors="replace") for path in workspace.runs("canary").rglob("*") if path.is_file()]
    assert "refused a call" in process.log() and len(said) > 20
    for text in said:
        assert canary not in text.lower(), text


def latencies(channel, count):
    seconds = []
    for _ in range(count):
        start = time.monotonic()
        assert call(channel, HEALTH) is None
        seconds.append(time.monotonic() - start)
    return sorted(seconds)


def open_sockets(port, count):
    found = []
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", port), timeout=10)
        found.append(connection)
    return found


def is_closed(connection):
    connection.settimeout(0)
    try:
        while True:
            if connection.recv(4096) == b"":
                return True
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_silent_and_slow_clients_are_cut_off_and_others_do_not_notice(workspace):
    count = int(os.environ.get("DAPD_IDLE_CONNECTIONS", "2000"))
    with running("dapd-rollout", workspace, {}) as process:
        with grpc.insecure_channel(f"127.0.0.1:{process.port}") as channel:
            calm = latencies(channel, 200)
            before = process.resident_bytes()
            silent = open_sockets(process.port, count)
            slow = open_sockets(process.metrics_port, 50)
            for connection in slow:
                connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n")
            crowded = latencies(channel, 200)
            for connection in slow[:10]:
                with contextlib.suppress(OSError):
                    connection.sendall(b"X")
            assert fetch(f"http://127.0.0.1:{process.metrics_port}/metrics")[0] == 200
            grown = process.resident_bytes() - before
            wait_for(lambda: all(map(is_closed, slow)), what="slow HTTP clients are cut off")
            wait_for(lambda: all(map(is_closed, silent)), what="silent gRPC clients are cut off")
            assert call(channel, HEALTH) is None
        for connection in silent + slow:
            connection.close()
    print(f"{count} idle connections: health p99 {1e3 * calm[197]:.1f} ms before, {1e3 * crowded[197]:.1f} ms with them, "
          f"{grown / 2**20:.1f} MiB more memory")
    if "ASAN_OPTIONS" not in os.environ:  # keeps freed memory
        assert grown < 64 * 2**20
