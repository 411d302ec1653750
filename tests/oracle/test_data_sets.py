"""Compares folders of data sets, and the files in them, with the library `datasets`: the same rows in the same order,
by their digest."""

import decimal
import datetime
import gzip
import hashlib
import json
import os
import re
import uuid

# This comes before datasets is loaded, so that it asks no hub.
os.environ["HF_HUB_OFFLINE"] = "1"

import datasets
import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import pytest

import models
from conftest import run_dapd

datasets.disable_progress_bars()


def rows_of(name, count=2):
    return [{"problem": f"{name} {i}?", "solution": f"{name} is {i}.", "answer": str(i)} for i in range(count)]


def text_of(value):
    """Returns a value as a row of JSON Lines has it."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, (decimal.Decimal, datetime.date, uuid.UUID)):
        return str(value)
    return json.dumps(value)


def digest_of(rows):
    digest = hashlib.sha256()
    for number, row in enumerate(rows):
        texts = [text_of(row.get(column)) for column in ("id", "problem", "solution", "answer")]
        texts[0] = texts[0] or str(number)
        for text in texts:
            digest.update(f"{len(text.encode())}:{text}".encode())
    return digest.hexdigest()[:16]


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    models.make_model(folder / "model", "qwen3")
    (folder / "config.yaml").write_text(f"model: {{path: {folder}/model}}\nrollout: {{max_new_tokens: 256}}\n")
    return folder / "config.yaml"


@pytest.fixture
def check(config):
    """Returns the digest that `dapd check` prints, or its message if `code` is another one."""

    def call(path, *flags, code=0):
        result = run_dapd("check", config, "--set", f"data.path={path}", *flags, check=False)
        assert result.returncode == code, result.stderr
        return re.search(r"^data .*digest (\w+)", result.stdout, re.M)[1] if code == 0 else result.stderr

    return call


@pytest.fixture
def load(tmp_path):
    def call(folder, *arguments, **options):
        return datasets.load_dataset(str(folder), *arguments, cache_dir=str(tmp_path / "cache"), **options)

    return call


def write(folder, files):
    """Writes files by their paths: rows as JSON Lines or Parquet, texts as they are."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            path.write_text(content)
        elif name.endswith(".parquet"):
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(content), path)
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in content))
    return folder


# open-r1/OpenR1-Math-220k has this form: `all` holds what the other two hold.
OVERLAPPING = {
    "all/default-00000-of-00001.parquet": rows_of("d", 4),
    "all/extended-00000-of-00001.parquet": rows_of("e", 3),
    "data/train-00000-of-00002.parquet": rows_of("d", 2),
    "data/train-00001-of-00002.parquet": rows_of("dd", 2),
    "extended/train-00000-of-00001.parquet": rows_of("e", 3),
    "README.md": """---
license: apache-2.0
dataset_info:
- config_name: all
  features:
  - {name: problem, dtype: string}
  - {name: solution, dtype: string}
  - {name: answer, dtype: string}
configs:
- config_name: all
  data_files:
  - split: default
    path: all/default-*
  - split: extended
    path: all/extended-*
- config_name: default
  data_files:
  - split: train
    path: data/train-*
- config_name: extended
  data_files: extended/*
---
# A data set
""",
}


def card(*configurations):
    return "---\nconfigs:\n" + "".join(f"- {json.dumps(each)}\n" for each in configurations) + "---\n"


ABC = {f"{name}.jsonl": rows_of(name) for name in "abc"}

