"""The template interpreter against transformers' apply_chat_template (jinja2)."""

import json
import random

import pytest
import transformers

from conftest import read_jsonl, run_dapd, write_jsonl
from make_qwen_tokenizer import package_folder

NUM_CONVERSATIONS = 400
CONTENTS = [
    "What is 2 + 2?", "", " spaced ", "\n\nlines\n", "<think>\nhidden\n</think>\n\nshown", "a</think>b", "<think>open", "x\ny",
    "<tool_response>r</tool_response>", "quote \" ' \\ {{ braces }} {% tag %}", "\u00e9\u4e2d\U0001f600", "tab\tend ",
]


def random_conversation(rng):
    messages = []
    if rng.random() < 0.3:
        messages.append({"role": "system", "content": rng.choice(CONTENTS)})
    for turn in range(rng.randint(1, 5)):
        role = "user" if turn % 2 == 0 else "assistant"
        messages.append({"role": role, "content": rng.choice(CONTENTS)})
    row = {"messages": messages, "add_generation_prompt": rng.random() < 0.5}
    thinking = rng.choice([None, True, False])
    if thinking is not None:
        row["enable_thinking"] = thinking
    return row


@pytest.mark.parametrize("name", ["qwen3", "smollm2", "qwen2_5", "llama3", "llama3_1", "llama3_2", "qwen3_instruct_2507",
                                  "qwen3_training", "qwen2_5_training", "llama3_training", "qwen3_instruct_2507_training"])
def test_conversations_render_and_tokenize_alike(name, qwen_folder, smollm2_folder, tmp_path):
    source = smollm2_folder if name == "smollm2" else qwen_folder
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / file).write_bytes((source / file).read_bytes())
    if name not in ("qwen3", "smollm2"):
        template = package_folder("trl") / "chat_templates" / f"{name}.jinja"
        (tmp_path / "chat_template.jinja").write_text(template.read_text())
        config = json.loads((tmp_path / "tokenizer_config.json").read_text())
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({**config, "bos_token": "<|endoftext|>"}))
    oracle = transformers.AutoTokenizer.from_pretrained(tmp_path)
    rng = random.Random(3)
    rows = [random_conversation(rng) for _ in range(NUM_CONVERSATIONS)]
    write_jsonl(tmp_path / "in", rows)
    run_dapd("render", "--model", tmp_path, "--input", tmp_path / "in", "--output", tmp_path / "out")
    wrong = 0
    for row, ours in zip(rows, read_jsonl(tmp_path / "out"), strict=True):
        extra = {"enable_thinking": row["enable_thinking"]} if "enable_thinking" in row else {}
        # Ours have no clock: the template's own date stands in every prompt, today and when a run is resumed.
        date = {"date_string": "26 Jul 2024"} if name == "llama3_2" else {}
        options = {"add_generation_prompt": row["add_generation_prompt"], **extra, **date}
        text = oracle.apply_chat_template(row["messages"], tokenize=False, **options)
        ids = oracle(text, add_special_tokens=False)["input_ids"]
        if ours["text"] != text or ours["ids"] != ids:
            wrong += 1
            print(repr(ours["text"]), repr(text), sep="\n")
    print(f"{name}: {wrong} of {len(rows)} conversations differ")
    assert wrong == 0


@pytest.mark.parametrize(
    "template, expected",
    [
        ("{% macro f() %}{% endmacro %}", "'macro'"),
        ("line\n{{ messages | shuffle }}", "line 2: the filter 'shuffle'"),
        ("{{ messages[0].content.encode() }}", "the method 'encode'"),
        ("{{ lipsum() }}", "the function 'lipsum'"),
        ("{% if messages is divisibleby(2) %}{% endif %}", "the test 'divisibleby'"),
        ("{% for m in messages %}", "endfor"),
        ("{{ 'open", "never closed"),
        ("{{ messages.__class__.x.y }}", "undefined"),
        ("{{ raise_exception('no system role') }}", "no system role"),
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "too many steps"),
        ("{% set ns = namespace(x='ab') %}{% for a in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", "too large"),
    ],
)
def test_what_is_unknown_or_hostile_is_one_clear_error(template, expected, qwen_folder, tmp_path):
    (tmp_path / "tokenizer.json").write_bytes((qwen_folder / "tokenizer.json").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    write_jsonl(tmp_path / "in", [{"messages": [{"role": "user", "content": "x"}]}])
    result = run_dapd("render", "--model", tmp_path, "--input", tmp_path / "in", "--output", tmp_path / "out", check=False, timeout=120)
    assert result.returncode in (1, 4), result
    assert expected in result.stderr, result.stderr
    assert not (tmp_path / "out").exists()
