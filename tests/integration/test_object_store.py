"""common/copy/object_store.py as the copying process, with servers on this machine."""

import hashlib
import importlib.util
import json
import os
import random
import resource
import subprocess
import sys

import pytest

from stores import SERVERS, either
from workspace import ROOT

# The file is larger than one block of an upload, and its size is not a multiple of a block.
LONG = (17 << 20) + 12345
CONTENTS = {
    "long": random.Random(1).randbytes(LONG),
    "short": random.Random(2).randbytes(1000),
    # Names that an upload in parts might use itself.
    "lines": b"\r\n\r\n--==0==--\r\n\xff\x00 \n\r",
    "empty": b"",
}


class Copier:
    def __init__(self, url, environment, largest_file=resource.RLIM_INFINITY):
        self.process = subprocess.Popen([sys.executable, ROOT / "common/copy/object_store.py", url], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env={**os.environ, **environment},
                                        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, resource.RLIM_INFINITY)))
        self.greeting = json.loads(self.process.stdout.readline())

    def ask(self, op, **row):
        """Returns its last answer; the earlier parts of a list are joined to it."""
        self.process.stdin.write(json.dumps({"op": op, **row}) + "\n")
        self.process.stdin.flush()
        names = {}
        while True:
            answer = json.loads(self.process.stdout.readline())
            names.update(answer.get("names", {}))
            if not answer.get("more") and "moved" not in answer:
                return {**answer, "names": names} if names else answer

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def content(data):
    return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


@pytest.fixture(scope="module")
def store(request, tmp_path_factory):
    made = SERVERS[request.param](tmp_path_factory.mktemp("store")).start()
    yield made
    made.kill()


@pytest.fixture(scope="module")
def copier(store):
    made = Copier(store.url("copy"), store.environment())
    assert "ready" in made.greeting, made.greeting
    yield made
    made.close()


@either("store")
def test_what_is_sent_comes_back(store, copier, tmp_path):
    assert copier.ask("list", under="objects") == {"names": {}, "more": False}
    assert copier.ask("read", name="owner", limit=10)["kind"] == "missing"
    assert copier.ask("write", name="owner", text="grün") == {"done": True}
    assert copier.ask("read", name="owner", limit=10) == {"text": "grün"}
    assert copier.ask("read", name="owner", limit=4)["kind"] == "changed"
    for name, data in CONTENTS.items():
        (tmp_path / name).write_bytes(b"head" + data)
        row = {"name": f"objects/{name}", **content(data)}
        assert copier.ask("put", path=str(tmp_path / name), offset=4, **row) == {"done": True}, name
        assert copier.ask("check", **row) == {"done": True}
        assert copier.ask("check", **{**row, "sha256": "0" * 64}) == {"done": False}
        assert copier.ask("get", path=str(tmp_path / f"{name}-back"), offset=0, **row) == {"done": True}
        assert (tmp_path / f"{name}-back").read_bytes() == data
    names = copier.ask("list", under="objects")["names"]
    assert {name: size for name, (size, _) in names.items()} == {f"objects/{name}": len(data) for name, data in CONTENTS.items()}
    assert all(-5 < age < 300 for _, age in names.values())
    # This is what another client of the same store sees.
    assert store.objects("copy/objects") == CONTENTS
    assert copier.ask("remove", names=["objects/long", "objects/none"]) == {"done": True}
    assert copier.ask("check", name="objects/long", **content(CONTENTS["long"])) == {"done": False}


@either("store")
def test_a_file_that_changed_meanwhile_becomes_no_object(store, copier, tmp_path):
    for name in ("short", "long"):
        (tmp_path / name).write_bytes(CONTENTS[name])
        row = {"name": f"changed/{name}", **content(CONTENTS[name]), "path": str(tmp_path / name), "offset": 0}
        assert copier.ask("put", **{**row, "sha256": "0" * 64})["kind"] == "changed"
        assert copier.ask("put", **{**row, "bytes": row["bytes"] + 1})["kind"] == "changed"
    assert copier.ask("list", under="changed")["names"] == {}


@either("store")
def test_an_object_that_was_damaged_is_found_out(store, copier, tmp_path):
    whole = CONTENTS["short"]
    for name, data in {"bit": bytes([whole[0] ^ 1]) + whole[1:], "cut": whole[:-1]}.items():
        store.damage("copy", f"damaged/{name}", data)
        checked = copier.ask("check", name=f"damaged/{name}", **content(whole))
        assert checked == {"done": False} or checked["kind"] == "changed", checked
        got = copier.ask("get", name=f"damaged/{name}", path=str(tmp_path / name), offset=0, **content(whole))
        assert got["kind"] == "changed", got


