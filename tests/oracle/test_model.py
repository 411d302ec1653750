"""Compares `dapd score` and `dapd generate` with transformers and peft, in float32 on the CPU."""

import random

import pytest
import torch
import transformers
from peft import PeftModel
from safetensors.torch import load_file, save_file

import models
from conftest import read_jsonl, run_dapd, write_jsonl
from test_objective import make_adapter

MAX_LOGIT_ERROR = 2e-4
VARIANTS = {
    "qwen3": dict(family="qwen3"),
    "qwen3 untied, sharded, old config": dict(family="qwen3", tied=False, sharded=True, old_spelling=True),
    "qwen3 stored in bfloat16": dict(family="qwen3", dtype=torch.bfloat16),
    "qwen3 with one key head": dict(family="qwen3", num_key_value_heads=1, head_dim=40),
    "qwen2": dict(family="qwen2"),
    "qwen2 untied, sharded, old config": dict(family="qwen2", tied=False, sharded=True, old_spelling=True),
    "llama": dict(family="llama"),
    "llama untied, all heads, old config": dict(family="llama", tied=False, num_key_value_heads=4, old_spelling=True),
    "llama 3.1": dict(family="llama3", tied=False, head_dim=128),
    "llama 3.2, old config": dict(family="llama", head_dim=64, max_position_embeddings=131072, rope_parameters=models.llama3_rope(32.0), old_spelling=True),
    "mistral": dict(family="mistral", tied=False, head_dim=24),
    "mistral with a window as long as its context, old config": dict(family="mistral", sliding_window=2048, old_spelling=True),
    "qwen2 with windows in no layer": dict(family="qwen2", use_sliding_window=True, sliding_window=16, max_window_layers=3),
    "mistral with a short window": dict(family="mistral", sliding_window=16),
    "qwen2 with a window in its last layers": dict(family="qwen2", use_sliding_window=True, sliding_window=16, max_window_layers=1),
    "gemma2": dict(family="gemma2"),
    "gemma2 untied, sharded, old config": dict(family="gemma2", tied=False, sharded=True, old_spelling=True),
    "gemma2 with biases and without caps, stored in bfloat16": dict(
        family="gemma2", attention_bias=True, attn_logit_softcapping=None, final_logit_softcapping=None, dtype=torch.bfloat16
    ),
    "qwen3 with yarn": dict(family="qwen3", rope_parameters=models.yarn_rope()),
    "qwen3 with yarn, old config": dict(family="qwen3", rope_parameters=models.yarn_rope(attention_factor=0.8782488562869419), old_spelling=True),
    "qwen2 with yarn of two scales": dict(family="qwen2", rope_parameters=models.yarn_rope(40.0, mscale=0.707, mscale_all_dim=1.0)),
    "qwen2 with yarn of one scale": dict(family="qwen2", rope_parameters=models.yarn_rope(40.0, mscale=0.707, beta_fast=None)),
    "llama with yarn between whole numbers": dict(family="llama", rope_parameters=models.yarn_rope(beta_fast=16, beta_slow=2, truncate=False)),
    "llama with yarn of another base, old config": dict(
        family="llama", rope_parameters=dict(models.yarn_rope(8.0, truncate=None), rope_theta=1e6), tied=False, old_spelling=True
    ),
    "mistral with yarn": dict(family="mistral", head_dim=32, sliding_window=None, rope_parameters=models.yarn_rope(factor=None)),
    "mistral with linear scaling, old config": dict(
        family="mistral", rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.5), old_spelling=True
    ),
}


def random_rows(rng, vocabulary, lengths):
    return [{"id": f"row{i}", "input_ids": [rng.randrange(vocabulary) for _ in range(n)]} for i, n in enumerate(lengths)]


def score(folder, tmp_path, rows, *flags):
    write_jsonl(tmp_path / "in.jsonl", rows)
    output = tmp_path / "scores.safetensors"
    run_dapd("score", "--model", folder, "--input", tmp_path / "in.jsonl", "--output", output, "--device", "cpu", *flags)
    return load_file(output)


def hf_logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float()


def next_logprobs(logits, ids):
    return torch.log_softmax(logits[:-1], -1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]


