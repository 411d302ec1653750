"""Compares the template interpreter with transformers' apply_chat_template (jinja2)."""

import json
import random
import re

import jinja2
import pytest
import transformers

import macro_templates
import mistral_templates
import random_templates
from conftest import read_jsonl, run_dapd, write_jsonl
from make_qwen_tokenizer import package_folder

NUM_CONVERSATIONS = 400
OWN = {"mistral_nemo": mistral_templates.NEMO, "mistral_small": mistral_templates.SMALL, "harmony": macro_templates.HARMONY, "bodies": macro_templates.BODIES}
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
                                  "qwen3_training", "qwen2_5_training", "llama3_training", "qwen3_instruct_2507_training",
                                  "qwen3_5_think", "qwen3_vl", "gemma3", "gemma4", "phi3_5", "deepseekv3", "deepseek_r1_distill",
                                  "glm4moe", "gptoss", "nemotron_3_nano", "lfm2_v2", *OWN])
def test_conversations_render_and_tokenize_alike(name, qwen_folder, smollm2_folder, tmp_path):
    source = smollm2_folder if name == "smollm2" else qwen_folder
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / file).write_bytes((source / file).read_bytes())
    if name not in ("qwen3", "smollm2"):
        template = OWN.get(name) or (package_folder("trl") / "chat_templates" / f"{name}.jinja").read_text()
        if name == "gptoss":
            template = re.sub(r"strftime_now\([^)]*\)", "'2025-01-30'", template)  # docs/hub.md lists these.
        (tmp_path / "chat_template.jinja").write_text(template)
        config = json.loads((tmp_path / "tokenizer_config.json").read_text())
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({**config, "bos_token": "<|endoftext|>"}))
    oracle = transformers.AutoTokenizer.from_pretrained(tmp_path)
    rng = random.Random(3)
    rows, texts = [], []
    for row in [random_conversation(rng) for _ in range(NUM_CONVERSATIONS)]:
        extra = {"enable_thinking": row["enable_thinking"]} if "enable_thinking" in row else {}
        # Our interpreter has no clock: the template's own date is in every prompt, today and when a run is resumed.
        date = {"date_string": "26 Jul 2024"} if name == "llama3_2" else {}
        options = {"add_generation_prompt": row["add_generation_prompt"], **extra, **date}
        try:
            texts.append(oracle.apply_chat_template(row["messages"], tokenize=False, **options))
            rows.append(row)
        except jinja2.exceptions.TemplateError:
            pass  # Qwen3.5's template needs a user message that is not only a tool's answer.
    assert len(rows) > 0.9 * NUM_CONVERSATIONS
    write_jsonl(tmp_path / "in", rows)
    run_dapd("render", "--model", tmp_path, "--input", tmp_path / "in", "--output", tmp_path / "out")
    wrong = 0
    for text, ours in zip(texts, read_jsonl(tmp_path / "out"), strict=True):
        ids = oracle(text, add_special_tokens=False)["input_ids"]
        if ours["text"] != text or ours["ids"] != ids:
            wrong += 1
            print(repr(ours["text"]), repr(text), sep="\n")
    print(f"{name}: {wrong} of {len(rows)} conversations differ")
    assert wrong == 0


# Keys are not in the order of the alphabet, and arguments are an object or a text, as clients write them.
TOOL = {"type": "function", "function": {"name": "weather", "description": "Says <b>weather</b> & \u00e9", "parameters": {
    "type": "object", "properties": {"town": {"type": "string"}, "days": {"type": "integer"}}, "required": ["town"]}}}
USES_OF_TOOLS = [
    [{"role": "user", "content": "Weather?"},
     {"role": "assistant", "content": content, "tool_calls": [{"type": "function", "id": "call12345", "function": {"name": "weather", "arguments": arguments}}]},
     {"role": "tool", "content": "sunny, 21.0 \u00b0C", "tool_call_id": "call12345", "name": "weather"},
     {"role": "assistant", "content": "Sunny.", "reasoning_content": "It said so."}, {"role": "user", "content": "Thanks."}]
    for content in ("", None, "I look.") for arguments in ({"town": "Ulm", "days": 1}, '{"town": "Ulm", "days": 1}')]


