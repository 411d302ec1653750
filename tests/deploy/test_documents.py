"""Checks that every file and folder that the documents name exists, and every command, flag and key in their code."""

import pathlib
import re

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(str(path.relative_to(ROOT)) for pattern in ("README.md", "docs/*.md", "dashboards/*.md", "deploy/**/*.md") for path in ROOT.glob(pattern))
# The documents tell readers to make these.
MADE_BY_READERS = {f"deploy/kubernetes/overlays/mine{path}" for path in ("", "/teacher-big", "/teacher-code")}
FOLDERS = ("common", "configs", "dashboards", "deploy", "docs", "proto", "services", "tests")
# Matches a path from the top in text, in a command or in a table; `:120` or `#section` may follow.
PATH = re.compile(r"(?<![\w./-])(?:%s)/[\w./*{},-]*[\w*}/]" % "|".join(FOLDERS))
# Matches a source without its folder, such as the second of two neighbours in a table's row.
SOURCE = re.compile(r"`(\w+\.(?:h|cc|cu|proto|py))`")
LINK = re.compile(r"\]\(([^)#:]*)(?:#([^)]*))?\)")


def spelled_out(path):
    """Expands `a/{b,c}` to two paths."""
    group = re.search(r"\{([^{}]*)\}", path)
    if group is None:
        return [path]
    return [whole for part in group[1].split(",") for whole in spelled_out(path[:group.start()] + part + path[group.end():])]


def exists(path):
    """Returns whether the path is a file, a folder or a pattern, or lacks its ending: `a/b` for a/b.h and a/b.cc."""
    path = path.rstrip("/")
    return any(True for _ in ROOT.glob(path)) or any(True for _ in ROOT.glob(path + ".*"))


def sections(page):
    """Returns the names under which links reach its headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def is_linked(page, section):
    return page.exists() and (not section or page.suffix != ".md" or section in sections(page))


def missing(document):
    text = (ROOT / document).read_text()
    sources = {path.name for folder in FOLDERS for path in (ROOT / folder).rglob("*.*")}
    named = {path for found in PATH.findall(text) for path in spelled_out(found)}
    folder = (ROOT / document).parent
    return sorted([path for path in named - MADE_BY_READERS if not exists(path)] +
                  ["#".join(filter(None, link)) for link in LINK.findall(text)
                   if not is_linked(folder / link[0] if link[0] else ROOT / document, link[1])] +
                  [name for name in SOURCE.findall(text) if name not in sources])


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_path_is_there(document):
    assert missing(document) == []


def test_a_path_that_is_not_there_is_found(tmp_path):
    document = tmp_path / "page.md"
    document.write_text("# Here\n`common/base/files.h`, common/base/no_such_file.h. `deploy/{build,no_such}.sh`, `common/rpc/server/server`, `tests/*/con*.py` "
                        "[a](no_such_page.md#x), [c](#here), [d](#there), [b](https://example.org/docs/x.md), build/tests/x, `dapd/common/x.y`, `files.h`, `no_such_file.cc`")
    assert missing(document) == ["common/base/no_such_file.h", "deploy/no_such.sh", "no_such_file.cc", "no_such_page.md#x", "there"]


def test_every_fuzz_target_is_described():
    section = (ROOT / "docs/robustness.md").read_text().split("## Fuzzing")[1].split("## Damaged files")[0]
    described = set(re.findall(r"`(\w+)`", section))
    targets = {path.name.removesuffix("_fuzz.cc") for path in (ROOT / "tests/fuzz").glob("*_fuzz.cc")}
    assert len(targets) >= 25 and targets - described == set()


def test_every_exit_code_is_in_the_readme():
    codes = re.findall(r"^ +k\w+ = (\d+),", (ROOT / "common/base/exit_code.h").read_text(), re.MULTILINE)
    paragraph = (ROOT / "README.md").read_text().split("Exit codes: ")[1].split("\n\n")[0]
    assert len(codes) >= 9 and re.findall(r"\b\d+\b", paragraph) == codes


FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Matches a call of `dapd` up to the shell's own characters; `-n dapd` is a namespace of kubectl.
CALL = re.compile(r"(?<![\w./$-])(?<!-n )(?:build/bin/)?dapd +([^;|>&#\n]*)")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def calls(text):
    """Returns every call of `dapd` in a document's code: fenced, or indented by four spaces."""
    code = [block for _, block in FENCED.findall(text)]
    code += re.findall(r"^ {4}\S.*$", FENCED.sub("", text), re.MULTILINE)
    return [call for part in code for call in CALL.findall(re.sub(r"\\\n\s*", " ", part))]


