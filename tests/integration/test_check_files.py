"""`dapd check` finds faults of files that would end a run, by reading headers alone, and `dapd run` refuses before it
starts a process."""

import json
import shutil
import struct
import time

import pytest
import torch
from safetensors.torch import load_file, save_file
from workspace import set_flags

SIZES_32B = dict(hidden_size=5120, intermediate_size=25600, num_hidden_layers=64, num_attention_heads=64, num_key_value_heads=8, head_dim=128, vocab_size=151936)


@pytest.fixture
def model(workspace, tmp_path):
    """Provides a copy of the tiny model that a test may damage, with its weights in two shards."""
    folder = tmp_path / "model"
    shutil.copytree(workspace.model, folder)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    shards = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for shard, part in shards.items():
        save_file({name: tensors[name] for name in part}, folder / shard, metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": {name: shard for shard, part in shards.items() for name in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"


def edit(folder, change):
    """Changes one file: `change` edits its tensors."""
    tensors = {name: tensor for shard in (FIRST, SECOND) for name, tensor in load_file(folder / shard).items()}
    for path in [folder / FIRST, folder / SECOND, folder / "model.safetensors.index.json"]:
        path.unlink()
    save_file(change(tensors), folder / "model.safetensors", metadata={"format": "pt"})


def settings_json(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def truncate(folder):
    path = folder / SECOND
    path.write_bytes(path.read_bytes()[:-100])


def without(name):
    return lambda tensors: {key: value for key, value in tensors.items() if key != name}


def cut(folder):
    edit(folder, lambda tensors: {**tensors, "model.norm.weight": tensors["model.norm.weight"][:-1].clone()})


def to_fp8(folder):
    edit(folder, lambda tensors: {name: tensor.to(torch.float8_e4m3fn) if tensor.dim() == 2 else tensor for name, tensor in tensors.items()})


def unlisted(folder):
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    del index["weight_map"]["model.norm.weight"]
    path.write_text(json.dumps(index))


def misplaced(folder):
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["model.norm.weight"] = FIRST if index["weight_map"]["model.norm.weight"] == SECOND else SECOND
    path.write_text(json.dumps(index))


def untie(folder):
    settings_json(folder, tie_word_embeddings=False)
    edit(folder, without("lm_head.weight"))


LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 4976698672\n"
BROKEN = {
    "a shard that ends early": (truncate, "bytes"),
    "junk": (lambda folder: (folder / FIRST).write_bytes(b"\0" * 4096), FIRST),
    "an empty file": (lambda folder: (folder / FIRST).write_bytes(b""), "too short for safetensors"),
    "a page of HTML": (lambda folder: (folder / FIRST).write_text("<!DOCTYPE html>" * 100), "truncated or not a safetensors file"),
    "a git-LFS pointer": (lambda folder: (folder / SECOND).write_text(LFS), "is a git-LFS pointer"),
    "an index that is a git-LFS pointer": (lambda folder: (folder / "model.safetensors.index.json").write_text(LFS), "is a git-LFS pointer"),
    "a shard that is missing": (lambda folder: (folder / SECOND).unlink(), f"lists 2 files, of which 1 is not there: {SECOND}"),
    "shards without their index": (lambda folder: (folder / "model.safetensors.index.json").unlink(), "whose index is missing"),
    "a tensor that the index does not list": (unlisted, "does not list"),
    "a tensor that the index places elsewhere": (misplaced, "which does not have it"),
    "weights in FP8": (to_fp8, "F8_E4M3"),
    "names within another module": (
        lambda folder: edit(folder, lambda tensors: {"module." + name: tensor for name, tensor in tensors.items()}),
        "begin with 'module.model.layers.'",
    ),
    "names without the first part": (
        lambda folder: edit(folder, lambda tensors: {name.removeprefix("model."): tensor for name, tensor in tensors.items()}),
        "begin with 'layers.'",
    ),
    "no head of its own": (untie, "tie_word_embeddings: false"),
    "another shape": (cut, "'model.norm.weight' has shape"),
    "fewer layers": (lambda folder: settings_json(folder, num_hidden_layers=1), "does not belong to a"),
    "more layers": (lambda folder: settings_json(folder, num_hidden_layers=99), "is missing; config.json says"),
    "a pickled model": (
        lambda folder: ([path.unlink() for path in folder.glob("*.safetensors*")], torch.save({}, folder / "pytorch_model.bin")),
        "save_pretrained converts",
    ),
    "a download under way": (
        lambda folder: ([path.unlink() for path in folder.glob("*.safetensors*")], (folder / "model.safetensors.incomplete").touch()),
        "has neither model.safetensors nor",
    ),
    "a family that is not supported": (
        lambda folder: (folder / "config.json").write_text(json.dumps({"model_type": "qwen3_5", "text_config": {"vocab_size": 7}})),
        "model_type 'qwen3_5' is not supported",
    ),
}


def check(workspace, **settings):
    return workspace.dapd("check", workspace.config, *set_flags(settings), check=False)


def test_a_model_that_is_whole_is_sound(workspace, model):
    result = check(workspace, **{"model.path": model})
    assert result.returncode == 0 and result.stdout.endswith("the configuration is sound\n"), result


@pytest.mark.parametrize("case", BROKEN)
def test_weights_that_a_run_would_die_of_are_named_without_one(case, workspace, model):
    change, expected = BROKEN[case]
    change(model)
    result = check(workspace, **{"model.path": model})
    print(result.stderr)
    assert result.returncode == 4 and expected in result.stderr and result.stderr.count("\n") == 1, result
    assert "sound" not in result.stdout
    run = workspace.run("broken", check=False, **{"model.path": model})
    assert run.returncode == 4 and run.stderr.splitlines()[-1] == result.stderr.splitlines()[-1], run
    assert "started" not in run.stderr and not workspace.runs("broken").exists()


def test_a_plan_needs_no_weights_and_says_so(workspace, model):
    for path in model.glob("*.safetensors*"):
        path.unlink()
    result = check(workspace, **{"model.path": model})
    assert result.returncode == 0 and f"no weights were seen in {model}" in result.stdout, result
    assert result.stdout.endswith("the configuration is sound; no weights were seen\n")
    run = workspace.run("planned", check=False, **{"model.path": model})
    assert run.returncode == 4 and "has neither model.safetensors" in run.stderr and "started" not in run.stderr, run


def test_headers_of_a_model_of_32b_take_seconds(workspace, model):
    """The files are sparse and have the published model's size: 65 GB that take no room."""
    for path in model.glob("*.safetensors*"):
        path.unlink()
    settings_json(model, model_type="qwen3", tie_word_embeddings=False, max_position_embeddings=40960, **SIZES_32B)
    h, d, f, v = 5120, 128, 25600, 151936
    shapes = {"model.embed_tokens.weight": [v, h], "model.norm.weight": [h], "lm_head.weight": [v, h]}
    for i in range(64):
        for name, shape in {
            "input_layernorm": [h], "post_attention_layernorm": [h], "self_attn.q_norm": [d], "self_attn.k_norm": [d],
            "self_attn.q_proj": [64 * d, h], "self_attn.k_proj": [8 * d, h], "self_attn.v_proj": [8 * d, h], "self_attn.o_proj": [h, 64 * d],
            "mlp.gate_proj": [f, h], "mlp.up_proj": [f, h], "mlp.down_proj": [h, f],
        }.items():
            shapes[f"model.layers.{i}.{name}.weight"] = shape
    index, names = {}, sorted(shapes)
    for shard in range(17):
        file = f"model-{shard + 1:05}-of-00017.safetensors"
        header, end = {}, 0
        for name in names[shard::17]:
            size = 2
            for extent in shapes[name]:
                size *= extent
            header[name] = {"dtype": "BF16", "shape": shapes[name], "data_offsets": [end, end + size]}
            end += size
            index[name] = file
        text = json.dumps(header).encode()
        with open(model / file, "wb") as out:
            out.write(struct.pack("<Q", len(text)) + text)
            out.truncate(8 + len(text) + end)
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    start = time.monotonic()
    result = check(workspace, **{"model.path": model})
    seconds = time.monotonic() - start
    print(f"{seconds:.2f} s")
    assert result.returncode == 0 and seconds < 5, result
    with open(model / "model-00017-of-00017.safetensors", "r+b") as last:
        last.truncate(1 << 20)
    result = check(workspace, **{"model.path": model})
    assert result.returncode == 4 and "model-00017-of-00017.safetensors" in result.stderr, result


@pytest.fixture
def adapter(workspace, tmp_path):
    folder = tmp_path / "adapter"
    workspace.dapd("adapter", "init", "--model", workspace.model, "--output", folder, "--rank", 4, "--alpha", 8)
    path = folder / "adapter_model.safetensors"
    save_file(load_file(path), path, metadata={"format": "pt"})  # another program writes no digest of ours
    return folder


def spoil(change):
    def on(folder):
        path = folder / "adapter_model.safetensors"
        save_file(change(load_file(path)), path, metadata={"format": "pt"})

    return on


def adapter_json(**changes):
    def on(folder):
        path = folder / "adapter_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return on


STARTS = {
    "names as in memory": (
        spoil(lambda tensors: {name.replace(".weight", ".default.weight"): tensor for name, tensor in tensors.items()}), 4, "ends in '.lora_A.default.weight'",
    ),
    "another prefix": (spoil(lambda tensors: {"module." + name: tensor for name, tensor in tensors.items()}), 4, "begin with 'module.base_model."),
    "a tensor that is missing": (spoil(lambda tensors: dict(list(tensors.items())[1:])), 4, "is missing"),
    "another rank": (adapter_json(r=5), 4, "expected [5,"),
    "another rank that fits": (adapter_json(use_rslora=True), 3, "set lora.alpha=16"),
    "a file that ends early": (lambda folder: (folder / "adapter_model.safetensors").write_bytes((folder / "adapter_model.safetensors").read_bytes()[:-9]), 4, "bytes"),
    "a git-LFS pointer": (lambda folder: (folder / "adapter_model.safetensors").write_text(LFS), 4, "is a git-LFS pointer"),
    "no tensors": (lambda folder: (folder / "adapter_model.safetensors").unlink(), 4, "No such file"),
}


@pytest.mark.parametrize("case", STARTS)
def test_an_adapter_that_a_run_cannot_start_from_is_named_without_one(case, workspace, adapter):
    settings = {"lora.start_from": adapter}
    assert check(workspace, **settings).returncode == 0
    change, code, expected = STARTS[case]
    change(adapter)
    result = check(workspace, **settings)
    print(result.stderr)
    assert result.returncode == code and expected in result.stderr and "sound" not in result.stdout, result
    run = workspace.run("start", check=False, **settings)
    assert run.returncode == code and expected in run.stderr and "started" not in run.stderr, run


def test_an_adapter_of_another_base_is_a_warning(workspace, adapter):
    adapter_json(base_model_name_or_path="Qwen/Qwen3-8B")(adapter)
    result = check(workspace, **{"lora.start_from": adapter, "model.name": "Qwen/Qwen3-4B"})
    assert result.returncode == 0 and "says that it was trained on Qwen/Qwen3-8B, and the base is Qwen/Qwen3-4B" in result.stderr, result
    assert "trained on" not in check(workspace, **{"lora.start_from": adapter, "model.name": "Qwen/Qwen3-8B@main"}).stderr
