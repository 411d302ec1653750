"""Compares a model in shards, over several processes, with transformers and with one process."""

import random
import socket
import subprocess

import pytest
import torch
from safetensors.torch import load_file

import models
from conftest import BIN, write_jsonl
from test_objective import make_adapter


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run_ranks(ranks, model, adapter, batch, output):
    rendezvous = f"127.0.0.1:{free_port()}"
    processes = [subprocess.Popen([BIN / "dapd_shard_rank", model, adapter, batch, output, str(rank), str(ranks), rendezvous], stderr=subprocess.PIPE, text=True)
                 for rank in range(ranks)]
    for rank, process in enumerate(processes):
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, f"rank {rank}: {errors}"
    return load_file(output)


@pytest.mark.parametrize("family", ["qwen3", "qwen2", "llama", "llama3", "qwen3_yarn"])
def test_processes_with_a_share_each_give_the_logits_of_the_whole(family, tmp_path):
    from peft import PeftModel

    folder = tmp_path / "model"
    sizes = dict(num_attention_heads=8, num_key_value_heads=4)
    whole = models.make_model(folder, family, **sizes)
    adapter = make_adapter(tmp_path / "adapter", folder, seed=3)
    rng = random.Random(2)
    rows = [{"id": f"r{i}", "input_ids": [rng.randrange(256) for _ in range(length)]} for i, length in enumerate((5, 33))]
    batch = write_jsonl(tmp_path / "batch.jsonl", rows)
    adapted = PeftModel.from_pretrained(whole, adapter).eval()
    with torch.no_grad():
        expected = {row["id"]: adapted(torch.tensor([row["input_ids"]])).logits[0] for row in rows}
    alone = run_ranks(1, folder, adapter, batch, tmp_path / "1.safetensors")
    for ranks in (2, 4):
        found = run_ranks(ranks, folder, adapter, batch, tmp_path / f"{ranks}.safetensors")
        for row in rows:
            name = row["id"]
            error = (found[f"{name}.parallel"] - expected[name]).abs().max().item()
            print(f"{family}, {ranks} processes, {len(row['input_ids'])} tokens: largest difference to transformers {error:.1e}")
            assert error < 2e-4
            assert torch.equal(found[f"{name}.gathered"], alone[f"{name}.gathered"])


def test_a_model_that_cannot_be_divided_is_refused_by_its_number(tmp_path):
    folder = tmp_path / "model"
    models.make_model(folder, "qwen3", num_attention_heads=6, num_key_value_heads=2)
    result = subprocess.run([BIN / "dapd_shard_rank", folder, "", "none.jsonl", "none", "0", "4", "127.0.0.1:1"], capture_output=True, text=True)
    assert result.returncode == 1 and "6 attention heads cannot be split over 4 ranks" in result.stderr
