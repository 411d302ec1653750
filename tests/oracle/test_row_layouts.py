"""Rows as public data sets have them: every format of file gives the same problems, and prompts are those of transformers."""

import json
import random
import re

import pyarrow
import pyarrow.parquet
import pytest
import transformers

import models
from conftest import read_jsonl, run_dapd
from make_qwen_tokenizer import package_folder
from row_layouts import LAYOUTS, chat

PLAIN = {"prompts.none": "{problem}", "prompts.privileged": "{problem}\n\n{reference}"}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    models.make_model(folder, "qwen3")
    return folder


def set_flags(settings):
    return [part for key, value in settings.items() for part in ("--set", f"{key}={json.dumps(value)}")]


@pytest.fixture
def dapd(tmp_path):
    def run(command, model, settings, *flags, code=0):
        (tmp_path / "config.yaml").write_text(f"model: {{path: {model}}}\nrollout: {{max_new_tokens: 256}}\n")
        config = ["--config", tmp_path / "config.yaml"] if command == "views" else [tmp_path / "config.yaml"]
        result = run_dapd(command, *config, *set_flags(settings), *flags, check=False)
        assert result.returncode == code, result.stderr
        return result

    return run


@pytest.fixture
def shown(dapd, tmp_path):
    """Returns a function that gives the rows of a data file as `dapd views` shows them."""

    def views(model, path, settings):
        dapd("views", model, {"data.path": str(path), **settings}, "--rows", "100", "--output", tmp_path / "views.jsonl")
        return read_jsonl(tmp_path / "views.jsonl")

    return views


def write_all_formats(folder, rows):
    """Returns files of the same rows in every format that is read."""
    table = pyarrow.Table.from_pylist(rows)
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "a.json").write_text(json.dumps(rows, indent=1))
    pyarrow.parquet.write_table(table, folder / "a.parquet")
    with pyarrow.ipc.new_stream(str(folder / "a.arrow"), table.schema) as writer:
        writer.write_table(table)
    return [folder / name for name in ("a.jsonl", "a.json", "a.parquet", "a.arrow")]


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_is_read_alike_from_every_format(name, model, shown, tmp_path):
    rows, settings, expected = LAYOUTS[name]
    seen = []
    for path in write_all_formats(tmp_path, rows):
        read = shown(model, path, settings)
        for row in read:
            del row["where"]
        seen.append(read)
    assert [(row["problem"], row["reference"], row.get("answer"), row.get("material")) for row in seen[0]] == expected
    assert seen[1:] == seen[:1] * 3


WEATHER = {"type": "function", "function": {
    "name": "weather", "description": "Says <b>weather</b> & \u00e9", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "description": "a 'city'"}, "days": {"type": "integer"}}, "required": ["city"]}}}
CALL = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "weather", "arguments": {"city": "Ulm", "days": 1}}}]}
CONVERSATIONS = [
    chat("1 + 1?", "2"),
    chat("1 + 1?", "2", "And 2 + 2?", "4", "Thanks. 3 + 3?", "6"),
    [{"role": "system", "content": "Be brief."}, *chat("1 + 1?", "2", "2 + 2?", "4")],
    [*chat("Weather?"), CALL, {"role": "tool", "content": "sunny, 21.0 \u00b0C"}, {"role": "assistant", "content": "Sunny."}],
    [*chat("Hi", "Hello!", "Weather in \u00c9vry?"), {**CALL, "content": "I look."}, {"role": "tool", "content": '{"t": 1}'},
     CALL, {"role": "tool", "content": "rain"}, {"role": "assistant", "content": "Rain."}],
]