@pytest.mark.parametrize("name", ["qwen3", "qwen2_5", "llama3_1", "qwen3_instruct_2507", "glm4moe"])
def test_tools_and_their_calls_render_alike(name, qwen_folder, tmp_path):
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / file).write_bytes((qwen_folder / file).read_bytes())
    if name != "qwen3":
        (tmp_path / "chat_template.jinja").write_text((package_folder("trl") / "chat_templates" / f"{name}.jinja").read_text())
    oracle = transformers.AutoTokenizer.from_pretrained(tmp_path)
    rows, texts = [], []
    for messages in USES_OF_TOOLS:
        for tools in (None, [], [TOOL], [TOOL, TOOL]):
            try:
                # A list without tools is none here, whereas transformers gives it to the template.
                texts.append(oracle.apply_chat_template(messages, tools=tools or None, tokenize=False, add_generation_prompt=True))
                rows.append({"messages": messages, "tools": tools, "add_generation_prompt": True})
            except (jinja2.exceptions.TemplateError, TypeError):
                pass  # A template need not take a content of null, or arguments that are a text.
    write_jsonl(tmp_path / "in", rows)
    run_dapd("render", "--model", tmp_path, "--input", tmp_path / "in", "--output", tmp_path / "out")
    assert [row["text"] for row in read_jsonl(tmp_path / "out")] == texts
    print(f"{name}: {len(rows)} conversations with tools equal transformers', error 0")
    assert len(rows) >= 8 and any("weather" in text for text in texts)


def render_both(template, folder, tokenizer_folder):
    """Returns what our interpreter and transformers render, line by line."""
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (folder / file).write_bytes((tokenizer_folder / file).read_bytes())
    (folder / "chat_template.jinja").write_text(template)
    messages = [{"role": role, "content": role[0]} for role in ("user", "assistant", "user")]
    write_jsonl(folder / "in", [{"messages": messages}])
    run_dapd("render", "--model", folder, "--input", folder / "in", "--output", folder / "out")
    oracle = transformers.AutoTokenizer.from_pretrained(folder)
    return read_jsonl(folder / "out")[0]["text"], oracle.apply_chat_template(messages, tokenize=False)


TOKENS = "{{ bos_token }}|{{ eos_token }}|{{ think_token }}|{{ image }}|{{ messages[0].content }}"
CONFIG = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
AS_OBJECT = {"content": "<|im_end|>", "lstrip": False, "rstrip": False, "normalized": False, "single_word": False}


@pytest.mark.parametrize("config, special_tokens_map", [
    (CONFIG, None),
    ({}, {"bos_token": "<|endoftext|>", "eos_token": AS_OBJECT}),
    (None, {"bos_token": "<|endoftext|>", "eos_token": AS_OBJECT}),
    (CONFIG, {"eos_token": "<|im_end|>"}),
    (CONFIG, {"bos_token": None}),
    ({**CONFIG, "added_tokens_decoder": {}}, {"eos_token": "<|im_end|>"}),
    ({**CONFIG, "think_token": "<think>", "other_token": 3}, None),
    ({**CONFIG, "extra_special_tokens": {"think_token": "<think>", "image": {"__type": "AddedToken", **AS_OBJECT}}}, None),
    ({**CONFIG, "extra_special_tokens": ["<think>"]}, {"extra_special_tokens": {"think_token": "<think>"}}),
    (CONFIG, {"think_token": "<think>"}),
])
def test_special_tokens_come_from_the_same_files(config, special_tokens_map, qwen_folder, tmp_path):
    (tmp_path / "tokenizer.json").write_bytes((qwen_folder / "tokenizer.json").read_bytes())
    (tmp_path / "chat_template.jinja").write_text(TOKENS)
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **config}))
    if special_tokens_map is not None:
        (tmp_path / "special_tokens_map.json").write_text(json.dumps(special_tokens_map))
    messages = [{"role": "user", "content": "x"}]
    write_jsonl(tmp_path / "in", [{"messages": messages}])
    run_dapd("render", "--model", tmp_path, "--input", tmp_path / "in", "--output", tmp_path / "out")
    # This loads from the folder, as AutoTokenizer does if it knows the class.
    oracle = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    assert read_jsonl(tmp_path / "out")[0]["text"] == oracle.apply_chat_template(messages, tokenize=False)


