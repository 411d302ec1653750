"""Subcommands are listed once, in services/cli/command.h: the help text and the README follow."""

import re
import subprocess

import pytest

from workspace import BIN, ROOT


def listed():
    text = (ROOT / "services/cli/command.h").read_text()
    names = re.findall(r"^  COMMAND\((\w+)\)", text, re.MULTILINE)
    return [re.sub(r"(?<=.)([A-Z])", r"-\1", name).lower() for name in names]


def dapd(*arguments):
    return subprocess.run([BIN / "dapd", *arguments], capture_output=True, text=True, timeout=60)


def test_help_shows_the_list_in_its_order():
    names = listed()
    assert len(names) >= 14 and len(set(names)) == len(names)
    shown = dapd("--help").stdout.split("Subcommands:\n")[1]
    assert re.findall(r"^  ([\w-]+) ", shown, re.MULTILINE) == names


def test_the_table_of_the_readme_has_them_all():
    table = (ROOT / "README.md").read_text().split("| command | does |\n")[1].split("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines()[1:]]
    named = [name.split()[0] for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    assert set(named) == set(listed())


@pytest.mark.parametrize("name", listed())
def test_each_explains_itself_and_refuses_what_it_does_not_know(name):
    shown = dapd(name, "--help")
    assert shown.returncode == 0 and f"dapd {name} [OPTIONS]" in shown.stdout, shown
    wrong = dapd(name, "--no-such-option")
    assert wrong.returncode == 2 and wrong.stdout == "" and "--help" in wrong.stderr, wrong


@pytest.mark.parametrize("command, defaults", [
    (["generate"], {"--precision": "float32", "--device": "auto", "--slots": "32", "--temperature": "1", "--top-p": "1", "--top-k": "0",
                    "--max-new-tokens": "1024", "--seed": "42"}),
    (["eval"], {"--precision": "auto", "--samples": "1"}),
    (["score"], {"--precision": "float32", "--device": "auto"}),
    (["problems"], {"--split": "train", "--count": "100", "--seed": "1"}),
    (["adapter", "init"], {"--rank": "64", "--alpha": "128", "--seed": "42"}),
    (["probe", "claims"], {"--resamples": "10000", "--reach": "8"}),
])
def test_help_says_what_holds_without_an_option(command, defaults):
    shown = dapd(*command, "--help").stdout
    assert {option: re.search(rf"^  {option} .*=(\S+)", shown, re.MULTILINE)[1] for option in defaults} == defaults


@pytest.mark.parametrize("command", ["generate", "eval", "score"])
@pytest.mark.parametrize("option, value", [("--device", "gpu"), ("--precision", "fp16")])
def test_a_device_or_a_precision_that_is_none_is_a_usage_error_with_the_name_of_its_option(command, option, value):
    result = dapd(command, option, value)
    assert result.returncode == 2 and f"{option}: {value} not in {{" in result.stderr, result


def test_a_run_has_at_least_one_rank():
    for ranks in ("-3", "0"):
        refused = dapd("run", "none.yaml", "--ranks", ranks)
        assert refused.returncode == 2 and "--ranks" in refused.stderr, refused


def test_only_the_wrapper_includes_the_library():
    files = [path for folder in ("common", "services", "tests") for path in (ROOT / folder).rglob("*") if path.suffix in (".h", ".cc")]
    including = [str(path.relative_to(ROOT)) for path in files if "#include <CLI/" in path.read_text()]
    assert including == ["common/base/command_line.cc"]


@pytest.mark.parametrize("argument", ["config-reference", "--help", "--version"])
def test_what_cannot_be_printed_is_an_error(argument):
    with open("/dev/full", "w") as full:
        result = subprocess.run([BIN / "dapd", argument], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert result.returncode == 1 and "the standard output: No space left" in result.stderr, result


@pytest.mark.parametrize("arguments, said", [
    (["compare", "."], "holds no run"),
    (["runs", "list", "none"], "none is not a folder"),
    (["problems", "--task", "stepwise_sum", "--output", "."], "is a folder"),
    (["problems", "--task", "stepwise_sum", "--output", "/dev/null/x"], "Not a directory"),
    (["grade", "--input", ".", "--output", "out"], "is a folder"),
])
def test_a_path_that_cannot_be_is_named(tmp_path, arguments, said):
    result = subprocess.run([BIN / "dapd", *arguments], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert result.returncode == 4 and said in result.stderr and result.stderr.count("\n") == 1, result
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments, option", [
    (["run", ""], "config"),
    (["health", ""], "address"),
    (["compare", "first", ""], "runs"),
    (["runs", "list", ""], "folder"),
    (["problems", "--task", "stepwise_sum", "--output", ""], "--output"),
    (["eval", "--model", "m", "--data", "d", "--adapter", ""], "--adapter"),
    (["eval", "--model", "m", "--data", "d", "--workers", ""], "--workers"),
    (["eval", "--model", "m", "--data", "d", "--output", ""], "--output"),
    (["score", "--model", "m", "--input", "i", "--output", "o", "--adapter", ""], "--adapter"),
    (["replay", "--config", "c", "--batch", "b", "--output", "o", "--snapshot", ""], "--snapshot"),
    (["compare", "first", "--output", ""], "--output"),
    (["compare", "first", "--figures", ""], "--figures"),
    (["eval", "--model", "m", "--data", "d", "--marker", ""], "--marker"),
    (["check", "config", "--samples", ""], "--samples"),
    (["restore", "copy", "run", "--python", ""], "--python"),
    (["grade", "--input", "i", "--output", "o", "--python", ""], "--python"),
    (["health", "127.0.0.1:1", "--service", ""], "--service"),
])
def test_an_empty_text_is_refused_with_the_name_of_its_option(tmp_path, arguments, option):
    result = subprocess.run([BIN / "dapd", *arguments], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert result.returncode == 2 and f"{option}: The value is empty" in result.stderr, result
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments, option, needed", [
    (["tokenize", "--model", "m", "--input", "i", "--output", "o", "--skip-special-tokens"], "--skip-special-tokens", "--decode"),
    (["eval", "--model", "m", "--data", "d", "--answer-timeout", "9"], "--answer-timeout", "--workers"),
    (["eval", "--model", "m", "--data", "d", "--peer-timeout", "9"], "--peer-timeout", "--workers"),
    (["eval", "--model", "m", "--data", "d", "--set", "security.insecure=true"], "--set", "--workers"),
])
def test_an_option_that_would_mean_nothing_without_another_says_so(arguments, option, needed):
    result = dapd(*arguments)
    assert result.returncode == 2 and f"{option} requires {needed}" in result.stderr, result


@pytest.mark.parametrize("arguments, option", [
    (["problems", "--task", "stepwise_sum", "--output", "o", "--count", str(2**62)], "--count"),
    (["probe", "claims", "--input", "i", "--resamples", str(2**62)], "--resamples"),
])
def test_a_number_that_no_machine_could_hold_is_refused(tmp_path, arguments, option):
    result = subprocess.run([BIN / "dapd", *arguments], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert result.returncode == 2 and f"{option}: Value {2**62} not in range" in result.stderr, result


@pytest.mark.parametrize("url", ["s3:/bucket/runs/mine", "https://example.org/runs/mine"])
def test_a_copy_that_is_of_no_store_is_not_looked_for_in_a_folder(tmp_path, url):
    result = dapd("restore", url, tmp_path / "mine")
    assert result.returncode == 2 and f"'{url}' is neither a folder nor a URL of a store" in result.stderr, result


@pytest.mark.parametrize("command", ["generate", "eval"])
def test_a_top_k_that_no_worker_could_be_told_is_refused(command):
    """Messages have 32 bits for it; this number would become 1, which means greedy answers."""
    result = dapd(command, "--top-k", str(2**32 + 1))
    assert result.returncode == 2 and "--top-k: Value 4294967297 not in range" in result.stderr, result


@pytest.mark.parametrize("command", ["generate", "score"])
def test_an_output_that_cannot_be_is_named_before_anything_is_computed(tmp_path, command):
    arguments = ["--model", tmp_path / "no-model", "--input", tmp_path / "no-input", "--output", tmp_path / "no-folder/out"]
    result = dapd(command, *arguments)
    assert result.returncode == 4 and "no-folder/out" in result.stderr, result


@pytest.mark.parametrize("command, options", [
    (["generate", "--model", "m"], ["--input"]),
    (["score", "--model", "m"], ["--input"]),
    (["render", "--model", "m"], ["--input"]),
    (["tokenize", "--model", "m"], ["--input"]),
    (["views"], ["--config", "--input"]),
    (["grade"], ["--input"]),
    (["probe", "claims"], ["--input"]),
    (["probe", "compatibility"], ["--config", "--samples"]),
])
def test_an_output_that_would_replace_what_is_read_is_refused(tmp_path, command, options):
    for read in options:
        given = []
        for option in options:
            path = tmp_path / option.strip("-")
            path.write_text('{"id": "a", "text": "x", "answer": "1"}\n')
            given += [option, path]
        output = tmp_path / "link"
        output.unlink(missing_ok=True)
        output.symlink_to(tmp_path / read.strip("-"))
        before = {path.name: path.read_text() for path in tmp_path.iterdir()}
        result = dapd(*command, *given, "--output", output)
        assert result.returncode == 2 and "link is read, and would be written over" in result.stderr, result
        assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before


def test_a_page_of_compare_replaces_no_other_file(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("run: {name: a}\n")
    result = dapd("compare", tmp_path, "--output", config)
    assert result.returncode == 2 and "config.yaml already exists and is no page of dapd compare" in result.stderr, result
    assert config.read_text() == "run: {name: a}\n"
