"""Every file and folder that the documents name is there."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(str(path.relative_to(ROOT)) for pattern in ("README.md", "docs/*.md", "dashboards/*.md", "deploy/**/*.md") for path in ROOT.glob(pattern))
# What a reader is told to make.
MADE_BY_READERS = {"deploy/kubernetes/overlays/mine"}
FOLDERS = ("common", "configs", "dashboards", "deploy", "docs", "proto", "services", "tests")
# A path from the top, in running text, in a command or in a table; what follows may be `:120` or `#section`.
PATH = re.compile(r"(?<![\w./-])(?:%s)/[\w./*{},-]*[\w*}/]" % "|".join(FOLDERS))
# A source without its folder, as a row names the second of two neighbours.
SOURCE = re.compile(r"`(\w+\.(?:h|cc|cu|proto|py))`")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def spelled_out(path):
    """`a/{b,c}` as two paths."""
    group = re.search(r"\{([^{}]*)\}", path)
    if group is None:
        return [path]
    return [whole for part in group[1].split(",") for whole in spelled_out(path[:group.start()] + part + path[group.end():])]


def exists(path):
    """As a file or folder, as a pattern, or without the ending: `a/b` for a/b.h and a/b.cc."""
    path = path.rstrip("/")
    return any(True for _ in ROOT.glob(path)) or any(True for _ in ROOT.glob(path + ".*"))


def missing(document):
    text = (ROOT / document).read_text()
    sources = {path.name for folder in FOLDERS for path in (ROOT / folder).rglob("*.*")}
    named = {path for found in PATH.findall(text) for path in spelled_out(found)}
    folder = (ROOT / document).parent
    return sorted([path for path in named - MADE_BY_READERS if not exists(path)] +
                  [link for link in LINK.findall(text) if not (folder / link).exists()] +
                  [name for name in SOURCE.findall(text) if name not in sources])


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_path_is_there(document):
    assert missing(document) == []


def test_a_path_that_is_not_there_is_found(tmp_path):
    document = tmp_path / "page.md"
    document.write_text("`common/base/files.h`, common/base/no_such_file.h. `deploy/{build,no_such}.sh`, `common/rpc/server/server`, `tests/*/con*.py` "
                        "[a](no_such_page.md#x), [b](https://example.org/docs/x.md), build/tests/x, `dapd/common/x.y`, `files.h`, `no_such_file.cc`")
    assert missing(document) == ["common/base/no_such_file.h", "deploy/no_such.sh", "no_such_file.cc", "no_such_page.md"]