def compare(scores, model, rows):
    """Returns the largest differences of logits and of log-probabilities."""
    logit_error = logprob_error = 0.0
    for row in rows:
        expected, ids = hf_logits(model, row["input_ids"]), row["input_ids"]
        ours = scores[row["id"] + ".logits"]
        assert ours.shape == expected.shape and ours.dtype == torch.float32
        logprobs = scores[row["id"] + ".logprobs"]
        assert logprobs.shape == (len(ids) - 1,) and logprobs.dtype == torch.float32
        logit_error = max(logit_error, (ours - expected).abs().max().item())
        for ours, theirs in zip(logprobs.tolist(), next_logprobs(expected, ids).tolist(), strict=True):
            logprob_error = max(logprob_error, abs(ours - theirs))
    return logit_error, logprob_error


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_of_random_models(variant, tmp_path):
    model = models.make_model(tmp_path / "model", **VARIANTS[variant])
    rows = random_rows(random.Random(1), models.VOCABULARY, [1, 2, 3, 17, 64, 300])
    logits, logprobs = compare(score(tmp_path / "model", tmp_path, rows, "--logits"), model, rows)
    print(f"{variant}: logits {logits:.1e}, log-probabilities {logprobs:.1e}")
    assert logits <= MAX_LOGIT_ERROR and logprobs <= MAX_LOGIT_ERROR


def test_llama3_frequencies_count(tmp_path):
    """The parameters of Llama 3 change the logits, so the tests above would notice a decoder without them."""
    scaled = models.make_model(tmp_path / "scaled", "llama3")
    plain = models.make_model(tmp_path / "plain", "llama", head_dim=64, rope_parameters=dict(rope_type="default", rope_theta=500000.0))
    ids = random_rows(random.Random(1), models.VOCABULARY, [300])[0]["input_ids"]
    moved = (hf_logits(scaled, ids) - hf_logits(plain, ids)).abs().max().item()
    print(f"llama3 scaling moves logits by {moved:.1e}")
    assert moved > 10 * MAX_LOGIT_ERROR


@pytest.mark.parametrize("without", [
    dict(attn_logit_softcapping=None), dict(final_logit_softcapping=None), dict(query_pre_attn_scalar=24), dict(sliding_window=2048),
    dict(hidden_activation="silu")])
def test_every_trait_of_gemma2_counts(without, tmp_path):
    """Each moves the logits, so that a decoder without it would be noticed."""
    whole, changed = models.make_model(tmp_path / "whole", "gemma2"), models.make_model(tmp_path / "changed", "gemma2", **without)
    ids = random_rows(random.Random(1), models.VOCABULARY, [300])[0]["input_ids"]
    moved = (hf_logits(whole, ids) - hf_logits(changed, ids)).abs().max().item()
    print(f"{without} moves logits by {moved:.1e}")
    assert moved > 10 * MAX_LOGIT_ERROR


def test_far_positions_of_llama3(tmp_path):
    """The positions are past the context of the pretraining, where float32 angles are coarse."""
    folder = tmp_path / "model"
    model = models.make_model(
        folder, "llama", head_dim=64, num_hidden_layers=1, max_position_embeddings=131072, rope_parameters=models.llama3_rope(32.0)
    )
    rows = random_rows(random.Random(9), models.VOCABULARY, [9000])
    ours = score(folder, tmp_path, rows)["row0.logprobs"]
    model.set_attn_implementation("sdpa")
    error = (ours - next_logprobs(hf_logits(model, rows[0]["input_ids"]), rows[0]["input_ids"])).abs().max().item()
    print(f"9000 tokens of llama 3.2: log-probabilities differ by {error:.1e}")
    assert error <= MAX_LOGIT_ERROR


def test_one_token_has_a_row_of_logits_and_no_log_probability(tmp_path):
    model = models.make_model(tmp_path / "model", "qwen3")
    scores = score(tmp_path / "model", tmp_path, [{"id": "one", "input_ids": [7]}], "--logits")
    assert scores["one.logprobs"].shape == (0,) and scores["one.logprobs"].dtype == torch.float32
    expected = hf_logits(model, [7])
    assert scores["one.logits"].shape == expected.shape == (1, models.VOCABULARY)
    assert (scores["one.logits"] - expected).abs().max().item() <= MAX_LOGIT_ERROR
    alone = score(tmp_path / "model", tmp_path, [{"id": "one", "input_ids": [7]}])
    assert list(alone) == ["one.logprobs"]


NO_IDS = ["1.5", "2.0", "true", "-1", "1e30", "18446744073709551616", str(models.VOCABULARY), '"1"', "null", "[1]"]


