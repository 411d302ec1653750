"""A run on conversations: what is trained is what `dapd views` shows of the rows, and recorded samples keep it."""

import json

import pytest
from workspace import set_flags

SYSTEM = "You convert units."


@pytest.fixture(scope="module")
def settings(workspace, tmp_path_factory):
    rows = [json.loads(line) for line in (workspace.folder / "train.jsonl").read_text().splitlines()]
    chats = []
    for i, row in enumerate(rows[:12]):
        messages = [{"role": "system", "content": f"Row {i}."}] if i % 2 else []
        messages += [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello!"}, {"role": "user", "content": row["problem"]},
                     {"role": "assistant", "content": row["solution"]}]
        chats.append({"id": str(row["id"]), "chat": messages, "answer": row["answer"], "hint": {"b": [i, None], "a": "x"}})
    path = tmp_path_factory.mktemp("chats") / "chats.jsonl"
    path.write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    return {"data.path": path, "data.messages_column": "chat", "data.system": SYSTEM, "evaluation.path": path, "evaluation.kl_problems": 2,
            "prompts.privileged": '"{prompt}\\n{context}\\n{reference}"', "data.context_column": "hint", "trainer.steps": 2}


def test_a_run_trains_conversations_as_they_are_shown(workspace, settings, tmp_path):
    workspace.run("chats", **settings)
    workspace.dapd("views", "--config", workspace.config, *set_flags(settings), "--rows", "100", "--output", tmp_path / "rows.jsonl")
    shown = {row["id"]: row for row in map(json.loads, (tmp_path / "rows.jsonl").read_text().splitlines())}
    assert len(shown) == 12
    for i, row in enumerate(shown.values()):
        for text in row["texts"].values():
            assert "Hello!" in text and ((f"Row {i}." in text) == bool(i % 2)) and ((SYSTEM in text) != bool(i % 2)), text
        assert f'{{"b": [{i}, null], "a": "x"}}' in row["texts"]["cross_rollout"]
        assert '"b"' not in row["texts"]["none_rollout"]
    samples = workspace.runs("chats") / "samples/step-000001.jsonl"
    workspace.dapd("views", "--config", workspace.config, *set_flags(settings), "--input", samples, "--output", tmp_path / "views.jsonl")
    recorded = [json.loads(line) for line in (tmp_path / "views.jsonl").read_text().splitlines()]
    assert len(recorded) == 6
    for sample in recorded:
        for name, view in shown[sample["id"]]["views"].items():
            ids = sample["views"][name]["input_ids"]
            assert ids[:len(view["input_ids"])] == view["input_ids"], name
            if view["scored_count"]:
                assert sample["views"][name] == view, name


def test_a_run_that_is_continued_has_the_same_adapter(workspace, settings):
    workspace.run("parts", **{**settings, "trainer.steps": 1})
    workspace.run("parts", **settings)
    assert workspace.adapter_digest("parts") == workspace.adapter_digest("chats")
