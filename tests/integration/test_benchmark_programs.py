"""Programs of tests/benchmarks that only a benchmark's row calls (row C4's is called by tests/oracle/test_objective.py)."""

from workspace import BIN, ROOT


def test_the_transport_of_row_c6_delivers_what_the_teacher_sent(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tests/benchmarks"))
    from duel import Contender

    program, requests = BIN / "dapd_transport_benchmark", 2
    with Contender("teacher", [program, "teacher"]) as teacher, \
         Contender("trainer", [program, "trainer", teacher.ready["address"], requests, *teacher.ready["crc32c"]]) as trainer:
        checked = trainer.round("check")
        shape = trainer.ready
    assert checked["wrong"] == 0
    assert checked["bytes"] == requests * shape["views"] * shape["tokens"] * shape["hidden"] * 2 > 0
