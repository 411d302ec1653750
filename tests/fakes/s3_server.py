"""An S3 server of this machine: moto's, in a process that can be killed, stopped and started anew."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request


class S3Server:
    """Everything is in memory: a server that was killed comes back empty, on the same port."""

    BUCKET = "runs"

    def __init__(self, folder):
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port = listener.getsockname()[1]
        self.folder, self.process = folder, None

    def environment(self, port=None):
        """What a client needs to find the server, behind `port` if there is something between."""
        return {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port or self.port}", "AWS_ACCESS_KEY_ID": "tests-key", "AWS_SECRET_ACCESS_KEY": "tests-secret",
                "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null",
                "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}

    def start(self, denies=False):
        """With a bucket; with `denies` it then knows nobody's key."""
        environment = {**os.environ, **({"INITIAL_NO_AUTH_ACTION_COUNT": "1"} if denies else {})}
        with open(self.folder / "s3-server.log", "a") as log:
            self.process = subprocess.Popen([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)], stdout=log, stderr=log,
                                            env=environment)
        deadline = time.monotonic() + 120
        while not self.answers():
            if time.monotonic() > deadline or self.process.poll() is not None:
                self.kill()
                raise AssertionError((self.folder / "s3-server.log").read_text())
            time.sleep(0.05)
        urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{self.port}/{self.BUCKET}", method="PUT"), timeout=30).close()
        return self

    def answers(self):
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            return True
        except OSError:
            return False

    def url(self, name=""):
        return f"s3://{self.BUCKET}/{name}".rstrip("/")

    def client(self):
        import boto3

        return boto3.client("s3", endpoint_url=f"http://127.0.0.1:{self.port}", region_name="us-east-1", aws_access_key_id="tests-key",
                            aws_secret_access_key="tests-secret")

    def objects(self, prefix):
        """Names and bytes of what lies below s3://BUCKET/prefix."""
        client = self.client()
        found = {}
        try:
            for page in client.get_paginator("list_objects_v2").paginate(Bucket=self.BUCKET, Prefix=prefix + "/"):
                for row in page.get("Contents", []):
                    try:
                        found[row["Key"][len(prefix) + 1:]] = client.get_object(Bucket=self.BUCKET, Key=row["Key"])["Body"].read()
                    except client.exceptions.NoSuchKey:
                        pass  # removed since it was listed
        except client.exceptions.NoSuchBucket:
            pass
        return found

    def damage(self, prefix, name, data):
        self.client().put_object(Bucket=self.BUCKET, Key=f"{prefix}/{name}", Body=data)

    def remove(self, prefix, name):
        self.client().delete_object(Bucket=self.BUCKET, Key=f"{prefix}/{name}")

    def suspend(self):
        self.process.send_signal(signal.SIGSTOP)

    def wake(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
