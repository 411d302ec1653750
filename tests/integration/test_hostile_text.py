"""Texts from files, requests and arguments are quoted with escapes: no control character, no ill-formed UTF-8, no
forged line."""

import gzip
import json
import os
import re
import shutil
import socket
import struct
import subprocess

import pytest

from workspace import BIN, free_port, wait_for

FORGED = b"E 2026-01-01T00:00:00.000Z trainer] forged"
HELP_LINE = "Run with --help for more information."
LOG_LINE = re.compile(r"[IWE] \d{4}-\d\d-\d\dT[\d:.]+Z \w+\] ")


def check_printed(printed, *quoted):
    """Checks that the output is well-formed, without control characters, that every line is ours, and that it does
    quote the text."""
    text = printed.decode("utf-8")
    assert not [c for c in text if ord(c) < 0x20 and c != "\n" or 0x7F <= ord(c) < 0xA0], ascii(text)
    first, *others = text.rstrip("\n").split("\n")
    for line in others:
        assert line.startswith("  ") or LOG_LINE.match(line) or line == HELP_LINE, ascii(text)
    assert not re.search(rb"^E 2026-01-01T", printed, re.MULTILINE), printed
    for part in quoted:
        assert part in text, ascii(text)


def failed(*command, code, **kwargs):
    result = subprocess.run([BIN / command[0], *command[1:]], capture_output=True, timeout=120, **kwargs)
    assert result.returncode == code, (result.returncode, result.stderr)
    return result.stderr


def check_command(workspace, *settings, code=4):
    flags = [part for setting in settings for part in ("--set", setting)]
    return failed("dapd", "check", workspace.config, *flags, code=code)


@pytest.mark.parametrize("compressed", [False, True])
def test_rows_of_data(workspace, tmp_path, compressed):
    open_file = gzip.open if compressed else open
    path = tmp_path / "rows.jsonl"
    for row, quoted in (
        (b'{"problem": "p\xff", "solution": "s"}', "\\xff"),
        (b'{"problem": "p\x1b[2J\x07" "solution": "s"}', "rows.jsonl:1"),
        (b'\xff\x1b[2J' + FORGED, "\\xff"),
        (b'{"a\\n' + FORGED + b'": 1}', "\\nE 2026"),
    ):
        with open_file(path, "wb") as file:
            file.write(row + b"\n")
        check_printed(check_command(workspace, f"data.path={path}"), quoted)


def test_ids_of_rows(workspace, tmp_path):
    path = tmp_path / "rows.jsonl"
    row = {"id": "a\n" + FORGED.decode() + "\x1b[2J\u202e\u061c", "input_ids": [1, 2]}
    path.write_text((json.dumps(row) + "\n") * 2)
    printed = failed("dapd", "score", "--model", workspace.model, "--input", path, "--output", tmp_path / "out", code=4)
    check_printed(printed, "a\\nE 2026", "\\x1b[2J\\u202e\\u061c")


def write_tensors(path, header):
    path.write_bytes(struct.pack("<Q", len(header)) + header)


def test_names_of_tensors(workspace, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(workspace.model, folder)
    (tmp_path / "in").write_text('{"id": "a", "input_ids": [1]}\n')
    entry = b'{"dtype": "F32", "shape": [3], "data_offsets": [0, 4]}'
    for name, quoted in ((b"a\xff", "\\xff"), (b"a\\n" + FORGED + b"\\u001b", "a\\nE 2026"), (b"a\\u009b", "\\u009b")):
        write_tensors(folder / "model.safetensors", b'{"' + name + b'": ' + entry + b"}")
        printed = failed("dapd", "score", "--model", folder, "--input", tmp_path / "in", "--output", tmp_path / "out", code=4)
        check_printed(printed, quoted)


def test_values_and_keys_of_a_configuration(workspace, tmp_path):
    good = workspace.config.read_text()
    for more, quoted in (
        (b'"key\\n' + FORGED + b'": 1\n', "key\\nE 2026"),
        (b'security: {role: "x\\e[2J\\n  y"}\n', "security.role"),
        (b"run2: a\xff\n", "config.yaml"),
        (b'"\x1b[2J": 1\n', "config.yaml"),
    ):
        config = tmp_path / "config.yaml"
        config.write_bytes(good.encode() + more)
        check_printed(failed("dapd", "check", config, code=3), quoted)
        # A service reports through its log.
        check_printed(failed("dapd-teacher", config, code=3), quoted)
    printed = check_command(workspace, "run.name=\x1b[2J\n" + FORGED.decode(), code=3)
    check_printed(printed, "run.name")


def test_arguments_and_names_of_files(workspace, tmp_path):
    name = b"adapter\xff\n" + FORGED + b"\x1b[2J"
    for folder_exists in (False, True):
        folder = bytes(tmp_path) + b"/" + name
        if folder_exists:
            os.mkdir(folder)
            with open(folder + b"/adapter_config.json", "wb") as file:
                file.write(b'{"peft_type": "LORA\\n' + FORGED + b'"}')
        check_printed(
            failed("dapd", "adapter", "verify", "--model", workspace.model, "--adapter", folder, code=4), "adapter\\xff\\nE 2026", "\\x1b[2J"
        )
    check_printed(failed("dapd", "status", "127.0.0.1:1", b"--\xff\x1b[2J", code=2), "\\xff\\x1b[2J")


def test_chat_templates(workspace, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(workspace.model, folder)
    (tmp_path / "in").write_text('{"messages": [{"role": "user", "content": "x"}]}\n')
    for template, quoted in (
        (b"{{ raise_exception('a\\n" + FORGED + b"') }}", "a\\nE 2026"),
        (b"{{ messages | " + b"shuffle\x1b" + b" }}", "chat template"),
        (b"{{ a\xff }}", "chat template"),
        (b"{{ messages['\xc2\x9b'].x }}", "chat template"),
    ):
        (folder / "chat_template.jinja").write_bytes(template)
        printed = failed("dapd", "render", "--model", folder, "--input", tmp_path / "in", "--output", tmp_path / "out", code=4)
        check_printed(printed, quoted)


def test_requests_of_http_clients(workspace, tmp_path):
    log = tmp_path / "log"
    port = free_port()
    command = [BIN / "dapd-teacher", workspace.config, "--listen", "127.0.0.1:0", "--set", f"metrics.teacher_listen=127.0.0.1:{port}"]
    with open(log, "wb") as file, subprocess.Popen(command, stderr=file, stdout=file) as process:
        try:
            wait_for(lambda: b"ready" in log.read_bytes(), what="the teacher")
            for request in (
                b"GET /\xff\x1b[2J\n" + FORGED + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
                b"GET /%0a\xff HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
                b"GET / HTTP/1.1\r\nHost: \xff\x1b[2J.example\r\n\r\n",
                b"\xff\x1b[2J\r\n\r\n",
            ):
                with socket.create_connection(("127.0.0.1", port)) as connection:
                    connection.sendall(request)
                    answer = b"".join(iter(lambda: connection.recv(4096), b""))
                assert answer.startswith(b"HTTP/1.1 4"), answer
                assert b"\x1b" not in answer and b"\xff" not in answer and FORGED not in answer, answer
        finally:
            process.terminate()
    check_printed(log.read_bytes())
