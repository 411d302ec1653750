"""Fixtures of tests with real processes on a tiny random model."""

import os
import pathlib
import sys

import pytest

# This comes before torch is loaded: tests and services share the cores, and waiting threads would spin.
os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fakes"))

pytest.register_assert_rewrite("drawn_page")
from browser import Browser  # noqa: E402
from drawn_page import PICTURES  # noqa: E402
from workspace import BIN, ROOT, Workspace, children, set_flags, wait_for  # noqa: E402, F401


@pytest.fixture(scope="session")
def workspace(tmp_path_factory):
    return Workspace(tmp_path_factory.mktemp("integration"))


@pytest.fixture(scope="session")
def reference_run(workspace):
    """Provides the undisturbed run with one worker of each role."""
    workspace.run("reference")
    return workspace


@pytest.fixture(scope="module", autouse=True)
def no_runs_of_another_file(workspace):
    """Lets two files of tests give their runs the same names: a process of pytest has one workspace for all its files."""
    workspace.forget_runs(keep="reference")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    PICTURES.mkdir(parents=True, exist_ok=True)
    browser = Browser(tmp_path_factory.mktemp("browser") / "profile")
    yield browser
    browser.close()


@pytest.fixture
def page(browser):
    """Provides the browser, without errors so far."""
    browser.open("about:blank")
    browser.requests.clear()
    browser.problems.clear()
    return browser
