"""Runs one service as a process, and makes calls to it that end in a status code."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import urllib.error
import urllib.request

import grpc
from workspace import BIN, free_port, set_flags, wait_for

GENERATE = "/dapd.v1.RolloutService/Generate"


def call(channel, method, metadata=(), timeout=10):
    """Returns the status code of a unary call with an empty message; None for OK."""
    try:
        channel.unary_unary(method)(b"", metadata=metadata, timeout=timeout)
    except grpc.RpcError as error:
        return error.code()
    return None


def generate(channel, metadata=(), timeout=10):
    """Returns the status code of a Generate stream without a request."""
    try:
        list(channel.stream_stream(GENERATE)(iter(()), metadata=metadata, timeout=timeout))
    except grpc.RpcError as error:
        return error.code()
    return None


class Process:
    """A service with its log; it listens on `port` and `metrics_port`."""

    def __init__(self, program, workspace, settings, host="127.0.0.1", environment=None, arguments=()):
        self.role = program.removeprefix("dapd-")
        self.port, self.metrics_port = free_port(), free_port()
        settings = {f"{self.role}.listen": f"{host}:{self.port}", f"metrics.{self.role}_listen": f"{host}:{self.metrics_port}", **settings}
        self.log_path = workspace.folder / f"{program}-{self.port}.log"
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen([BIN / program, workspace.config, *arguments, *set_flags(settings)], stdout=log, stderr=log,
                                            env={**os.environ, **(environment or {})})

    def log(self):
        return self.log_path.read_text()

    def wait_until_ready(self):
        wait_for(lambda: "ready for" in self.log() or self.process.poll() is not None, what="ready")
        assert self.process.poll() is None, self.log()
        return self

    def resident_bytes(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(re.search(r"VmRSS:\s+(\d+)", status)[1])

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout=30) == 0, self.log()


@contextlib.contextmanager
def running(program, workspace, settings, **options):
    process = Process(program, workspace, settings, **options)
    try:
        yield process.wait_until_ready()
    finally:
        process.process.send_signal(signal.SIGTERM)
        process.process.wait(timeout=30)


def fetch(url, context=None, **headers):
    """Returns the status and text of a GET."""
    try:
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(request, context=context, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