@pytest.mark.parametrize("command, key", [("score", "input_ids"), ("generate", "input_ids"), ("tokenize", "ids")])
def test_what_is_no_token_id_is_refused_with_file_line_and_place(command, key, tmp_path):
    models.make_model(tmp_path / "model", "qwen3")
    path = tmp_path / "in.jsonl"
    for text in NO_IDS:
        path.write_text(f'{{"id":"good","{key}":[1,2]}}\n{{"id":"bad","{key}":[1,2,{text}]}}\n')
        flags = ["--decode"] if command == "tokenize" else ["--device", "cpu"]
        result = run_dapd(command, "--model", tmp_path / "model", "--input", path, "--output", tmp_path / "out", *flags, check=False)
        assert result.returncode == 4 and f"{path}:2: {key}[2]: " in result.stderr, (text, result)
        assert not (tmp_path / "out").exists()


def test_a_tied_model_may_carry_its_embedding_as_a_head_but_no_other(tmp_path):
    model = models.make_model(tmp_path / "model", "qwen3")
    weights = load_file(tmp_path / "model" / "model.safetensors")
    rows = [{"id": "a", "input_ids": [1, 2, 3]}]
    for is_other in (False, True):
        head = weights["model.embed_tokens.weight"].clone()
        head[0, 0] += is_other
        save_file({**weights, "lm_head.weight": head}, tmp_path / "model" / "model.safetensors", metadata={"format": "pt"})
        if not is_other:
            assert compare(score(tmp_path / "model", tmp_path, rows, "--logits"), model, rows)[0] < MAX_LOGIT_ERROR
    result = run_dapd("score", "--model", tmp_path / "model", "--input", tmp_path / "in.jsonl", "--output", tmp_path / "out", "--device", "cpu", check=False)
    assert result.returncode == 4 and "'lm_head.weight' differs from 'model.embed_tokens.weight'" in result.stderr, result


@pytest.fixture(scope="module")
def smollm2(smollm2_folder):
    return transformers.AutoModelForCausalLM.from_pretrained(smollm2_folder, dtype=torch.float32, attn_implementation="eager").eval()