@either("store")
def test_a_bucket_that_is_missing_is_no_empty_one(store):
    copier = Copier(store.url("copy", bucket="nobody-made-it"), store.environment())
    try:
        missing = copier.ask("list", under="")
        assert missing["kind"] == "unusable" and "there is no bucket nobody-made-it" in missing["error"]
    finally:
        copier.close()


@either("store")
def test_whoever_may_not_is_told_so_and_nothing_secret(store, tmp_path):
    server = type(store)(tmp_path)
    server.start(denies=True)
    copier = Copier(server.url("copy"), server.environment())
    try:
        for op in ({"op": "list", "under": ""}, {"op": "read", "name": "x", "limit": 1}, {"op": "write", "name": "x", "text": "y"}):
            denied = copier.ask(**op)
            assert denied["kind"] == "denied", denied
            assert server.SECRET not in denied["error"]
    finally:
        copier.close()
        server.kill()


@pytest.mark.parametrize("store", ["gs"], indirect=True)
@pytest.mark.parametrize("text", [None, "no JSON"])
def test_a_key_that_cannot_be_read_does_not_become_nobody(store, tmp_path, text):
    key = tmp_path / "key.json"
    if text is not None:
        key.write_text(text)
    copier = Copier(store.url("copy"), {**store.environment(), "GOOGLE_APPLICATION_CREDENTIALS": str(key)})
    copier.close()
    assert copier.greeting["kind"] == "denied" and "ready" not in copier.greeting, copier.greeting


@pytest.mark.parametrize("store", ["s3"], indirect=True)
@pytest.mark.parametrize("profile", ["sso_start_url=https://x/start\nsso_region=a\nsso_account_id=1\nsso_role_name=r",
                                     "credential_process=/bin/false"])
def test_a_login_that_has_ended_is_a_denial(store, tmp_path, profile):
    (tmp_path / "config").write_text(f"[default]\n{profile}\n")
    environment = {**store.environment(), "AWS_CONFIG_FILE": str(tmp_path / "config"), "HOME": str(tmp_path)}
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        environment[name] = ""
    copier = Copier(store.url("copy"), environment)
    try:
        denied = copier.ask("list", under="")
        assert denied["kind"] == "denied", denied
    finally:
        copier.close()


@pytest.mark.parametrize("store", ["gs"], indirect=True)
def test_nobody_is_denied(store):
    environment = {**store.environment(), "GOOGLE_APPLICATION_CREDENTIALS": "", "CLOUDSDK_CONFIG": "/nonexistent", "NO_GCE_CHECK": "true"}
    copier = Copier(store.url("copy"), environment)
    try:
        denied = copier.ask("list", under="")
        assert denied["kind"] == "denied" and "Anonymous caller" in denied["error"], denied
    finally:
        copier.close()


def test_a_disk_is_slow_for_no_longer_than_it_writes_a_block(tmp_path, monkeypatch):
    path = ROOT / "common/copy/object_store.py"
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location("object_store", path))
    module.__spec__.loader.exec_module(module)
    import fsspec.implementations.local  # noqa: F401, as its main does

    written, longest = 0, 0

    def say(message):
        nonlocal written, longest
        written += message["moved"]
        longest = max(longest, written)

    def sync(descriptor):
        nonlocal written
        written = 0

    monkeypatch.setattr(os, "fdatasync", sync)
    source = tmp_path / "source"
    source.write_bytes(3 * CONTENTS["long"])
    module.Store(str(tmp_path / "copy"), say).put({"name": "x", "path": str(source), "offset": 0, **content(source.read_bytes())})
    assert longest <= module.BLOCK


def test_a_disk_that_takes_no_more_is_told_apart_and_what_was_cut_off_is_listed(tmp_path):
    source, data = tmp_path / "source", CONTENTS["long"]
    source.write_bytes(data)
    row = {"name": "objects/long", **content(data)}
    left = tmp_path / "copy/objects/long.1.part"  # by a process that was killed
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    copier = Copier(str(tmp_path / "copy"), {})
    try:
        assert copier.ask("put", path=str(source), offset=0, **row) == {"done": True}
        assert list(copier.ask("list", under="")["names"]) == ["objects/long", "objects/long.1.part"]
    finally:
        copier.close()
    full = Copier(str(tmp_path / "copy"), {}, largest_file=1 << 20)
    try:
        assert full.ask("get", path=str(tmp_path / "target"), offset=0, **row)["kind"] == "full"
        assert full.ask("put", path=str(source), offset=0, **row)["kind"] == "full"
    finally:
        full.close()
