"""A command that writes a file or a folder aside and is stopped leaves nothing of it."""

import json
import os
import signal
import subprocess

import pytest

from hold import Hold
from workspace import BIN, ROOT, wait_for

COMMANDS = {
    "tokenize": ["--model", "MODEL", "--input", "INPUT"],
    "render": ["--model", "MODEL", "--input", "INPUT"],
    "grade": ["--input", "INPUT"],
    "problems": ["--task", "unit_conversion", "--count", "10"],
    "generate": ["--model", "MODEL", "--input", "INPUT", "--max-new-tokens", "2"],
    "adapter merge": ["--model", "MODEL", "--adapter", "ADAPTER"],
}


@pytest.fixture(scope="module")
def adapter(workspace):
    workspace.dapd("adapter", "init", "--model", workspace.model, "--rank", 2, "--output", workspace.folder / "stopped-adapter")
    return workspace.folder / "stopped-adapter"


def stop(command, environment, folder, has_begun, number):
    """Returns the code of the command, which was told to stop once it had begun to write."""
    # SIGINT has its default, as from a shell, also if the tests run in the background.
    with subprocess.Popen(["env", "--default-signal=INT,HUP", *map(str, command)], env=os.environ | environment,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        wait_for(lambda: has_begun(folder) or process.poll() is not None, what="something written aside")
        assert process.poll() is None, process.stdout.read()
        process.send_signal(number)
        return process.wait(60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_is_stopped_leaves_what_was_there_and_nothing_more(workspace, adapter, tmp_path, command, number):
    row = {"id": "a", "text": "x", "answer": "1", "problem": "What is 1 + 1?", "messages": [{"role": "user", "content": "x"}], "ids": [1, 2]}
    given = {"MODEL": workspace.model, "ADAPTER": adapter, "INPUT": tmp_path / "input.jsonl"}
    given["INPUT"].write_text(json.dumps(row) + "\n")
    folder = tmp_path / "written"
    folder.mkdir()
    if command != "adapter merge":  # it does not overwrite the file
        (folder / "out").write_text("old")
    arguments = [given.get(argument, argument) for argument in COMMANDS[command]]
    code = stop([BIN / "dapd", *command.split(), *arguments, "--output", folder / "out"],
                {"DAPD_FAILPOINTS": Hold(tmp_path / "hold").at("file.before_rename", 1)},
                folder, lambda folder: list(folder.glob("out.tmp-*")), number)
    assert code == -number
    assert {path.name: path.read_text() for path in folder.iterdir()} == ({} if command == "adapter merge" else {"out": "old"})


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_script_that_is_stopped_leaves_no_model_that_is_not_whole(tmp_path, number):
    script = ("import sys, time, model_folder\n"
              "with model_folder.written_aside(sys.argv[1]) as aside:\n"
              "    (aside / 'config.json').touch()\n"
              "    time.sleep(60)\n")
    code = stop([ROOT / ".deps/venv/bin/python", "-c", script, tmp_path / "model"], {"PYTHONPATH": str(ROOT / "deploy")},
                tmp_path, lambda folder: list(folder.glob("model.tmp-*/config.json")), number)
    assert code != 0 and list(tmp_path.iterdir()) == []


def test_what_a_script_with_the_same_number_left_when_it_was_killed_is_in_nobodys_way(tmp_path):
    script = ("import os, pathlib, sys, model_folder\n"
              "left = pathlib.Path(f'{sys.argv[1]}.tmp-{os.getpid()}')\n"
              "left.mkdir()\n"
              "(left / 'half').touch()\n"
              "with model_folder.written_aside(sys.argv[1]) as aside:\n"
              "    (aside / 'config.json').touch()\n")
    subprocess.run([ROOT / ".deps/venv/bin/python", "-c", script, tmp_path / "model"], check=True, timeout=60,
                   env=os.environ | {"PYTHONPATH": str(ROOT / "deploy")})
    assert [path.name for path in tmp_path.iterdir()] == ["model"] and [path.name for path in (tmp_path / "model").iterdir()] == ["config.json"]
