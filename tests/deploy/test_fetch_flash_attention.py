"""deploy/fetch_flash_attention.py against an index on this machine, with an archive of the same layout."""

import functools
import hashlib
import http.server
import importlib.util
import io
import pathlib
import sys
import tarfile
import threading

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOP = "xformers-0.0.34"
HOPPER = f"{TOP}/third_party/flash-attention/hopper"
CUTLASS = f"{TOP}/third_party/flash-attention/csrc/cutlass"
MEMBERS = {
    f"{HOPPER}/flash.h": b"the parameters",
    f"{HOPPER}/flash_api.cpp": b"not needed",
    f"{HOPPER}/instantiations/flash_fwd.cu": b"not needed",
    f"{CUTLASS}/include/cute/layout.hpp": b"layouts",
    f"{CUTLASS}/LICENSE.txt": b"CUTLASS's licence",
    f"{TOP}/LICENSE": b"xformers' licence",
    f"{TOP}/setup.py": b"raise SystemExit('nothing runs this')",
}


def archive_of(members):
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return data.getvalue()


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("fetch_flash_attention", ROOT / "deploy/fetch_flash_attention.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def index(tmp_path, monkeypatch):
    """Serves a folder as pip's index; returns the function that publishes an archive there."""
    folder = tmp_path / "index"
    (folder / "simple/xformers").mkdir(parents=True)
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple")

    def publish(data):
        (folder / f"{TOP}.tar.gz").write_bytes(data)
        (folder / "simple/xformers/index.html").write_text(
            f'<a href="../../xformers-0.0.33.tar.gz">old</a> <a href="../../{TOP}.tar.gz#sha256=of-the-index">new</a>')
    yield publish
    server.shutdown()
    server.server_close()


def run(script, folder, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["fetch_flash_attention.py", str(folder)])
    script.main()


def test_it_unpacks_headers_kernels_and_licences(script, index, tmp_path, monkeypatch):
    data = archive_of(MEMBERS)
    index(data)
    monkeypatch.setattr(script, "SHA256", hashlib.sha256(data).hexdigest())
    folder = tmp_path / "source"
    (folder / "hopper").mkdir(parents=True)
    (folder / "hopper/of_an_older_version.h").touch()
    run(script, folder, monkeypatch)
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found.pop("fetched-by.py") == (ROOT / "deploy/fetch_flash_attention.py").read_bytes()
    assert found == {"hopper/flash.h": b"the parameters", "cutlass/include/cute/layout.hpp": b"layouts", "licences/cutlass.txt": b"CUTLASS's licence",
                     "licences/xformers.txt": b"xformers' licence"}


def test_another_archive_of_the_name_is_refused(script, index, tmp_path, monkeypatch):
    index(archive_of(MEMBERS))
    with pytest.raises(SystemExit, match=r"has the SHA-256 [0-9a-f]{64}, and 716bd9ff[0-9a-f]{56} is expected; nothing was unpacked"):
        run(script, tmp_path / "source", monkeypatch)
    assert not list(tmp_path.glob("source*"))


def test_an_archive_without_a_part_leaves_what_was_there(script, index, tmp_path, monkeypatch):
    data = archive_of({name: content for name, content in MEMBERS.items() if not name.startswith(CUTLASS)})
    index(data)
    monkeypatch.setattr(script, "SHA256", hashlib.sha256(data).hexdigest())
    (tmp_path / "source").mkdir()
    (tmp_path / "source/kept").touch()
    with pytest.raises(SystemExit, match="has no cutlass/include, licences/cutlass.txt"):
        run(script, tmp_path / "source", monkeypatch)
    assert (tmp_path / "source/kept").exists()


def test_an_index_without_the_archive_is_named(script, index, tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match=r"http://127.0.0.1:\d+/simple/xformers/ has no xformers-0.0.34.tar.gz"):
        run(script, tmp_path / "source", monkeypatch)
