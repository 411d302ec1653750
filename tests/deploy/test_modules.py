"""Checks that a module's DEPS are the modules that its files include: the built architecture is the architecture in docs/development.md."""

import functools
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


@functools.cache
def modules():
    """Maps a module's name to its dependencies and to its sources without their endings."""
    found = {}
    for path in map(Path, subprocess.check_output(["git", "ls-files", "common", "services"], cwd=ROOT, text=True).split()):
        if path.name != "CMakeLists.txt":
            continue
        text = re.sub(r"#.*", "", (ROOT / path).read_text())
        for name, body in re.findall(r"dapd_module\((\w+)([^)]*)\)", text):
            lists = dict(re.findall(r"\b(SRCS|DEPS)\b(.*?)(?=\bSRCS\b|\bDEPS\b|\bTESTS\b|\Z)", re.sub(r"\$\{.*?\}\S*", "", body), re.DOTALL))
            sources = [str(path.parent / source).removesuffix(".cc") for source in lists["SRCS"].split() if source.endswith(".cc")]
            found[f"dapd_{name}"] = (lists["DEPS"].split(), sources)
    return found


@functools.cache
def below(module):
    """Returns the module and all modules that it depends on."""
    dependencies = modules().get(module, ([], []))[0]
    return {module}.union(*map(below, dependencies))


def headers(path):
    """Returns our headers that a file includes, without their ending; headers that the build writes are left out."""
    names = re.findall(r'^#include "((?:common|services)/[^"]+)\.h"', (ROOT / path).read_text(), re.MULTILINE)
    return {name for name in names if (ROOT / f"{name}.h").exists()}


def included(path, stops):
    """Returns the headers that a file includes, and in turn the headers that these include unless `stops` is true for them."""
    seen, ahead = set(), {path}
    while ahead:
        found = headers(ahead.pop()) - seen
        seen |= found
        ahead |= {f"{header}.h" for header in found if not stops(header)}
    return seen


@functools.cache
def owners():
    return {source: module for module, (_, sources) in modules().items() for source in sources}


def test_every_module_names_what_its_files_include():
    assert len(modules()) > 40 and len(owners()) > 300
    missing = set()
    for source, module in owners().items():
        for path in (f"{source}.h", f"{source}.cc"):
            if (ROOT / path).exists():
                # A header without a source belongs to the modules that include it.
                ours = [header for header in included(path, stops=owners().__contains__) if header in owners()]
                missing |= {f"{module} does not name {owners()[header]}, whose {header}.h {path} includes"
                            for header in ours if owners()[header] not in below(module)}
    assert not missing, "\n".join(sorted(missing))


def test_no_module_depends_on_itself():
    # With a cycle below() would not end.
    assert all(module not in below(dependency) for module, (dependencies, _) in modules().items() for dependency in dependencies)


def test_no_file_sees_both_libtorch_and_grpc():
    sources = [path for path in subprocess.check_output(["git", "ls-files", "common", "services"], cwd=ROOT, text=True).split() if path.endswith(".cc")]
    both, seen = [], set()
    for source in sources:
        texts = [(ROOT / path).read_text() for path in (source, *(f"{header}.h" for header in included(source, stops=lambda _: False)))]
        kinds = {kind for kind in (r"<(?:ATen|torch|c10)/", r"<grpc|\S+\.grpc\.pb\.h") if any(re.search(f"^#include {kind}", text, re.MULTILINE) for text in texts)}
        seen |= kinds
        if len(kinds) > 1:
            both.append(source)
    assert len(seen) == 2 and not both, both