@pytest.mark.filterwarnings("ignore:invalid")
def test_escapes_in_strings_mean_the_same(qwen_folder, tmp_path):
    rng = random.Random(5)
    parts = ["a", "0", "9", "x", "\u00e9", "\u4e2d", "\U0001f600", "\n", "\r\n", "{", " "]
    escapes = [f"\\{c}" for c in [*map(chr, range(32, 127)), "\n", "\u00e9", "\u4e2d", "\U0001f600"] if c not in "xuUN"]
    escapes += ["\\x41", "\\xE9", "\\u4e2d", "\\U0001F600", "\\101", "\\777", "\\x00", "\\uFFFF"]
    literals = ["".join(rng.choice(rng.choice([parts, escapes])) for _ in range(rng.randint(1, 8))) for _ in range(3000)]
    quoted = [quote + text.replace(quote, "") + quote for text in literals for quote in [rng.choice("'\"")]]
    # A text that loses its quote may end with a lone backslash.
    quoted = [text for text in quoted if (len(text[:-1]) - len(text[:-1].rstrip("\\"))) % 2 == 0]
    template = "".join("{{ %s }}|" % text for text in quoted)
    ours, expected = render_both(template, tmp_path, qwen_folder)
    print(f"{len(quoted)} literals, {len(expected)} characters")
    assert len(quoted) > 2900 and ours == expected


def test_sieves_keep_the_same_items(qwen_folder, tmp_path):
    attributes = ["role", "content", "absent", "a", "a.b", "a.0", "0"]
    tests = ["", ", 'equalto', 'user'", ", '==', 1", ", 'eq', 'x'", ", 'ne', 'x'", ", '!=', none", ", 'defined'", ", 'undefined'",
             ", 'string'", ", 'none'", ", 'mapping'", ", 'number'"]
    lists = ["messages", "items", "none", "[]", "''", "absent"]
    lines = ["{% set items = [{'a': {'b': 1}}, {'a': {'b': {'c': 'x'}}}, {'a': ['x', 0]}, {'a': {'b': none}, 'role': 'user'}] %}"]
    for sieve in ("selectattr", "rejectattr"):
        for name in lists:
            for attribute in attributes:
                # No message has an `a`, so a look into it is an error in both.
                for test in [] if name == "messages" and "." in attribute else tests:
                    lines.append(f"{{{{ {name} | {sieve}('{attribute}'{test}) | list | tojson }}}}")
    for sieve in ("select", "reject"):
        lines += [f"{{{{ {name} | {sieve}({test[2:]}) | list | tojson }}}}" for name in lists for test in tests]
    # These places take an iterable without making a list of it.
    for sieve in ("selectattr('role')", "selectattr('absent')", "rejectattr('absent')"):
        lines += [f"{{{{ items | {sieve} | first | default('none') | tojson }}}}", f"{{{{ items | {sieve} | select | list | tojson }}}}",
                  f"{{{{ items[3] in items | {sieve} }}}}{{{{ items[3] not in items | {sieve} }}}}",
                  f"{{% for item in items | {sieve} %}}{{{{ loop.index ~ item.role ~ loop.last ~ loop.length }}}}{{% endfor %}}|"]
    ours, expected = render_both("\n".join(lines), tmp_path, qwen_folder)
    differing = [line for line, a, b in zip(lines[1:], ours.split("\n"), expected.split("\n"), strict=True) if a != b]
    print(f"{len(differing)} of {len(lines) - 1} sieves differ")
    assert not differing


def test_comments_and_loops_that_are_left_early_write_the_same(qwen_folder, tmp_path):
    comments = [f"{before}{{#{inside}#}}{after}" for before in ("a", "a  ", "a\n  ") for after in ("b", "  b", "\n  b")
                for inside in ("", "-", "+", "--", "-+", "+-", "- ", " -", "-x-", "+x+", "---")]
    leaves = ["", "{{ loop.depth }}{{ loop.depth0 }}", "{% break %}", "{% continue %}", "{% if i == 1 %}{% break %}{% endif %}", "{% if i == 2 %}{% break %}{% endif %}",
              "{% if i < 3 %}{% continue %}{% endif %}", "{% for j in [1] %}{% break %}{% endfor %}",
              "{% for j in [1] %}{% continue %}{% else %}{% break %}{% endfor %}", "{% for j in [] %}{% else %}{% continue %}{% endfor %}"]
    loops = [f"{{% for i in {items} %}}{{{{ i }}}}{leave}x{{% else %}}E{{% endfor %}}" for items in ([], [1], [1, 2, 3]) for leave in leaves]
    ours, expected = render_both("|".join(comments + loops), tmp_path, qwen_folder)
    differing = [case for case, a, b in zip(comments + loops, ours.split("|"), expected.split("|"), strict=True) if a != b]
    print(f"{len(differing)} of {len(comments) + len(loops)} differ")
    assert not differing, differing


