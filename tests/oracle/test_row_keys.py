"""Rows of JSON Lines that commands read: every unknown key is reported, and a bad row gives one plain sentence."""

import json

import pytest
import transformers

import models
from conftest import read_jsonl, run_dapd, write_jsonl

USER = {"role": "user", "content": "What is 2 + 2?"}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    models.make_model(folder, "qwen3")
    return folder


@pytest.fixture
def call(model, tmp_path):
    """Returns a function that gives a command's output for `rows`, and its messages."""

    def run(command, rows, *flags, code=0):
        rows_path, output = write_jsonl(tmp_path / "rows.jsonl", rows), tmp_path / "output"
        output.unlink(missing_ok=True)
        needs_model = [] if command in ("grade", "probe claims") else ["--model", model]
        result = run_dapd(*command.split(), *needs_model, "--input", rows_path, "--output", output, *flags, check=False)
        assert result.returncode == code, result.stderr
        assert code == 0 or not output.exists()
        assert "json.exception" not in result.stderr
        return read_jsonl(output) if code == 0 and command != "score" else None, result.stderr

    return run


ROW_KEYS = {
    "documents": [{"title": "t", "text": "x"}], "chat_template_kwargs": {"enable_thinking": False}, "continue_final_message": True, "system": "Be brief.", "reasoning_effort": "high",
}


@pytest.mark.parametrize("command", ["render", "generate"])
def test_keys_that_would_change_the_prompt_are_refused(command, call):
    good = {"id": "g", "messages": [USER]}
    for key, value in ROW_KEYS.items():
        _, said = call(command, [good, {**good, "id": "b", key: value}], code=4)
        assert f"rows.jsonl:2: '{key}' would change the prompt" in said, said


def test_keys_without_a_value_and_others_change_nothing(model, call):
    oracle = transformers.AutoTokenizer.from_pretrained(model)
    answer = {"role": "assistant", "content": "4", "tool_calls": None, "reasoning_content": "", "weight": 1}
    rows = [{"messages": [USER, answer, USER], "tools": [], "documents": None, "source": "s", "enable_thinking": None}] * 2
    written, said = call("render", rows)
    plain = [USER, {"role": "assistant", "content": "4"}, USER]
    assert [row["text"] for row in written] == [oracle.apply_chat_template(plain, tokenize=False)] * 2
    assert said.count("keys that are not read: source (first in") == 1 and "tools" not in said


@pytest.mark.parametrize("command, row, unknown", [
    ("tokenize", {"text": "a"}, {"add_special_tokens": False}),
    ("score", {"id": "a", "input_ids": [1, 2]}, {"attention_mask": [1, 0]}),
    ("generate --max-new-tokens 1", {"id": "a", "input_ids": [1, 2]}, {"temperature": 2.0}),
    ("generate --max-new-tokens 1", {"id": "a", "messages": [USER]}, {"max_tokens": 7}),
    ("grade", {"id": "a", "text": "\\boxed{1}", "answer": "1"}, {"solution": "x"}),
    ("probe claims", {"id": "a", "text": "\\boxed{1}", "answer": "1"}, {"references": ["x"]}),
])
def test_a_key_that_no_command_reads_is_named_once(command, row, unknown, call):
    key = next(iter(unknown))
    name, *flags = command.split(" --")
    flags = [part for flag in flags for part in f"--{flag}".split()]
    _, said = call(name, [{**row, "id": str(i), **unknown} if "id" in row else {**row, **unknown} for i in range(2)], *flags)
    assert said.count(f"keys that are not read: {key} (first in") == 1, said
    _, said = call(name, [row], *flags)
    assert "not read" not in said, said


def test_what_eval_writes_is_graded_without_a_word(call):
    row = {"id": "a", "index": 0, "sample": 0, "text": "\\boxed{1}", "answer": "1", "extracted": "1", "has_box": True, "correct": True, "tokens": 3,
           "finish_reason": "end", "repeated": False}
    for command in ("grade", "probe claims"):
        assert "not read" not in call(command, [row])[1]


@pytest.mark.parametrize("row, said", [
    ({"messages": []}, "rows.jsonl:1: there is no message in messages"),
    ({"messages": "hello"}, "rows.jsonl:1: a row needs a list of messages"),
    ({"text": "hello"}, "rows.jsonl:1: a row needs a list of messages"),
    ([USER], "rows.jsonl:1: a row needs a list of messages"),
    ({"messages": [{"role": "user"}]}, "rows.jsonl:1: message 1 has no content"),
    ({"messages": [USER, {"role": "user", "content": None}]}, "rows.jsonl:1: message 2 has null as its content"),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}, "rows.jsonl:1: message 1 has array as its content"),
    ({"messages": [{"content": "a"}]}, "rows.jsonl:1: message 1 has no role"),
    ({"messages": ["a"]}, "rows.jsonl:1: message 1 is string, not an object"),
    ({"messages": [USER], "tools": "f"}, "rows.jsonl:1: tools "),
    ({"messages": [USER], "tools": [5]}, "rows.jsonl:1: tools holds a list of tools with number"),
    ({"messages": [{"role": "assistant", "content": 4, "tool_calls": [{}]}]}, "rows.jsonl:1: message 1 has number as its content"),
    ({"messages": [USER], "add_generation_prompt": "yes"}, "rows.jsonl:1: add_generation_prompt is neither true nor false"),
    ({"messages": [USER], "enable_thinking": 1}, "rows.jsonl:1: enable_thinking is neither true nor false"),
])
def test_a_row_that_is_no_conversation_is_one_sentence(row, said, call):
    assert said in call("render", [row], code=4)[1]


@pytest.mark.parametrize("command, row, said", [
    ("generate", {"id": "a", "input_ids": [1], "messages": [USER]}, "both input_ids and messages"),
    ("generate", {"id": "a", "messages": [USER], "add_generation_prompt": False}, "add_generation_prompt is not true"),
    ("generate", {"messages": [USER]}, "key 'id' not found"),
    ("tokenize", {"txt": "a"}, "a row needs text: key 'text' not found"),
    ("tokenize", {"text": 1}, "a row needs text: type must be string, but is number"),
    ("score", {"id": "a"}, "a row needs id and input_ids: key 'input_ids' not found"),
    ("grade", {"id": "a", "text": "b"}, "a row needs id, text and answer, and 'answer'"),
])
def test_a_row_that_a_command_cannot_read_is_one_sentence(command, row, said, call):
    _, error = call(command, [row], code=4)
    assert "rows.jsonl:1: " in error and said in error, error


def test_a_line_that_is_no_json_is_one_sentence(tmp_path, model):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "a"}\n{"text": }\n')
    error = run_dapd("tokenize", "--model", model, "--input", path, "--output", tmp_path / "o", check=False).stderr
    assert "rows.jsonl:2: not valid JSON: " in error and "json.exception" not in error


def test_eval_needs_no_solutions(model, tmp_path):
    """OlympiadBench's solutions are lists."""
    rows = [{"problem": f"{i}?", "solution": [f"It is {i}."], "answer": str(i)} for i in range(2)]
    result = run_dapd("eval", "--model", model, "--data", write_jsonl(tmp_path / "rows.jsonl", rows), "--max-new-tokens", "2", "--json")
    assert json.loads(result.stdout)["problems"] == 2
