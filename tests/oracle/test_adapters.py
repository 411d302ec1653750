"""Adapter folders: peft reads ours, we read peft's, and an adapter that does not fit is refused with the reason."""

import json
import shutil

import pytest
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

import models
from conftest import run_dapd
from test_model import MAX_LOGIT_ERROR, hf_logits, score
from test_objective import ALPHA, RANK, Case, make_adapter

TEXT = list(b"peft and dapd, side by side")


@pytest.mark.parametrize("family, targets", [("qwen3", "all"), ("qwen2", "v_proj, q_proj"), ("llama", "all")])
def test_peft_reads_what_we_trained(family, targets, tmp_path):
    case = Case(tmp_path, family, 8)
    settings = {} if targets == "all" else {"lora.targets": f"[{targets}]"}
    out = case.replay("--apply", **{"trainer.batch_size": 2, "trainer.learning_rate": 0.01, **settings})
    plain = hf_logits(case.base, TEXT)
    theirs = hf_logits(PeftModel.from_pretrained(case.base, out / "adapter").eval(), TEXT)
    rows = [{"id": "x", "input_ids": TEXT}]
    ours = score(case.folder, tmp_path, rows, "--logits", "--adapter", out / "adapter")["x.logits"]
    difference, moved = (ours - theirs).abs().max().item(), (plain - theirs).abs().max().item()
    print(f"{family}: training moved logits by {moved:.1e}; ours differ from peft's by {difference:.1e}")
    assert moved > 0.01 and difference <= MAX_LOGIT_ERROR


