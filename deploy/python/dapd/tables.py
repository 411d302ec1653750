"""Converts the JSON of a run's folder to Arrow tables."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # pyarrow has no types, and may be missing.
    from pyarrow import Table as Table  # type: ignore[import-untyped, import-not-found, unused-ignore]

Row = dict[str, Any]


def json_lines(path: pathlib.Path) -> Iterator[Row]:
    """Returns the whole lines of a file; none if it does not exist yet. A line without its end is still being written."""
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                if line.endswith("\n"):
                    yield json.loads(line)
    except FileNotFoundError:
        return


def flattened(row: Row, prefix: str = "") -> Row:
    """Returns {"terms/a/value": 1} for {"terms": {"a": {"value": 1}}}; lists stay."""
    flat: Row = {}
    for key, value in row.items():
        if isinstance(value, dict):
            flat.update(flattened(value, f"{prefix}{key}/"))
        else:
            flat[prefix + key] = value
    return flat


def table(rows: Iterable[Row]) -> Table:
    """Returns a table with a column for each key, in the order in which the keys appear, and null where a row lacks the
    key."""
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("a run's tables are Arrow tables: pip install pyarrow", name="pyarrow") from error
    flat = [flattened(row) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    return pyarrow.table({name: pyarrow.array([row.get(name) for row in flat]) for name in names})
