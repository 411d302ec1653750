"""Runs an object store on this machine, in a process that can be killed, stopped and restarted."""

import os
import signal
import socket
import subprocess
import sys
import time


class StoreServer:
    """Keeps everything in memory: a server that was killed restarts empty, on the same port.

    A derived class defines how the server is started (command, process_environment), how it is reached (SCHEME,
    environment), and how its bucket is made and read.
    """

    BUCKET = "runs"
    SCHEME = ""

    def __init__(self, folder):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port = listener.getsockname()[1]
        self.folder, self.process = folder, None

    def command(self, denies):
        raise NotImplementedError

    def process_environment(self, denies):
        return {}

    def environment(self, port=None):
        """Returns the environment with which a client finds the server, or a proxy at `port`."""
        raise NotImplementedError

    def make_bucket(self):
        raise NotImplementedError

    def objects(self, prefix):
        """Returns the names and bytes of the objects below BUCKET/prefix."""
        raise NotImplementedError

    def start(self, denies=False):
        """Starts the server with a bucket; with `denies` it refuses every later request."""
        log_path = self.folder / f"{self.SCHEME}-server.log"
        with open(log_path, "a") as log:
            self.process = subprocess.Popen([sys.executable, *self.command(denies)], stdout=log, stderr=log,
                                            env={**os.environ, **self.process_environment(denies)})
        deadline = time.monotonic() + 120
        try:
            while not self.answers():
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise AssertionError(log_path.read_text())
                time.sleep(0.05)
            self.make_bucket()
        except BaseException:
            self.kill()
            raise
        return self

    def answers(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            return True
        except OSError:
            return False

    def url(self, name="", bucket=None):
        return f"{self.SCHEME}://{bucket or self.BUCKET}/{name}".rstrip("/")

    def suspend(self):
        self.process.send_signal(signal.SIGSTOP)

    def wake(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