# name: (files, what follows the path, configuration, split)
LAYOUTS = {
    "default configuration": (OVERLAPPING, "", None, "train"),
    "asked configuration": (OVERLAPPING, "#extended", "extended", "train"),
    "asked configuration and split": (OVERLAPPING, "#all:extended", "all", "extended"),
    "one pattern": ({**ABC, "README.md": card({"config_name": "x", "data_files": "b.jsonl"})}, "", None, "train"),
    "list of patterns": ({**ABC, "README.md": card({"config_name": "x", "data_files": ["c.jsonl", "a*"]})}, "", None, "train"),
    "list of paths": ({**ABC, "README.md": card({"config_name": "x", "data_files": [{"split": "train", "path": ["c.jsonl", "b.jsonl"]}]})}, "", None, "train"),
    "marked as default": ({**ABC, "README.md": card({"config_name": "x", "data_files": "a.jsonl"}, {"config_name": "y", "data_files": "b.jsonl", "default": True})}, "", None, "train"),
    "./ in a pattern": ({**ABC, "README.md": card({"config_name": "x", "data_files": "./[bc].jsonl"})}, "", None, "train"),
    "folder of a configuration": (
        {"m/train.jsonl": rows_of("m"), "m/test.jsonl": rows_of("t"), "n/train.jsonl": rows_of("n"),
         "README.md": card({"config_name": "m", "data_dir": "m"}, {"config_name": "n", "data_dir": "n", "default": True})}, "#m", "m", "train"),
    "patterns from a folder": (
        {"m/a.jsonl": rows_of("m"), "a.jsonl": rows_of("a"), "README.md": card({"config_name": "m", "data_dir": "m", "data_files": "*.jsonl"})}, "", None, "train"),
    "folders at any depth": (
        {"x/1.jsonl": rows_of("x"), "x/y/2.jsonl": rows_of("y"), "x/.h/3.jsonl": rows_of("h"), "x/__p/4.jsonl": rows_of("p"),
         "README.md": card({"config_name": "x", "data_files": "x/**/*.jsonl"})}, "", None, "train"),
    "splits by shards": (
        {f"data/{split}-0000{i}-of-00002.parquet": rows_of(f"{split}{i}") for split in ("test", "train", "extra") for i in range(2)}, "", None, "train"),
    "an asked split by shards": (
        {f"data/{split}-0000{i}-of-00002.parquet": rows_of(f"{split}{i}") for split in ("test", "train", "extra") for i in range(2)}, "#:extra", None, "extra"),
    "splits by files": ({"train.jsonl": rows_of("t"), "dev.jsonl": rows_of("d"), "more.jsonl": rows_of("m")}, "", None, "train"),
    "validation by its word": ({"train.jsonl": rows_of("t"), "my-val_2.jsonl": rows_of("v")}, "#:validation", None, "validation"),
    "splits by folders": ({"training/a.jsonl": rows_of("a"), "evaluation/b.jsonl": rows_of("b"), "train.jsonl": rows_of("c")}, "", None, "train"),
    "test by its folder": ({"training/a.jsonl": rows_of("a"), "en/evaluation-1/b.jsonl": rows_of("b")}, "#:test", None, "test"),
    "words that are no splits": ({"latest.jsonl": rows_of("a"), "contest.jsonl": rows_of("b"), "TEST.jsonl": rows_of("c")}, "", None, "train"),
    "all as one split": ({"b.parquet": rows_of("b"), "a/10.parquet": rows_of("c"), "a/2.parquet": rows_of("d")}, "", None, "train"),
    "json beside json lines": ({"a.json": rows_of("a"), "b.jsonl": rows_of("b"), "c.ndjson": rows_of("c")}, "", None, "train"),
    "what describes parquet": ({"a.parquet": rows_of("a"), "notes.json": [{"x": 1}], "dataset_infos.json": "{}"}, "", None, "train"),
    "a card without configurations": ({**ABC, "README.md": "---\nlicense: mit\n---\n"}, "", None, "train"),
    "a card without a head": ({**ABC, "README.md": "# configs: none\n"}, "", None, "train"),
    "the default configuration by its name": (ABC, "#default", "default", "train"),
    "a head that stands alone": ({**ABC, ".huggingface.yaml": "configs:\n- config_name: x\n  data_files: c.jsonl\n",
                                  "README.md": card({"config_name": "x", "data_files": "b.jsonl"})}, "", None, "train"),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_folder_has_the_rows_that_datasets_reads(name, check, load, tmp_path):
    files, suffix, configuration, split = LAYOUTS[name]
    folder = write(tmp_path / "set", files)
    rows = list(load(folder, *([configuration] if configuration else []), split=split))
    assert rows
    assert check(f"{folder}{suffix}") == digest_of(rows)


# name: (files, what follows the path, what both refuse, parts of our error)
REFUSED = {
    "no default": ({**ABC, "README.md": card({"config_name": "x", "data_files": "a.jsonl"}, {"config_name": "y", "data_files": "b.jsonl"})},
                   "", None, ["none is the default (x, y)", "#x"]),
    "two defaults": ({**ABC, "README.md": card({"config_name": "x", "data_files": "a.jsonl", "default": True}, {"config_name": "default", "data_files": "b.jsonl"})},
                     "", None, ["several configurations that are the default (x, default)"]),
    "unknown": (OVERLAPPING, "#al", "al", ["no configuration 'al'", "all, default, extended"]),
    "unknown without a card": (ABC, "#x", "x", ["no configuration 'x'", "default"]),
    "missing file": ({**ABC, "README.md": card({"config_name": "x", "data_files": "d.jsonl"})}, "", None, ["d.jsonl", "not there"]),
    "no files": ({**ABC, "README.md": card({"config_name": "x", "data_files": "d-*.jsonl"})}, "", None, ["holds no .parquet"]),
    "no list": ({**ABC, "README.md": "---\nconfigs: a\n---\n"}, "", None, ["README.md: configs is not a list"]),
    "no name": ({**ABC, "README.md": card({"data_files": "a.jsonl"})}, "", None, ["no config_name"]),
    "name of a split": ({**ABC, "README.md": card({"config_name": "x", "data_files": [{"split": "a-b", "path": "a.jsonl"}]})}, "", None, ["'a-b'"]),
    "a split twice": ({**ABC, "README.md": card({"config_name": "x", "data_files": [{"split": "s", "path": "a.jsonl"}, {"split": "s", "path": "b.jsonl"}]})},
                      "", None, ["'s' occurs twice"]),
    "a split without a path": ({**ABC, "README.md": card({"config_name": "x", "data_files": [{"split": "s"}]})}, "", None, ["split and path"]),
    "stars within a name": ({**ABC, "README.md": card({"config_name": "x", "data_files": "**.jsonl"})}, "", None, ["'**.jsonl' has **"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_datasets_refuses_is_refused_by_name(name, check, load, tmp_path):
    files, suffix, configuration, parts = REFUSED[name]
    folder = write(tmp_path / "set", files)
    with pytest.raises(Exception):
        load(folder, *([configuration] if configuration else []), split="train")
    error = check(f"{folder}{suffix}", code=4)
    for part in parts:
        assert part in error, error


def test_several_splits_are_named_where_none_is_train(check, load, tmp_path):
    """nvidia/OpenMathReasoning has this form."""
    splits = ("cot", "genselect", "tir")
    folder = write(tmp_path / "set", {f"data/{split}-00000-of-00001.parquet": rows_of(split) for split in splits})
    assert list(load(folder)) == list(splits)
    error = check(folder, code=4)
    assert all(f"{split}: data/{split}-00000" in error for split in splits) and f"{folder}#:tir" in error
    assert check(f"{folder}#:cot") == digest_of(rows_of("cot"))
    assert "has no split 'train'" in check(f"{folder}#:train", code=4)


def test_held_out_problems_are_not_those_of_the_training(check, config, tmp_path):
    folder = write(tmp_path / "set", {"train.jsonl": rows_of("a"), "test.jsonl": rows_of("b")})
    error = check(folder, "--set", f"evaluation.path={folder}", code=4)
    assert "several splits (train: train.jsonl, test: test.jsonl)" in error
    model = config.parent / "model"
    flags = ["--model", model, "--max-new-tokens", "2", "--data"]
    refused = run_dapd("eval", *flags, folder, check=False)
    assert refused.returncode == 4 and "several splits" in refused.stderr
    assert run_dapd("eval", *flags, f"{folder}#:test", "--json").stdout
    both = run_dapd("check", config, "--set", f"data.path={folder}", "--set", f"evaluation.path={folder}#:test")
    assert re.search(r"^held out .*digest (\w+)", both.stdout, re.M)[1] == digest_of(rows_of("b"))


def test_what_a_card_would_do_to_the_rows_is_refused(check, tmp_path):
    for key, value in (("field", "rows"), ("columns", ["problem"]), ("encoding", "latin-1")):
        folder = write(tmp_path / key, {**ABC, "README.md": card({"config_name": "x", "data_files": "a.jsonl", key: value})})
        assert f"'x' sets {key}" in check(folder, code=4)
    for pattern in ("../a.jsonl", "/etc/a.jsonl", "https://example.org/a.jsonl", "hf://datasets/o/n/a.jsonl"):
        folder = write(tmp_path / "outside", {**ABC, "README.md": card({"config_name": "x", "data_files": pattern})})
        assert "leads out of the data set's folder" in check(folder, code=4)


@pytest.mark.parametrize("shards", [1, 3])
def test_a_saved_data_set_is_read(shards, check, tmp_path):
    rows = rows_of("s", 5)
    datasets.Dataset.from_list(rows).save_to_disk(tmp_path / "one", num_shards=shards)
    assert check(tmp_path / "one") == digest_of(datasets.load_from_disk(str(tmp_path / "one")))
    splits = datasets.DatasetDict({"train": datasets.Dataset.from_list(rows), "more": datasets.Dataset.from_list(rows_of("m"))})
    splits.save_to_disk(tmp_path / "two", num_shards={"train": shards, "more": 1})
    loaded = datasets.load_from_disk(str(tmp_path / "two"))
    assert check(tmp_path / "two") == digest_of(loaded["train"])
    assert check(f"{tmp_path}/two#:more") == digest_of(loaded["more"])
    assert "no configuration 'x'" in check(f"{tmp_path}/two#x", code=4)
    (tmp_path / "two" / "train" / f"data-00000-of-0000{shards}.arrow").unlink()
    assert "which is not there" in check(tmp_path / "two", code=4)


def test_what_was_selected_is_saved(check, tmp_path):
    chosen = datasets.Dataset.from_list(rows_of("s", 9)).shuffle(seed=3).select(range(4))
    chosen.save_to_disk(tmp_path / "set")
    assert check(tmp_path / "set") == digest_of(datasets.load_from_disk(str(tmp_path / "set")))


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("form", ["stream", "file"])
def test_arrow_streams_and_files_are_read(form, compression, check, load, tmp_path):
    table = pyarrow.Table.from_pylist([{**row, "extra": [1]} for row in rows_of("a", 7)])
    folder = tmp_path / "set"
    folder.mkdir()
    new = {"stream": pyarrow.ipc.new_stream, "file": pyarrow.ipc.new_file}[form]
    with new(folder / "rows.arrow", table.schema, options=pyarrow.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=3)
    assert check(folder) == check(folder / "rows.arrow") == digest_of(load(folder, split="train"))
    (folder / "rows.arrow").write_bytes((folder / "rows.arrow").read_bytes()[:300])
    assert "rows.arrow" in check(folder, code=4)


ARRAYS = {
    "compact": lambda rows: json.dumps(rows),
    "indented": lambda rows: json.dumps(rows, indent=2),
    "behind a byte order mark": lambda rows: "\ufeff" + json.dumps(rows),
    "with other characters": lambda rows: json.dumps(rows, ensure_ascii=False),
    "lines behind a byte order mark": lambda rows: "\ufeff" + "".join(json.dumps(row) + "\n" for row in rows),
}


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_of_rows_is_read(name, zipped, check, load, tmp_path):
    rows = [{"id": i, "problem": f'[{i}]}} "\\" \u00e9 \u2028?', "solution": "],\n[" * (i % 50) + ".", "answer": i, "n": {"a": [1, "]"]}} for i in range(300)]
    data = ARRAYS[name](rows).encode()
    folder = tmp_path / "set"
    folder.mkdir()
    path = folder / ("rows.json.gz" if zipped else "rows.json")
    path.write_bytes(gzip.compress(data) if zipped else data)
    assert check(path) == digest_of(load(folder, split="train"))


def test_texts_in_an_array_are_rows(check, load, tmp_path):
    folder = write(tmp_path / "set", {"rows.json": json.dumps(["one", "two"])})
    assert [row["text"] for row in load(folder, split="train")] == ["one", "two"]
    digest = check(folder, "--set", "data.problem_column=text", "--set", "data.solution_column=text")
    assert digest == digest_of([{"problem": text, "solution": text} for text in ("one", "two")])


@pytest.mark.parametrize("text, said", [
    ('[{"problem": "a", "solution": "b"}', "the file ends within its JSON array, at"),
    ('[{"problem": "a", "solution": "b"},]', "row 2: there is no row between"),
    ('[{"problem": "a", "solution": "b"}] 3', "something follows the JSON array"),
    ('[{"problem": "a", "solution": "b"}, 3]', "row 2: the row is not a JSON object"),
    ('[]', "holds no usable row"),
    ('{\n "data": []\n}', "a JSON object that takes several lines"),
])
def test_what_is_no_array_of_rows_is_refused(text, said, check, tmp_path):
    assert said in check(write(tmp_path, {"rows.json": text}) / "rows.json", code=4)


@pytest.mark.parametrize("name, said", [
    ("rows.csv", "CSV is not read"), ("rows.tsv", "CSV is not read"), ("rows.jsonl.zst", "compressed as .zst"), ("rows.json.bz2", "compressed as .bz2"),
    ("rows.jsonl.xz", "compressed as .xz"), ("rows.txt", "the name must end in"),
])
def test_other_formats_are_refused_by_name(name, said, check, tmp_path):
    folder = write(tmp_path / "set", {name: "x"})
    assert said in check(folder / name, code=4)
    assert (said if "txt" not in name else "holds no .parquet") in check(folder, code=4)


# Types of answers that have a text, with values.
WITH_TEXT = {
    "string": pyarrow.array(["a", None, "\u00e9"]),
    "large_string": pyarrow.array(["a", None, "b"], pyarrow.large_string()),
    "string_view": pyarrow.array(["a", None, "a view that is longer than twelve"], pyarrow.string_view()),
    "int8": pyarrow.array([-1, None, 7], pyarrow.int8()),
    "uint64": pyarrow.array([2**64 - 1, None, 0], pyarrow.uint64()),
    "bool": pyarrow.array([True, None, False]),
    "float": pyarrow.array([0.1, None, 72.0], pyarrow.float32()),
    "double": pyarrow.array([0.1, None, 72.0]),
    "half": pyarrow.array([0.5, None, 72.0], pyarrow.float16()),
    "decimal128": pyarrow.array([decimal.Decimal("1.50"), None, decimal.Decimal("-0.07")]),
    "decimal256": pyarrow.array([decimal.Decimal("1.50"), None, decimal.Decimal("-0.07")], pyarrow.decimal256(50, 9)),
    "date32": pyarrow.array([datetime.date(2026, 11, 28), None, datetime.date(1, 1, 1)]),
    "date64": pyarrow.array([datetime.date(2026, 11, 28), None, datetime.date(1960, 2, 29)], pyarrow.date64()),
    "dictionary": pyarrow.array(["x", None, "x"]).dictionary_encode(),
    "numbers by dictionary": pyarrow.array([3, None, 3]).dictionary_encode(),
    "json": pyarrow.array(["2", None, '"x=1"'], pyarrow.json_()),
    "json with null": pyarrow.array(["2.5", "null", "true"], pyarrow.json_(pyarrow.large_string())),
    "uuid": pyarrow.array([uuid.UUID(int=5).bytes, None, uuid.UUID(int=2**127).bytes], pyarrow.uuid()),
    "bool8": pyarrow.array([1, None, 0], pyarrow.bool8()),
    "run ends": pyarrow.RunEndEncodedArray.from_arrays(pyarrow.array([1, 2, 3], pyarrow.int32()), pyarrow.array(["p", None, "q"])),
    "null": pyarrow.nulls(3),
}


def write_column(folder, name, column, form, store_schema=True):
    table = pyarrow.table({"problem": ["a", "b", "c"], "solution": ["x", "y", "z"], "answer": column})
    folder.mkdir(exist_ok=True)
    path = folder / f"{name.replace(' ', '_')}.{form}"
    if form == "parquet":
        pyarrow.parquet.write_table(table, path, store_schema=store_schema)
    else:
        with pyarrow.ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table)
    return path


def python_value(column, value):
    return json.loads(value) if isinstance(column.type, pyarrow.JsonType) and value is not None else value


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize("name", WITH_TEXT)
def test_a_type_with_a_text_has_the_text_of_its_values(name, form, check, tmp_path):
    column = WITH_TEXT[name]
    if form == "parquet" and name in ("run ends",):
        pytest.skip("pyarrow writes no such Parquet")
    path = write_column(tmp_path, name, column, form)
    values = [python_value(column, value) for value in column.to_pylist()]
    rows = [{"problem": p, "solution": s, "answer": a} for p, s, a in zip("abc", "xyz", values)]
    assert check(path) == digest_of(rows)


@pytest.mark.parametrize("name", ["json", "uuid"])
def test_what_parquet_itself_calls_json_or_uuid_is_so(name, check, tmp_path):
    """Other programs write such a file, without Arrow's schema."""
    path = write_column(tmp_path, name, WITH_TEXT[name], "parquet", store_schema=False)
    column = pyarrow.parquet.read_table(path)["answer"]
    assert column.type == WITH_TEXT[name].type
    rows = [{"problem": p, "solution": s, "answer": python_value(column, a)} for p, s, a in zip("abc", "xyz", column.to_pylist())]
    assert check(path) == digest_of(rows)


def test_rows_of_mixed_types_that_datasets_saved_are_those_it_read(check, load, tmp_path):
    """`datasets` gives a column whose rows mix types the type arrow.json."""
    rows = [{"problem": "a", "solution": "b", "answer": 2}, {"problem": "c", "solution": "d", "answer": "x=1"}]
    loaded = load(write(tmp_path / "set", {"rows.jsonl": rows}), split="train")
    loaded.to_parquet(tmp_path / "rows.parquet")
    assert pyarrow.parquet.read_schema(tmp_path / "rows.parquet").field("answer").type == pyarrow.json_()
    assert check(tmp_path / "rows.parquet") == check(tmp_path / "set") == digest_of(rows)
    objects = [rows[0], {**rows[1], "problem": {"a": 1}}]
    load(write(tmp_path / "objects", {"rows.jsonl": objects}), split="train").to_parquet(tmp_path / "objects.parquet")
    for path in ("objects.parquet", "objects/rows.jsonl"):
        error = check(tmp_path / path, code=4)
        assert "column 'problem' holds object; a string is needed" in error
        assert check(tmp_path / path, "--set", "data.on_bad_row=skip") == digest_of(rows[:1])


WITHOUT_TEXT = {
    "list": (pyarrow.array([["a"], None, []]), "nested"),
    "large list": (pyarrow.array([["a"], None, []], pyarrow.large_list(pyarrow.string())), "nested"),
    "fixed list": (pyarrow.array([["a"], None, ["b"]], pyarrow.list_(pyarrow.string(), 1)), "nested"),
    "struct": (pyarrow.array([{"a": 1}, None, {"a": 2}]), "nested"),
    "map": (pyarrow.array([[("a", 1)], None, []], pyarrow.map_(pyarrow.string(), pyarrow.int64())), "nested"),
    "list of lists": (pyarrow.array([[["a"]], None, []]), "nested"),
    "binary": (pyarrow.array([b"a", None, b"b"]), "holds bytes"),
    "large binary": (pyarrow.array([b"a", None, b"b"], pyarrow.large_binary()), "holds bytes"),
    "fixed binary": (pyarrow.array([b"a", None, b"b"], pyarrow.binary(1)), "holds bytes"),
    "time32": (pyarrow.array([1, None, 2], pyarrow.time32("s")), "time32"),
    "time64": (pyarrow.array([1, None, 2], pyarrow.time64("us")), "time64"),
    "timestamp": (pyarrow.array([1, None, 2], pyarrow.timestamp("us")), "timestamp"),
    "timestamp of a zone": (pyarrow.array([1, None, 2], pyarrow.timestamp("s", "UTC")), "timestamp"),
    "duration": (pyarrow.array([1, None, 2], pyarrow.duration("s")), "duration"),
    "not a number": (pyarrow.array([float("nan"), None, 1.0], from_pandas=False), "not finite"),
    "infinite": (pyarrow.array([float("inf"), None, 1.0], pyarrow.float16()), "not finite"),
    "past 64 bits": (pyarrow.array([1e30, None, 1.0]), "past 64 bits"),
    "json object": (pyarrow.array(['{"a": 1}', None, "1"], pyarrow.json_()), "holds object; a string is needed"),
    "json list": (pyarrow.array(["[1]", None, "1"], pyarrow.json_()), "holds array; a string is needed"),
    "bad json": (pyarrow.array(["{", None, "1"], pyarrow.json_()), "not JSON"),
    "tensor": (pyarrow.ExtensionArray.from_storage(pyarrow.fixed_shape_tensor(pyarrow.int32(), [1]), pyarrow.array([[1], None, [2]], pyarrow.list_(pyarrow.int32(), 1))),
               "fixed_shape_tensor"),
}


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize("name", WITHOUT_TEXT)
def test_a_type_without_a_text_is_refused_by_its_name(name, form, check, tmp_path):
    column, said = WITHOUT_TEXT[name]
    try:
        path = write_column(tmp_path, name, column, form)
    except (pyarrow.ArrowNotImplementedError, pyarrow.ArrowInvalid) as error:
        pytest.skip(f"pyarrow does not write it: {error}")
    error = check(path, code=4)
    assert "row 1: column 'answer'" in error and said in error, error
    # Null is not a value of a type.
    assert check(path, "--set", "data.on_bad_row=skip")
    assert check(path, "--set", "data.answer_column=none") == digest_of([{"problem": p, "solution": s} for p, s in zip("abc", "xyz")])


@pytest.mark.parametrize("dense", [False, True])
def test_unions_are_refused(dense, check, tmp_path):
    kinds, children = pyarrow.array([0, 1, 0], pyarrow.int8()), [pyarrow.array(["a", "b", "c"]), pyarrow.array([1, 2, 3])]
    column = (pyarrow.UnionArray.from_dense(kinds, pyarrow.array([0, 1, 2], pyarrow.int32()), children) if dense
              else pyarrow.UnionArray.from_sparse(kinds, children))
    assert "nested type" in check(write_column(tmp_path, "union", column, "arrow"), code=4)


def test_what_stands_in_a_files_place_is_named(check, tmp_path):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n"
    for name in ("rows.parquet", "rows.jsonl", "rows.arrow"):
        assert "is a git-LFS pointer" in check(write(tmp_path, {name: pointer}) / name, code=4)
    (tmp_path / "wide.jsonl").write_text(json.dumps(rows_of("a")[0]), encoding="utf-16")
    assert "wide.jsonl is in UTF-16" in check(tmp_path / "wide.jsonl", code=4)


def test_columns_that_are_not_read_are_named(check, config, tmp_path):
    rows = [{**row, "source": "s", "system": "Be brief.", "tools": []} for row in rows_of("a")]
    path = write(tmp_path, {"rows.jsonl": rows}) / "rows.jsonl"
    said = run_dapd("check", config, "--set", f"data.path={path}").stderr
    assert "not read: system; a prompt is made of the column 'problem' alone" in said
    assert "columns that are not needed and not read: source" in said and "tools" not in said
