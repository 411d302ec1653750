"""Makes tiny random models of every family, as complete Hugging Face folders."""

import json
import pathlib

import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

VOCABULARY = 320
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
PLAIN = ["<think>", "</think>"]
QWEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def write_tokenizer(folder):
    """Writes a byte-level tokenizer without merges, with Qwen3's markers and chat template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {piece: i for i, piece in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    from tokenizers import Regex, normalizers

    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN_PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in PLAIN])
    tokenizer.save(str(folder / "tokenizer.json"))
    import trl

    template = pathlib.Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "eos_token": "<|im_end|>",
                "pad_token": "<|endoftext|>",
                "chat_template": template.read_text(),
            }
        )
    )
    ids = {t: tokenizer.token_to_id(t) for t in SPECIAL + PLAIN}
    (folder / "generation_config.json").write_text(
        json.dumps(
            {
                "eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]],
                "pad_token_id": ids["<|endoftext|>"],
            }
        )
    )
    return ids


def llama3_rope(factor):
    """Returns the parameters of Llama 3.1 and 3.3 (factor 8) and of 3.2 (32). Heads of 64 or 128 have frequencies of
    all three kinds."""
    return dict(
        rope_type="llama3", rope_theta=500000.0, factor=factor, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=8192
    )


def yarn_rope(factor=4.0, **more):
    """Returns the parameters that the cards of Qwen2.5 and Qwen3 give, for a pretraining so short that heads of 24 have
    frequencies of all three kinds."""
    return dict(rope_type="yarn", rope_theta=10000.0, factor=factor, original_max_position_embeddings=512, **more)


def make_config(family, tied, **sizes):
    common = dict(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=112,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=tied,
        eos_token_id=258,
        pad_token_id=256,
        bos_token_id=None,
        initializer_range=0.15,
    )
    common.update(sizes)
    if family == "qwen3":
        common.setdefault("head_dim", 24)
        return transformers.Qwen3Config(**common)
    if family == "qwen2":
        return transformers.Qwen2Config(**common)
    if family == "llama":
        common.setdefault("head_dim", 24)
        return transformers.LlamaConfig(**common)
    if family == "llama3":
        common.setdefault("head_dim", 64)
        common.update(max_position_embeddings=131072, rope_parameters=llama3_rope(8.0))
        return transformers.LlamaConfig(**common)
    if family == "qwen3_yarn":
        common.update(head_dim=24, rope_parameters=yarn_rope(attention_factor=1.3))
        return transformers.Qwen3Config(**common)
    if family == "llama_yarn":
        common.update(head_dim=24, rope_parameters=yarn_rope(8.0, truncate=False))
        return transformers.LlamaConfig(**common)
    if family == "mistral":
        common.setdefault("sliding_window", None)
        return transformers.MistralConfig(**common)
    if family == "gemma2":
        # No trait is what a decoder without it would compute.
        common.setdefault("head_dim", 24)
        for key, value in dict(query_pre_attn_scalar=31, sliding_window=16).items():
            common.setdefault(key, value)
        return transformers.Gemma2Config(**common)
    raise ValueError(family)


def rewrite_old_spelling(folder):
    """Rewrites config.json as transformers 4 wrote it: rope_theta, torch_dtype, no layer_types."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters", None) or {}
    config["rope_theta"] = rope.pop("rope_theta", 10000.0)
    scaled = rope.get("rope_type", "default") != "default"
    config["rope_scaling"] = {"type": rope.pop("rope_type"), **rope} if scaled else None
    config["torch_dtype"] = config.pop("dtype", "float32")
    config.pop("layer_types", None)
    path.write_text(json.dumps(config))


def make_model(folder, family, *, tied=True, sharded=False, dtype=torch.float32, old_spelling=False, seed=0, **sizes):
    """Writes the folder and returns the model that transformers reads from it, in float32."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(make_config(family, tied, **sizes))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.add_(torch.randn_like(parameter) * 0.1)
            if name.endswith("bias"):
                parameter.copy_(torch.randn_like(parameter) * 0.1)
    model = model.to(dtype)
    model.save_pretrained(folder, max_shard_size="60KB" if sharded else "10GB")
    write_tokenizer(folder)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    if old_spelling:
        rewrite_old_spelling(folder)
    return loaded.eval()
