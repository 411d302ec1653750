"""Tests that checkouts which want the same root at the same time share it: one checkout makes it."""

import concurrent.futures
import pathlib
import time

import debian_root


def test_two_that_want_the_same_root_make_it_once(tmp_path, monkeypatch):
    (tmp_path / ".deps").mkdir()
    monkeypatch.setattr(debian_root, "ROOT", tmp_path)
    made = []

    def make(root, packages, release):
        """Takes some time, as debootstrap does."""
        made.append(root)
        time.sleep(0.5)
        pathlib.Path(root).mkdir()

    monkeypatch.setattr(debian_root, "make_root", make)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda number: debian_root.debian_root({"hello"}, "bookworm"), range(4)))
    assert len(set(found)) == 1 and found[0].exists() and made == found[:1]
    # Another set of packages has its own root and waits for no other set.
    assert debian_root.debian_root({"hello", "jq"}, "bookworm") != found[0] and len(made) == 2


def test_one_that_fails_leaves_the_next_to_try(tmp_path, monkeypatch):
    (tmp_path / ".deps").mkdir()
    monkeypatch.setattr(debian_root, "ROOT", tmp_path)
    answers = iter((RuntimeError("no mirror"), None))

    def make(root, packages, release):
        answer = next(answers)
        if answer:
            raise answer
        root.mkdir()

    monkeypatch.setattr(debian_root, "make_root", make)
    for expected in ("no mirror", ""):
        try:
            assert debian_root.debian_root(set(), "bookworm").exists() and not expected
        except RuntimeError as error:
            assert str(error) == expected
