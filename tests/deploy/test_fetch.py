"""Tests deploy/fetch.sh with a server that speaks the Hugging Face hub's protocol, and the commands that read its files."""

import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from packaging.requirements import Requirement

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("DAPD_BIN", ROOT / "build" / "bin"))
sys.path.insert(0, str(ROOT / "tests/fakes"))

from hub_server import COMMIT, HubServer  # noqa: E402

ROWS = "".join(json.dumps({"problem": f"{n} + 1?", "solution": f"It is {n + 1}.", "answer": str(n + 1)}) + "\n" for n in range(4)).encode()
# Nothing reads these files: another program's format, Mistral's own format, an earlier step.
UNREAD = ["pytorch_model.bin", "consolidated.safetensors", "consolidated-00001-of-00002.safetensors", "checkpoint-500/model.safetensors"]


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny") / "model"
    subprocess.run([sys.executable, ROOT / "deploy/make_tiny_model.py", "--output", folder], check=True, capture_output=True)
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.fixture
def hub(tiny_model):
    server = HubServer({
        "models/org/tiny": {**tiny_model, **{path: b"weights that DAPD does not read" for path in UNREAD}, "consolidated.safetensors.index.json": b"{}"},
        "datasets/org/sums": {"README.md": b"# Sums", "data/train-00000-of-00002.jsonl": ROWS, "data/train-00001-of-00002.jsonl": ROWS,
                              "data/test-00000-of-00001.jsonl": ROWS},
    })
    yield server
    server.close()


@pytest.fixture
def call(hub, tmp_path):
    """Calls a program with a cache of this test."""
    environment = {**os.environ, "HF_HOME": str(tmp_path / "hf"), "HF_ENDPOINT": hub.endpoint}
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HF_HUB_OFFLINE"):
        environment.pop(name, None)

    def call(*command):
        return subprocess.run([str(part) for part in command], env=environment, capture_output=True, text=True, timeout=240, cwd=tmp_path)

    return call


def fetch(call, *arguments):
    return call(ROOT / "deploy/fetch.sh", *arguments)


def tokenize(call, tmp_path, model):
    (tmp_path / "texts.jsonl").write_text('{"text": "1 + 1"}\n')
    return call(BIN / "dapd", "tokenize", "--model", model, "--input", tmp_path / "texts.jsonl", "--output", tmp_path / "ids.jsonl")


def check(call, tmp_path, data):
    (tmp_path / "config.yaml").write_text(
        f"model: {{path: org/tiny, precision: float32, device: cpu}}\ndata: {{path: '{data}'}}\nlora: {{rank: 4, alpha: 8}}\n"
        "objective: {max_reference_tokens: 48}\nrollout: {max_new_tokens: 16}\n")
    return call(BIN / "dapd", "check", tmp_path / "config.yaml")


def test_what_the_message_says_brings_the_model(call, hub, tmp_path):
    before = tokenize(call, tmp_path, "org/tiny@main")
    assert before.returncode == 4
    command = before.stderr.strip().split("download it with: ")[1]
    assert command == "deploy/fetch.sh model org/tiny@main"
    fetched = call(ROOT / command.split()[0], *command.split()[1:])
    assert fetched.returncode == 0, fetched.stderr
    folder = pathlib.Path(fetched.stdout.splitlines()[0])
    assert folder.name == COMMIT and not set(hub.downloads()) & set(UNREAD)
    assert tokenize(call, tmp_path, "org/tiny@main").returncode == 0
    assert tokenize(call, tmp_path, folder).returncode == 0
    hub.requests.clear()
    assert fetch(call, "model", "org/tiny@main").returncode == 0
    assert hub.downloads() == []


def test_in_a_release_it_names_the_commands_that_a_release_has(call, tmp_path):
    """A tarball has the list of packages but no deploy/install.sh."""
    for name, said in (("checkout", "run deploy/install.sh"), ("release", "python3 -m venv .deps/venv && ")):
        (tmp_path / name / "deploy").mkdir(parents=True)
        shutil.copy(ROOT / "deploy/fetch.sh", tmp_path / name / "deploy")
        if name == "checkout":
            (tmp_path / name / "deploy/install.sh").touch()
        result = call(tmp_path / name / "deploy/fetch.sh", "model", "org/tiny")
        assert result.returncode == 1 and said in result.stderr
        assert ("install.sh" in result.stderr) == (name == "checkout")
    assert f"-r deploy/requirements.txt in {tmp_path}/release" in result.stderr


def test_a_download_that_broke_off_is_one_error_and_goes_on(call, hub, tmp_path, tiny_model):
    hub.cut = {"model.safetensors"}
    broken = fetch(call, "model", "org/tiny")
    assert broken.returncode == 5 and len(broken.stderr.strip().splitlines()[-1]) < 600, broken.stderr
    half = tokenize(call, tmp_path, "org/tiny")
    assert half.returncode == 4
    assert "only partly" in half.stderr and "model.safetensors is missing" in half.stderr and "deploy/fetch.sh model org/tiny" in half.stderr
    hub.cut = set()
    hub.requests.clear()
    assert fetch(call, "model", "org/tiny").returncode == 0
    assert not set(hub.downloads()) & (set(tiny_model) - {"model.safetensors"}), "what was there is fetched again"
    assert tokenize(call, tmp_path, "org/tiny").returncode == 0