def test_a_round_trip_changes_no_bit(tmp_path):
    """A step at a rate too small for float32 reads and writes the adapter."""
    case = Case(tmp_path, "qwen3", 2)
    adapter = make_adapter(tmp_path / "adapter", case.folder, seed=5)
    out = case.replay("--apply", "--adapter", adapter, **{"trainer.batch_size": 2, "trainer.learning_rate": 1e-30})
    before, after = (load_file(folder / "adapter_model.safetensors") for folder in (adapter, out / "adapter"))
    assert set(before) == set(after)
    assert all(torch.equal(before[name], after[name]) for name in before)
    config = json.loads((out / "adapter" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["peft_type"]) == (RANK, ALPHA, "LORA")


@pytest.fixture(scope="module")
def peft_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapter")
    models.make_model(folder / "model", "qwen3")
    make_adapter(folder / "adapter", folder / "model", seed=6)
    return folder


def verify(folder, adapter, *flags):
    return run_dapd("adapter", "verify", "--model", folder / "model", "--adapter", adapter, *flags, check=False)


def test_verify_counts_modules_and_norms(peft_folder):
    report = json.loads(verify(peft_folder, peft_folder / "adapter", "--json").stdout)
    tensors = load_file(peft_folder / "adapter" / "adapter_model.safetensors")
    assert report["modules_applied"] == report["modules_expected"] == 3 * 7
    for key, part in (("norm_a", "lora_A"), ("norm_b", "lora_B")):
        expected = sum(t.square().sum() for name, t in tensors.items() if part in name).sqrt().item()
        assert report[key] == pytest.approx(expected, rel=1e-5)
    products = [tensors[n.replace("lora_A", "lora_B")] @ t for n, t in tensors.items() if "lora_A" in n]
    expected = ALPHA / RANK * sum(p.square().sum() for p in products).sqrt().item()
    assert report["norm_delta"] == pytest.approx(expected, rel=1e-5)
    assert report["changes_nothing"] is False


def test_verify_says_when_nothing_changes(peft_folder, tmp_path):
    run_dapd("adapter", "init", "--model", peft_folder / "model", "--output", tmp_path / "fresh", "--rank", RANK)
    result = verify(peft_folder, tmp_path / "fresh")
    assert result.returncode == 0 and "changes nothing" in result.stdout


def test_no_target_of_a_fresh_adapter_occurs_twice(peft_folder, tmp_path):
    result = run_dapd("adapter", "init", "--model", peft_folder / "model", "--output", tmp_path / "fresh", "--targets", "q_proj", "k_proj", "q_proj",
                      check=False)
    assert result.returncode == 2 and "--targets: 'q_proj' occurs twice" in result.stderr
    assert not (tmp_path / "fresh").exists()


def test_a_fresh_adapter_is_not_written_over_another_one(peft_folder, tmp_path):
    folder = tmp_path / "fresh"
    folder.mkdir()
    init = ("adapter", "init", "--model", peft_folder / "model", "--output", folder, "--rank", RANK)
    run_dapd(*init)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    result = run_dapd(*init, "--seed", 7, check=False)
    assert result.returncode == 2 and f"{folder} already exists" in result.stderr
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


UNSLOTH = (
    r"(?:.*?(?:language|text).*?(?:self_attn|attention|attn|mlp|feed_forward|ffn|dense).*?(?:q_proj|up_proj).*?)"
    r"|(?:\bmodel\.layers\.[\d]{1,}\.(?:self_attn|attention|attn|mlp|feed_forward|ffn|dense)\.(?:(?:q_proj|up_proj)))"
)
KINDS = {
    "rank-stabilised": dict(r=8, lora_alpha=16, use_rslora=True, target_modules=["q_proj", "down_proj"]),
    "rank-stabilised of rank 3": dict(r=3, lora_alpha=7, use_rslora=True, target_modules=["v_proj"]),
    "an expression": dict(r=4, lora_alpha=8, target_modules=r".*\.(?:q|gate)_proj"),
    "an expression as unsloth writes it": dict(r=4, lora_alpha=8, target_modules=UNSLOTH),
    "an expression of some layers": dict(r=4, lora_alpha=8, target_modules=r"model\.layers\.[02]\.self_attn\.(q|k)_proj"),
    "all linear layers": dict(r=4, lora_alpha=8, target_modules="all-linear"),
    "ends of names": dict(r=4, lora_alpha=8, target_modules=["self_attn.q_proj", "layers.1.mlp.up_proj"]),
    "all but some": dict(r=4, lora_alpha=8, target_modules=["q_proj", "up_proj"], exclude_modules=["layers.1.mlp.up_proj"]),
    "some layers": dict(r=4, lora_alpha=8, target_modules=["q_proj", "o_proj"], layers_to_transform=[0, 2]),
    "one layer by its pattern": dict(r=4, lora_alpha=8, target_modules=["q_proj"], layers_to_transform=1, layers_pattern="layers"),
    "ranks of their own": dict(r=4, lora_alpha=8, target_modules=["q_proj", "up_proj"], rank_pattern={"up_proj": 6, "layers.1.self_attn.q_proj": 2}),
    "alphas of their own": dict(r=4, lora_alpha=8, target_modules=["q_proj", "up_proj"], alpha_pattern={r"layers\.[01]\..*up_proj": 24}),
    "everything at once": dict(
        r=4, lora_alpha=8, use_rslora=True, target_modules=["q_proj", "up_proj"], rank_pattern={"q_proj": 9}, alpha_pattern={"^model.layers.0.mlp.up_proj": 3}
    ),
    "an untrained head": dict(r=4, lora_alpha=8, target_modules=["q_proj"], modules_to_save=["lm_head"], tied=False),
    "an untrained embedding and head": dict(r=4, lora_alpha=8, target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"], tied=False),
    "an untrained norm": dict(r=4, lora_alpha=8, target_modules=["q_proj"], modules_to_save=["model.norm"]),
    "embeddings that are saved along": dict(r=4, lora_alpha=8, target_modules=["q_proj"], save_embedding_layers=True),
}


def save_adapter(folder, base_folder, *, change=None, save_embedding_layers="auto", **settings):
    """Writes a random adapter (B not zero) of these settings with peft."""
    base = transformers.AutoModelForCausalLM.from_pretrained(base_folder, dtype=torch.float32)
    torch.manual_seed(11)
    model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", **settings))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.copy_(torch.randn_like(parameter) * 0.05)
        if change is not None:
            change(model)
    model.save_pretrained(folder, save_embedding_layers=save_embedding_layers)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_what_peft_loads_whole_is_what_we_load(kind, tmp_path):
    """Compares logits, merged weights, and an adapter from which a run continues and which it exports again."""
    settings = dict(KINDS[kind])
    case = Case(tmp_path, "qwen3", 2, tied=settings.pop("tied", True))
    adapter = save_adapter(tmp_path / "adapter", case.folder, **settings)
    plain = hf_logits(case.base, TEXT)
    peft = PeftModel.from_pretrained(transformers.AutoModelForCausalLM.from_pretrained(case.folder, dtype=torch.float32), adapter).eval()
    theirs = hf_logits(peft, TEXT)
    rows = [{"id": "x", "input_ids": TEXT}]
    ours = score(case.folder, tmp_path, rows, "--logits", "--adapter", adapter)["x.logits"]
    difference, moved = (ours - theirs).abs().max().item(), (plain - theirs).abs().max().item()

    case.replay("--apply", "--adapter", adapter, **{"trainer.batch_size": 2, "trainer.learning_rate": 1e-30})
    again = PeftModel.from_pretrained(case.base, case.tmp / "out" / "adapter").eval()
    exported = (hf_logits(again, TEXT) - theirs).abs().max().item()

    run_dapd("adapter", "merge", "--model", case.folder, "--adapter", adapter, "--output", tmp_path / "merged")
    merged, expected = load_file(tmp_path / "merged/model.safetensors"), peft.merge_and_unload().state_dict()
    weights = max((tensor - expected[name]).abs().max().item() for name, tensor in merged.items())
    print(f"{kind}: moves logits by {moved:.1e}; ours differ by {difference:.1e}, exported {exported:.1e}, merged weights {weights:.1e}")
    assert moved > 0.01 and max(difference, exported) <= MAX_LOGIT_ERROR and weights <= 1e-6


def test_a_trained_copy_of_the_base_is_refused_by_its_name(tmp_path):
    models.make_model(tmp_path / "model", "qwen3", tied=False)

    def change(model):
        model.base_model.model.lm_head.modules_to_save["default"].weight[3, 3] += 1e-3

    adapter = save_adapter(tmp_path / "adapter", tmp_path / "model", r=4, target_modules=["q_proj"], modules_to_save=["lm_head"], change=change)
    result = verify(tmp_path, adapter)
    assert result.returncode == 4 and "base_model.model.lm_head.weight' differs from the base's" in result.stderr, result
    assert "merge_and_unload" in result.stderr


NAME = "base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight"


def rename(tensors, config):
    for name in list(tensors):
        tensors[name.removeprefix("base_model.model.")] = tensors.pop(name)


def prefixed(prefix):
    def change(tensors, config):
        for name in list(tensors):
            tensors[prefix + name.removeprefix("base_model.model.")] = tensors.pop(name)

    return change


def with_adapter_name(tensors, config):
    for name in list(tensors):
        tensors[name.replace(".weight", ".default.weight")] = tensors.pop(name)


def with_value(value):
    def change(tensors, config):
        tensors[NAME][0, 0] = value

    return change


BROKEN = {
    "wrong prefix": (rename, "all names of tensors begin with 'model.'"),
    "a prefix of its own": (prefixed("base_model.model.model.language_model."), "all names of tensors begin with 'base_model.model.model.language_model.model.'"),
    "a prefix of a wrapper": (prefixed("module.base_model.model."), "all names of tensors begin with 'module.base_model.model.model.'"),
    "names as in memory": (with_adapter_name, "ends in '.lora_A.default.weight', as in a PEFT model in memory"),
    "missing tensor": (lambda tensors, config: tensors.pop(NAME), NAME),
    "extra tensor": (lambda tensors, config: tensors.update({NAME.replace("v_proj", "w_proj"): tensors[NAME].clone()}), "w_proj"),
    "a layer too many": (lambda tensors, config: tensors.update({NAME.replace("layers.1", "layers.9"): tensors[NAME].clone()}), "layers.9"),
    "wrong shape": (lambda tensors, config: tensors.update({NAME: torch.zeros(7, RANK)}), NAME),
    "wrong rank": (lambda tensors, config: config.update(r=RANK + 1), f"{RANK + 1}"),
    "not a number": (with_value(float("nan")), NAME),
    "infinity": (with_value(float("inf")), NAME),
    "unsupported kind": (lambda tensors, config: config.update(use_dora=True), "use_dora"),
    "out of the base's weights": (lambda tensors, config: config.update(init_lora_weights="pissa_niter_4"), "init_lora_weights"),
    "active behind some tokens": (lambda tensors, config: config.update(alora_invocation_tokens=[1, 2]), "alora_invocation_tokens"),
    "trained bias": (lambda tensors, config: config.update(bias="all"), "bias"),
    "another method": (lambda tensors, config: config.update(peft_type="IA3"), "peft_type"),
    "truncated file": (None, "adapter_model.safetensors"),
}


def test_a_pickled_adapter_is_refused_with_the_way_out(peft_folder, tmp_path):
    shutil.copytree(peft_folder / "adapter", tmp_path / "adapter")
    weights = tmp_path / "adapter" / "adapter_model.safetensors"
    torch.save(load_file(weights), weights.with_suffix(".bin"))
    weights.unlink()
    result = verify(peft_folder, tmp_path / "adapter")
    assert result.returncode == 4 and "adapter_model.bin, which is not read; PEFT's save_pretrained" in result.stderr, result


@pytest.mark.parametrize("case", BROKEN)
def test_what_does_not_fit_is_refused_by_name(case, peft_folder, tmp_path):
    change, expected = BROKEN[case]
    shutil.copytree(peft_folder / "adapter", tmp_path / "adapter")
    weights, settings = (tmp_path / "adapter" / name for name in ("adapter_model.safetensors", "adapter_config.json"))
    if change is None:
        weights.write_bytes(weights.read_bytes()[:-5])
    else:
        tensors, config = load_file(weights), json.loads(settings.read_text())
        change(tensors, config)
        save_file(tensors, weights, metadata={"format": "pt"})
        settings.write_text(json.dumps(config))
    result = verify(peft_folder, tmp_path / "adapter")
    print(result.stderr)
    assert result.returncode == 4, result
    assert expected in result.stderr