def source_of(command):
    """Returns the sources that declare a subcommand's options: its own source, and the included sources that declare options."""
    own = ROOT / "services/cli" / f"{command.replace('-', '_')}_command.cc"
    texts, paths = {}, [own]
    while paths:
        path = paths.pop()
        if path in texts or not path.exists():
            continue
        text = path.read_text()
        if path != own and "AddOption(" not in text:
            continue
        texts[path] = text
        headers = [ROOT / header for header in re.findall(r'#include "(services/cli/\w+\.h)"', text)]
        paths += headers + [header.with_suffix(".cc") for header in headers]
    return "".join(texts.values())


def config_keys():
    return set(re.findall(r"^\| `([a-z][\w.]*)` \|", (ROOT / "docs/configuration.md").read_text(), re.MULTILINE))


def wrong_in_call(call):
    command, *rest = call.split()
    if command.startswith("-"):
        return []
    source = source_of(command)
    if not source:
        return [f"dapd {command}"]
    known = {*re.findall(r'"(--[a-z][a-z-]*)"', source), "--help"}
    wrong = [f"dapd {command} {flag}" for flag in FLAG.findall(call) if flag not in known]
    # The name of a command with subcommands is followed by a subcommand.
    own = set(re.findall(r'(?<!app)\.AddSubcommand\(\s*"([a-z-]+)"', source))
    if own and (not rest or rest[0] not in own):
        wrong.append(f"dapd {' '.join([command, *rest[:1]])}")
    settings = re.findall(r"--set +['\"]?([\w.]+)=", call)
    return wrong + [key for key in settings if key not in config_keys()]


def flattened(mapping, prefix=""):
    for key, value in mapping.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and name not in config_keys():
            yield from flattened(value, f"{name}.")
        else:
            yield name


def wrong_in_yaml(text):
    """Returns unknown keys and missing files in the YAML of a sweep, or of a configuration that extends another."""
    content = yaml.safe_load(text)
    if not isinstance(content, dict):
        return []
    if "extends" in content:
        return [key for key in flattened({key: value for key, value in content.items() if key != "extends"}) if key not in config_keys()]
    if "config" not in content:
        return []
    keys = [*content.get("set", {}), *content.get("grid", {}), *(key for row in content.get("list", []) for key in row.get("set", {}))]
    return [key for key in keys if key not in config_keys()] + [content["config"]] * (not (ROOT / content["config"]).exists())


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_and_key_in_code_is_there(document):
    text = (ROOT / document).read_text()
    found = calls(text)
    print(f"{len(found)} calls of dapd")
    wrong = [problem for call in found for problem in wrong_in_call(call)]
    wrong += [problem for language, block in FENCED.findall(text) if language == "yaml" for problem in wrong_in_yaml(block)]
    assert wrong == []


@pytest.mark.parametrize("path", sorted((ROOT / "configs/sweeps").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_key_of_a_sweep_is_there(path):
    assert wrong_in_yaml(path.read_text()) == []
    names = [row["name"] for row in yaml.safe_load(path.read_text())["list"]]
    assert len(set(names)) == len(names)


def test_a_command_a_flag_and_a_key_that_are_not_there_are_found():
    text = """
```bash
for c in a b; do build/bin/dapd run "$c" --set trainer.stepz=3 --set trainer.steps=3; done | dapd check "$c" --rank 2
dapd eval --model m \\
  --adaptor x   # --no-such-flag behind a comment
dapd probe claim --input x
```
In running text dapd frobnicate is not looked at.

    dapd frobnicate x
"""
    assert [problem for call in calls(text) for problem in wrong_in_call(call)] == [
        "trainer.stepz", "dapd check --rank", "dapd eval --adaptor", "dapd probe claim", "dapd frobnicate"]
    assert wrong_in_yaml("{config: configs/no-such.yaml, grid: {trainer.rate: [1]}, list: [{set: {run.seed: 1}}]}") == [
        "trainer.rate", "configs/no-such.yaml"]
    assert wrong_in_yaml("{extends: x.yaml, data: {path: y, colour: z}}") == ["data.colour"]