def test_cases_and_titles_are_written_alike(qwen_folder, tmp_path):
    rng = random.Random(11)
    letters = [*"abzABZ019'-_ ([{<>.,\t\u00e9\u00c9\u00df\u0131\u0130\u01c4\u01c5\u01c6\u03a3\u03c3\u03c2\u0410\u0431\u1f80\u1f88\u4e2d\ufb01\u2160\u00aa\u0301\U00010400"]
    texts = ["".join(rng.choices(letters, k=rng.randint(0, 8))) for _ in range(3000)]
    # Whether a sigma is the last letter may depend on what comes after marks; our title() does not look past marks.
    texts = [re.sub("\u03a3+(?=['.\u0301])", "", text) for text in texts]
    ways = ["t | capitalize", "t.capitalize()", "t | title", "t.title()", "t | upper", "t.upper()", "t | lower", "t.lower()", "t | trim"]
    line = "".join("{{ %s }};" % way for way in ways)
    template = "".join("{%% set t = %s %%}%s\n" % (json.dumps(text, ensure_ascii=False), line) for text in texts)
    ours, expected = render_both(template, tmp_path, qwen_folder)
    differing = [text for text, a, b in zip(texts, ours.split("\n"), expected.split("\n")) if a != b]
    print(f"{len(differing)} of {len(texts)} texts differ")
    assert ours == expected, [text.encode("unicode_escape") for text in differing[:9]]


def render_alone(template, tmp_path):
    """Returns the text or None, and the error."""
    (tmp_path / "chat_template.jinja").write_text(template)
    result = run_dapd("render", "--model", tmp_path, "--input", tmp_path / "in", "--output", tmp_path / "out", check=False)
    assert result.returncode in (0, 1, 4), (template, result.stderr)
    return (read_jsonl(tmp_path / "out")[0]["text"], "") if result.returncode == 0 else (None, result.stderr)


