#!/usr/bin/env python3
"""Writes a tiny Qwen3 with random weights as a Hugging Face folder, for smoke tests that take seconds.

    make_tiny_model.py [--output DIR] [--seed N]

Its tokenizer knows bytes only; its chat template writes Qwen3's markers with the empty think block. The program
needs only numpy and safetensors. It writes the folder aside and renames it; a folder that exists stays.
"""

import argparse
import pathlib

import numpy as np

from model_folder import BYTE_LEVEL, CHAT_TEMPLATE, PLAIN, SPECIAL, tokenizer_document, write_model_folder

DEFAULT_OUTPUT = pathlib.Path(__file__).resolve().parent.parent / ".deps/models/tiny-qwen3"
LAYERS, HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, HEAD_DIM = 2, 64, 128, 4, 2, 32
VOCABULARY = 320  # padded: the last ids have no token


def byte_symbols():
    """Returns the characters that stand for the 256 bytes in a byte-level vocabulary."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    symbols = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    return [symbols[byte] for byte in range(256)]


def make_tokenizer():
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [{"id": 256 + i, "content": content, "special": content in SPECIAL, **flags} for i, content in enumerate(SPECIAL + PLAIN)]
    return tokenizer_document(added, BYTE_LEVEL, vocab={symbol: byte for byte, symbol in enumerate(byte_symbols())}, merges=[])


def make_config(token_id):
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "attention_bias": False,
        "hidden_act": "silu",
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "rope_scaling": None,
        "use_sliding_window": False,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": token_id["<|im_end|>"],
        "pad_token_id": token_id["<|endoftext|>"],
        "torch_dtype": "float32",
    }


def make_weights(rng):
    def matrix(rows, columns):
        return (rng.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float32)

    ones = np.ones(HIDDEN, np.float32)
    weights = {"model.embed_tokens.weight": matrix(VOCABULARY, HIDDEN), "model.norm.weight": ones}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        for name, rows, columns in (
            ("self_attn.q_proj", HEADS * HEAD_DIM, HIDDEN),
            ("self_attn.k_proj", KV_HEADS * HEAD_DIM, HIDDEN),
            ("self_attn.v_proj", KV_HEADS * HEAD_DIM, HIDDEN),
            ("self_attn.o_proj", HIDDEN, HEADS * HEAD_DIM),
            ("mlp.gate_proj", INTERMEDIATE, HIDDEN),
            ("mlp.up_proj", INTERMEDIATE, HIDDEN),
            ("mlp.down_proj", HIDDEN, INTERMEDIATE),
        ):
            weights[f"{prefix}{name}.weight"] = matrix(rows, columns)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{prefix}{name}.weight"] = ones.copy()
        for name in ("self_attn.q_norm", "self_attn.k_norm"):
            weights[f"{prefix}{name}.weight"] = np.ones(HEAD_DIM, np.float32)
    return weights


def make_documents():
    token_id = {content: 256 + i for i, content in enumerate(SPECIAL + PLAIN)}
    end_ids = [token_id["<|im_end|>"], token_id["<|endoftext|>"]]
    return {
        "config.json": make_config(token_id),
        "generation_config.json": {"eos_token_id": end_ids, "pad_token_id": token_id["<|endoftext|>"]},
        "tokenizer.json": make_tokenizer(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "chat_template": CHAT_TEMPLATE,
        },
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, default=DEFAULT_OUTPUT)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if (options.output / "model.safetensors").exists():
        print(f"{options.output} already exists")
        return
    write_model_folder(options.output, make_documents(), make_weights(np.random.default_rng(options.seed)))


if __name__ == "__main__":
    main()