@pytest.fixture(scope="module")
def smollm2_rows(smollm2_folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(smollm2_folder)
    questions = ["What is 12 + 30?", "Convert 5 kilometers to meters.", "Name three rivers in Europe and what is special about each."]
    rows = []
    for i, question in enumerate(questions):
        text = tokenizer.apply_chat_template([{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True)
        rows.append({"id": f"q{i}", "input_ids": tokenizer(text, add_special_tokens=False)["input_ids"]})
    return rows


def test_logits_of_smollm2(smollm2_folder, smollm2, smollm2_rows, tmp_path):
    rows = smollm2_rows + random_rows(random.Random(2), 49152, [400])
    logits, logprobs = compare(score(smollm2_folder, tmp_path, rows, "--logits"), smollm2, rows)
    print(f"SmolLM2: logits {logits:.1e}, log-probabilities {logprobs:.1e}")
    assert logits <= MAX_LOGIT_ERROR and logprobs <= MAX_LOGIT_ERROR


def test_bfloat16_is_as_close_to_float32_as_in_transformers(smollm2_folder, smollm2, smollm2_rows, tmp_path):
    ours = score(smollm2_folder, tmp_path, smollm2_rows, "--precision", "bfloat16")
    rounded = transformers.AutoModelForCausalLM.from_pretrained(smollm2_folder, dtype=torch.bfloat16).eval()
    our_error = their_error = count = 0
    for row in smollm2_rows:
        ids = row["input_ids"]
        exact = next_logprobs(hf_logits(smollm2, ids), ids)
        our_error += (ours[row["id"] + ".logprobs"] - exact).abs().sum().item()
        their_error += (next_logprobs(hf_logits(rounded, ids), ids) - exact).abs().sum().item()
        count += len(exact)
    print(f"bfloat16 log-probabilities: mean error {our_error / count:.1e}, transformers' {their_error / count:.1e}")
    assert our_error <= 1.5 * their_error


@pytest.mark.parametrize("family", ["qwen3", "qwen2", "llama", "llama3", "mistral", "gemma2", "qwen3_yarn", "llama_yarn"])
def test_logits_with_an_adapter(family, tmp_path):
    base = models.make_model(tmp_path / "model", family)
    adapter = make_adapter(tmp_path / "adapter", tmp_path / "model", seed=4)
    rows = random_rows(random.Random(3), models.VOCABULARY, [5, 120])
    plain = hf_logits(base, rows[1]["input_ids"])
    adapted = PeftModel.from_pretrained(base, adapter).eval()
    moved = (hf_logits(adapted, rows[1]["input_ids"]) - plain).abs().max().item()
    scores = score(tmp_path / "model", tmp_path, rows, "--logits", "--adapter", adapter)
    logits, _ = compare(scores, adapted, rows)
    print(f"{family}: the adapter moves logits by {moved:.1e}; ours differ from peft's by {logits:.1e}")
    assert moved > 0.1 and logits <= MAX_LOGIT_ERROR


def generate(folder, tmp_path, rows, *flags):
    write_jsonl(tmp_path / "in.jsonl", rows)
    output = tmp_path / "generated.jsonl"
    run_dapd("generate", "--model", folder, "--input", tmp_path / "in.jsonl", "--output", output, "--precision", "float32", *flags)
    return read_jsonl(output)


def check_greedy(model, folder, rows, generated, max_new_tokens):
    """Checks that greedy answers equal transformers' generate and log-probabilities its full forward pass. Returns the
    largest error."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    stops = model.generation_config.eos_token_id
    stops = stops if isinstance(stops, list) else [stops]
    assert [g["id"] for g in generated] == [r["id"] for r in rows]
    worst = 0.0
    for row, ours in zip(rows, generated, strict=True):
        prompt = row["input_ids"]
        whole = model.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), do_sample=False,
            max_new_tokens=max_new_tokens, temperature=None, top_p=None, top_k=None,
        )[0].tolist()
        assert ours["ids"] == whole[len(prompt) :], (row["id"], ours["ids"], whole[len(prompt) :])
        ended = whole[-1] in stops
        assert ours["finish_reason"] == ("eos" if ended else "length")
        assert ours["text"] == tokenizer.decode(ours["ids"], skip_special_tokens=True, clean_up_tokenization_spaces=False)
        expected = next_logprobs(hf_logits(model, whole), whole)[len(prompt) - 1 :]
        worst = max(worst, (torch.tensor(ours["logprobs"]) - expected).abs().max().item())
    return worst


@pytest.mark.parametrize("variant", VARIANTS)
def test_greedy_answers_of_random_models(variant, tmp_path):
    folder = tmp_path / "model"
    model = models.make_model(folder, **VARIANTS[variant])
    model.generation_config = transformers.GenerationConfig.from_pretrained(folder)
    # Ids without a token are never sampled, so transformers must not prefer one either.
    size = len(transformers.AutoTokenizer.from_pretrained(folder))
    model.generation_config.suppress_tokens = list(range(size, models.VOCABULARY))
    rows = random_rows(random.Random(6), size, [1, 2, 9, 33, 120])
    worst = check_greedy(model, folder, rows, generate(folder, tmp_path, rows, "--temperature", 0, "--max-new-tokens", 48), 48)
    print(f"{variant}: log-probabilities along greedy answers differ by {worst:.1e}")
    assert worst <= MAX_LOGIT_ERROR


def test_greedy_answers_of_smollm2(smollm2_folder, smollm2, smollm2_rows, tmp_path):
    generated = generate(smollm2_folder, tmp_path, smollm2_rows, "--temperature", 0, "--max-new-tokens", 64)
    worst = check_greedy(smollm2, smollm2_folder, smollm2_rows, generated, 64)
    print(f"SmolLM2: log-probabilities along greedy answers differ by {worst:.1e}", *(g["text"] for g in generated), sep="\n")
    assert worst <= MAX_LOGIT_ERROR


def test_a_row_of_messages_gets_the_chat_template(smollm2_folder, tmp_path):
    tokenizer = transformers.AutoTokenizer.from_pretrained(smollm2_folder)
    messages = [{"role": "user", "content": "What is 12 + 30?"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    rows = [{"id": "messages", "messages": messages}, {"id": "ids", "input_ids": ids}]
    by_messages, by_ids = generate(smollm2_folder, tmp_path, rows, "--temperature", 0, "--max-new-tokens", 16)
    assert by_messages["ids"] == by_ids["ids"] and by_messages["logprobs"] == pytest.approx(by_ids["logprobs"], abs=1e-5)


def test_samples_follow_their_seed(tmp_path):
    folder = tmp_path / "model"
    models.make_model(folder, "qwen3")
    rows = random_rows(random.Random(8), 256, [5, 9, 20])
    flags = ["--temperature", 1.1, "--top-p", 0.95, "--top-k", 20, "--max-new-tokens", 32, "--seed"]
    first, again, other = (generate(folder, tmp_path, rows, *flags, seed) for seed in (1, 1, 2))
    assert first == again
    assert [g["ids"] for g in first] != [g["ids"] for g in other]