# Our messages for templates that jinja2 renders and we refuse by name.
REFUSED = re.compile(r"cannot be printed|cannot be sliced|'safe' or 'escape' gave|is not supported|truncate needs a string|too large|too long|overflows|nested too deeply|cannot be applied to view|inside another value")
MARK = "\x01"


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_random_templates_render_alike(tmp_path):
    """Renders the templates that jinja2 renders, many together; looks at each template that we refuse by itself."""
    import models

    models.write_tokenizer(tmp_path)
    messages = random_templates.CONTEXT["messages"]
    write_jsonl(tmp_path / "in", [{"messages": messages, "add_generation_prompt": True}])
    rendered = []
    for template in random_templates.templates(seed=20261128, count=300):
        compiled = transformers.utils.chat_template_utils._cached_compile_jinja_template
        try:
            text = compiled(template).render(**json.loads(json.dumps({**random_templates.CONTEXT, "bos_token": "<s>"})))
        except Exception:
            continue
        if " at 0x" not in text:
            rendered.append((template, text))
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "bos_token": "<s>"}))
    refused, differing = [], []

    def compare(cases):
        """Each template has its own scope, so that none sees another's names."""
        source = MARK.join("{% for once in [1] %}" + template + "{% endfor %}" for template, _ in cases)
        try:
            expected = transformers.utils.chat_template_utils._cached_compile_jinja_template(source)
            expected = expected.render(**json.loads(json.dumps({**random_templates.CONTEXT, "bos_token": "<s>"}))).split(MARK)
        except SyntaxError:
            expected = None  # These are more blocks than Python nests.
        ours, error = render_alone(source, tmp_path) if expected is not None else (None, "")
        if ours is not None and len(ours.split(MARK)) == len(cases):
            differing.extend((case[0], a, b) for case, a, b in zip(cases, ours.split(MARK), expected) if a != b)
        elif len(cases) > 1:
            compare(cases[: len(cases) // 2])
            compare(cases[len(cases) // 2 :])
        elif expected is not None:
            refused.append((cases[0][0], error))

    for begin in range(0, len(rendered), 32):
        compare(rendered[begin : begin + 32])
    strange = [case for case in refused if not REFUSED.search(case[1])]
    print(f"{len(rendered)} templates, {len(differing)} differ, {len(refused)} refused by name, {len(strange)} otherwise")
    assert len(rendered) > 150 and not differing and not strange, (differing[:5], strange[:5])
    assert len(refused) < 0.05 * len(rendered)


@pytest.mark.parametrize("template", [
    "{% if tools %}{{ tools | from_json }}{% endif %}x", "{% if tools is strange %}x{% endif %}", "{{ ('a' | strange) if tools else 'x' }}", "{{ 'a' | strange }}",
    "{% if tools %}{% for t in tools | strange %}{% endfor %}{% endif %}x", "{% if tools %}{% for t in tools %}{{ t | strange }}{% endfor %}{% endif %}x",
    "{% for t in [] if t is strange %}{% endfor %}x", "{% macro f(a=1 | strange) %}{% endmacro %}x", "{% set x | strange %}{% endset %}", "{% if tools %}{% set x | strange %}{% endset %}{% endif %}",
    "{% if tools %}{% set x = 1 | strange %}{% endif %}x", "{% if tools %}{% filter strange %}{% endfilter %}{% endif %}x", "{% if tools %}{% call f(1 | strange) %}{% endcall %}{% endif %}x",
    "{% if tools %}{% with x = 1 | strange %}{% endwith %}{% endif %}x", "{% if tools %}{% with %}{{ 1 | strange }}{% endwith %}{% endif %}x", "{% if tools %}{% generation %}{{ 1 | strange }}{% endgeneration %}{% endif %}x",
    "{% if tools %}{% else %}{{ 'a' | strange }}{% endif %}", "{% if tools %}{% elif tools is strange %}{% endif %}x", "{% if tools %}{% include 'x' %}{% import 'x' as y %}{% from 'x' import y %}{% endif %}x",
    "{% if tools %}{{ strange() }}{{ 'a'.strange() }}{{ tools.a.b }}{% endif %}x", "{% do x %}", "{% if tools %}{% trans %}{% endtrans %}{% endif %}", "{% block a %}1{% endblock a %}{% block b scoped %}2{% endblock %}",
    "{% block a %}{% endblock %}{% block a %}{% endblock %}", "{% for k, v in {'items': 1}.items() %}{{ k }}{% endfor %}{{ {'items': 1}.items is mapping }}{{ {'items': 1}['items'] }}",
])
def test_names_are_looked_up_where_jinja_does(template, tmp_path):
    import models

    models.write_tokenizer(tmp_path)
    messages = [{"role": "user", "content": "x"}]
    write_jsonl(tmp_path / "in", [{"messages": messages}])
    compiled = transformers.utils.chat_template_utils._cached_compile_jinja_template
    ours, error = render_alone(template, tmp_path)
    try:
        assert ours == compiled(template).render(messages=messages, tools=None), error
    except jinja2.exceptions.TemplateError:
        assert ours is None and "chat template, line 1: " in error


@pytest.mark.parametrize(
    "template, expected",
    [
        ("{% include 'x' %}", "'include'"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "too deeply"),
        ("line\n{{ messages | shuffle }}", "line 2: there is no filter 'shuffle'"),
        ("line\n{{ messages | random }}", "line 2: the filter 'random'"),
        ("{{ messages[0].content.encode() }}", "the method 'encode'"),
        ("{{ lipsum() }}", "the function 'lipsum'"),
        ("{% if messages is strange(2) %}x{% endif %}", "there is no test 'strange'"),
        ("{{ 'a' * 10**9 }}", "too long a text"),
        ("{% for m in messages %}", "endfor"),
        ("{{ 'open", "never closed"),
        ("{{ messages.__class__.x.y }}", "undefined"),
        ("{{ messages.append(1) }}", "would change a value"),
        ("{% set today = strftime_now('%Y-%m-%d') %}{{ today }}", "write a date in place"),
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
