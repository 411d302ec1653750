"""Parquet as pyarrow writes it: its rows must have the digest of the same data in JSON Lines."""

import gzip
import json
import re

import pyarrow
import pyarrow.parquet
import pytest

import models
from conftest import run_dapd

ROWS = [
    {"id": f"r{i}", "problem": f"What is {i} + {i}? \u00e9\u4e2d", "solution": f"{2 * i}\n\nDone. " + "x" * (i % 50), "answer": str(2 * i)}
    for i in range(700)
]


@pytest.fixture(scope="module")
def check(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    models.make_model(folder / "model", "qwen3")
    (folder / "config.yaml").write_text(f"model: {{path: {folder}/model}}\nrollout: {{max_new_tokens: 256}}\n")

    def run(path, *flags, code=0):
        result = run_dapd("check", folder / "config.yaml", "--set", f"data.path={path}", *flags, check=False)
        assert result.returncode == code, result.stderr
        return re.search(r"data .*?(\d+) problems, (\d+) rows skipped, digest (\w+)", result.stdout).groups() if code == 0 else result.stderr

    return run


@pytest.fixture(scope="module")
def expected(check, tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    zipped = path.with_name("rows.jsonl.gz")
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    assert check(path) == check(zipped)
    return check(path)


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd"])
@pytest.mark.parametrize("dictionary", [False, True])
def test_codecs_and_encodings(compression, dictionary, check, expected, tmp_path):
    table = pyarrow.Table.from_pylist(ROWS)
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(table, path, compression=compression, use_dictionary=dictionary, row_group_size=123, data_page_version="2.0")
    assert check(path) == expected


def test_large_strings_numbers_and_unasked_nested_columns(check, expected, tmp_path):
    table = pyarrow.Table.from_pylist(ROWS)
    table = table.set_column(2, "solution", table["solution"].cast(pyarrow.large_string()))
    table = table.set_column(3, "answer", table["answer"].cast(pyarrow.int64()))
    table = table.append_column("messages", pyarrow.array([[{"role": "user"}]] * len(ROWS)))
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(table, path)
    assert check(path) == expected


def test_categories_are_their_texts(check, expected, tmp_path):
    table = pyarrow.Table.from_pylist(ROWS)
    for index, name in enumerate(table.column_names):
        table = table.set_column(index, name, table[name].dictionary_encode())
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(table, path, row_group_size=123)
    assert check(path) == expected


def test_missing_nested_double_and_damaged_columns_are_named(check, tmp_path):
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"question": ["a"], "text": ["b"]}), path)
    assert "question, text" in check(path, code=4)
    pyarrow.parquet.write_table(pyarrow.table({"problem": [["a"]], "solution": ["b"]}), path)
    assert "nested" in check(path, code=4)
    for twice in ("problem", "answer"):
        pyarrow.parquet.write_table(pyarrow.table([["a"]] * 4, names=["problem", "solution", "answer", twice]), path)
        assert f"there are 2 columns '{twice}'" in check(path, code=4)
    path.write_bytes(path.read_bytes()[:-30])
    assert "rows.parquet" in check(path, code=4)


def test_null_cells_are_bad_rows(check, tmp_path):
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"problem": ["a", None, "c"], "solution": ["x", "y", "z"]}), path)
    assert "row 2" in check(path, code=4)
    assert check(path, "--set", "data.on_bad_row=skip")[:2] == ("2", "1")


@pytest.mark.parametrize("column", ["id", "problem", "solution", "answer"])
def test_texts_that_are_not_utf8_are_bad_rows(column, check, tmp_path):
    """pyarrow writes any bytes that it is told are text, and no file of a run could quote them."""
    columns = {name: ["a", "b"] for name in ("id", "problem", "solution", "answer")}
    columns[column] = pyarrow.array([b"a", b"b\xff"]).view(pyarrow.string())
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    error = check(path, code=4)
    assert "row 2" in error and f"column '{column}' is not UTF-8" in error
    assert check(path, "--set", "data.on_bad_row=skip")[:2] == ("1", "1")