def test_data_is_found_by_its_id_and_a_glob_chooses_of_it(call, tmp_path):
    assert fetch(call, "model", "org/tiny").returncode == 0
    none = check(call, tmp_path, "org/sums")
    assert none.returncode == 4 and "deploy/fetch.sh data org/sums" in none.stderr
    assert fetch(call, "data", "org/sums").returncode == 0
    train = check(call, tmp_path, "org/sums")
    assert train.returncode == 0 and "8 problems" in train.stdout, train.stderr
    assert "reading the split train" in train.stderr
    assert "has no split 'dev'" in check(call, tmp_path, "org/sums#:dev").stderr
    chosen = check(call, tmp_path, "org/sums@main:data/train-*")
    assert chosen.returncode == 0, chosen.stderr
    assert "8 problems" in chosen.stdout


def test_a_glob_fetches_no_more_than_it_matches(call, hub, tmp_path):
    assert fetch(call, "data", "org/sums:data/test-*").returncode == 0
    assert hub.downloads() == ["data/test-00000-of-00001.jsonl"]
    assert fetch(call, "model", "org/tiny").returncode == 0
    assert check(call, tmp_path, "org/sums:data/test-*").returncode == 0
    missing = check(call, tmp_path, "org/sums:data/train-*")
    assert missing.returncode == 4 and "data/train-00000-of-00002.jsonl is missing" in missing.stderr


@pytest.mark.parametrize("arguments, code, said", [
    (["model", "org/none"], 4, "the hub has no model org/none"),
    (["model", "org/tiny@v9"], 4, "org/tiny has no revision v9"),
    (["model", "a--b/c"], 2, "is not an id"),
    (["model", "org/tiny:*.json"], 2, "glob"),
    (["models", "org/tiny"], 2, "usage: deploy/fetch.sh"),
    (["model"], 2, "usage: deploy/fetch.sh"),
])
def test_what_cannot_be_had_is_said_in_a_line(call, arguments, code, said):
    result = fetch(call, *arguments)
    assert result.returncode == code and said in result.stderr
    assert "Traceback" not in result.stderr


def test_a_gated_repository_asks_for_a_token(call, hub):
    hub.gated = {"models/org/tiny"}
    result = fetch(call, "model", "org/tiny")
    assert result.returncode == 4 and "HF_TOKEN" in result.stderr


def test_a_hub_that_does_not_answer_is_no_missing_model(call, hub):
    hub.close()
    result = fetch(call, "model", "org/tiny")
    assert result.returncode == 5 and "does not answer" in result.stderr


def test_a_path_that_is_there_is_not_fetched(call, hub, tmp_path):
    (tmp_path / "org/tiny").mkdir(parents=True)
    fetched = fetch(call, "model", "org/tiny")
    assert fetched.returncode == 0 and "nothing is fetched" in fetched.stdout, fetched.stderr
    assert hub.requests == []


def test_no_module_comes_from_the_folder_it_is_called_in(call, tmp_path):
    (tmp_path / "huggingface_hub.py").write_text("open('poisoned', 'w')\n")
    fetched = fetch(call, "model", "org/tiny")
    assert fetched.returncode == 0, fetched.stderr
    assert not (tmp_path / "poisoned").exists()


def test_the_image_that_fetches_installs_pinned_versions_only():
    """The list that the image uses as constraints must contain everything that the client requires."""
    pinned = {re.split(r"==", line)[0].lower().replace("_", "-") for line in (ROOT / "deploy/requirements.txt").read_text().splitlines() if "==" in line}
    assert "--constraint /opt/fetch/requirements.txt huggingface_hub" in (ROOT / "deploy/fetch.Dockerfile").read_text()
    needed, waiting = set(), ["huggingface-hub"]
    while waiting:
        name = waiting.pop()
        if name in needed:
            continue
        needed.add(name)
        for requirement in map(Requirement, importlib.metadata.requires(name) or []):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name.lower().replace("_", "-"))
    assert needed <= pinned, needed - pinned
    assert not any(name.startswith(("torch", "nvidia")) for name in needed)


def test_the_volume_of_the_images_command_is_its_users():
    """Docker gives a new volume to root unless the image has the folder where it is mounted."""
    text = (ROOT / "deploy/fetch.Dockerfile").read_text()
    (folder,) = re.findall(r"^#   docker run -v \w+:(/\w+) -e HF_HOME=\1 ", text, re.MULTILINE)
    (user,) = re.findall(r"^USER (\d+):\1$", text, re.MULTILINE)
    assert f"\nRUN install --directory --owner={user} --group={user} {folder}\nUSER " in text