@pytest.mark.parametrize("name", ["qwen3", "qwen2_5", "qwen3_instruct_2507", "llama3_1", "glm4moe"])
@pytest.mark.parametrize("thinking", [False, True])
def test_prompts_with_tools_are_those_of_transformers(name, thinking, model, shown, tmp_path):
    folder = model
    if name != "qwen3":
        folder = tmp_path / "model"
        folder.mkdir()
        for file in model.iterdir():
            (folder / file.name).symlink_to(file)
        (folder / "chat_template.jinja").unlink(missing_ok=True)
        (folder / "chat_template.jinja").write_text((package_folder("trl") / "chat_templates" / f"{name}.jinja").read_text())
    oracle = transformers.AutoTokenizer.from_pretrained(folder)
    rng = random.Random(7)
    rows = []
    for messages in CONVERSATIONS:
        tools = [WEATHER] * rng.randint(1, 2) if any("tool_calls" in message for message in messages) else rng.choice([None, [WEATHER]])
        rows.append({"messages": messages, "tools": tools})
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = {**PLAIN, "data.messages_column": "messages", "data.tools_column": "tools", "prompts.thinking": thinking}
    read = shown(folder, tmp_path / "rows.jsonl", settings)
    for row, ours in zip(rows, read, strict=True):
        options = {"tokenize": False, "tools": row["tools"], "enable_thinking": thinking}
        prompt = oracle.apply_chat_template(row["messages"][:-1], add_generation_prompt=True, **options)
        assert ours["texts"]["none_rollout"] == prompt
        assert ours["views"]["none_rollout"]["input_ids"] == oracle(prompt, add_special_tokens=False)["input_ids"]
        # Only the answer behind the last prompt is scored.
        reference = ours["views"]["none_reference"]
        scored = oracle.decode(reference["input_ids"][reference["scored_from"]:])
        answer = row["messages"][-1]["content"]
        assert answer in scored and len(scored) < len(answer) + 60 and row["messages"][-2]["content"] not in scored, scored
        assert reference["scored_from"] + reference["scored_count"] == len(reference["input_ids"])
    print(f"{name}: {len(rows)} prompts equal transformers', error 0")


def test_a_template_without_a_system_message_is_one_error_at_the_start(model, dapd, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for file in model.iterdir():
        (folder / file.name).symlink_to(file)
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    (folder / "chat_template.jinja").write_text(
        "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
        "{% for message in messages %}{{ message.content }}{% endfor %}")
    rows = [{"problem": "1?", "solution": "1"}, {"problem": "2?", "solution": "2"}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {"data.path": str(tmp_path / "rows.jsonl")}
    for key in ("data.system", "prompts.system"):
        said = dapd("check", folder, {**data, key: "Be brief."}, code=3).stderr
        assert said.count("\n") == 1 and f"{key}: the chat template does not take a system message" in said, said
        assert "System role not supported" in said, said
    chats = [{"messages": chat("1?", "1")}, {"messages": [{"role": "system", "content": "s"}, *chat("1?", "1")]}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chats))
    data["data.messages_column"] = "messages"
    said = dapd("check", folder, data, code=4).stderr
    assert "1 of 2 rows cannot become prompts" in said and "rows.jsonl:2: problem '1'" in said, said
    assert "1 problems, 1 rows skipped" in dapd("check", folder, {**data, "data.on_bad_row": "skip"}).stdout


def test_check_shows_the_first_row_and_recognises_conversations(model, dapd, tmp_path):
    (tmp_path / "rows.jsonl").write_text(json.dumps({"conversations": chat("a", "b", "1?", "one", form="sharegpt"), "hint": "H"}) + "\n")
    data = {"data.path": str(tmp_path / "rows.jsonl")}
    said = dapd("check", model, data, code=4).stderr
    assert said.count("\n") == 1 and "there is no column 'problem'" in said and "ShareGPT's form, which data.messages_column: conversations reads" in said
    data |= {**PLAIN, "data.messages_column": "conversations", "prompts.none": "{problem} {hint}"}
    printed = dapd("check", model, data).stdout
    assert re.search(r"\nfirst row +\S+rows.jsonl:1, id 0\n +beside +2 messages before the problem, \{hint\} of 1 byte\n +reference +one\n", printed), printed
    assert "prompt         <|im_start|>user\\na<|im_end|>\\n<|im_start|>assistant\\nb<|im_end|>\\n<|im_start|>user\\n1? H<|im_end|>" in printed, printed
