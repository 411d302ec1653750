"""Makes a model of the true Qwen3-0.6B shape with random weights: sharded bfloat16 safetensors and the real vocabulary.

    make_qwen3_0_6b.py OUTPUT
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import save_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "oracle"))
import make_qwen_tokenizer  # noqa: E402

HIDDEN, FFN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, VOCABULARY = 1024, 3072, 28, 16, 8, 128, 151936
LAYERS_A_SHARD = 10


def tensor(*shape):
    return (torch.randn(shape) * 0.02).to(torch.bfloat16)


def layer(i):
    prefix = f"model.layers.{i}"
    q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    ones = {name: torch.ones(size, dtype=torch.bfloat16) for name, size in (
        ("input_layernorm", HIDDEN), ("post_attention_layernorm", HIDDEN), ("self_attn.q_norm", HEAD_DIM), ("self_attn.k_norm", HEAD_DIM))}
    weights = {
        "self_attn.q_proj": tensor(q, HIDDEN), "self_attn.k_proj": tensor(kv, HIDDEN), "self_attn.v_proj": tensor(kv, HIDDEN),
        "self_attn.o_proj": tensor(HIDDEN, q), "mlp.gate_proj": tensor(FFN, HIDDEN), "mlp.up_proj": tensor(FFN, HIDDEN),
        "mlp.down_proj": tensor(HIDDEN, FFN),
    }
    return {f"{prefix}.{name}.weight": value for name, value in {**ones, **weights}.items()}


def main():
    folder = pathlib.Path(sys.argv[1])
    torch.manual_seed(1)
    make_qwen_tokenizer.write(folder)
    shards = [{"model.embed_tokens.weight": tensor(VOCABULARY, HIDDEN), "model.norm.weight": torch.ones(HIDDEN, dtype=torch.bfloat16)}]
    for first in range(0, LAYERS, LAYERS_A_SHARD):
        shard = {}
        for i in range(first, min(first + LAYERS_A_SHARD, LAYERS)):
            shard.update(layer(i))
        shards.append(shard)
    weight_map, total = {}, 0
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, folder / name, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(shard, name))
        total += sum(t.numel() * 2 for t in shard.values())
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "vocab_size": VOCABULARY, "hidden_size": HIDDEN,
        "intermediate_size": FFN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM, "hidden_act": "silu", "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000,
        "rope_scaling": None, "tie_word_embeddings": True, "attention_bias": False, "torch_dtype": "bfloat16",
        "eos_token_id": 151645, "pad_token_id": 151643}))


if __name__ == "__main__":
    main()
