"""Makes model, adapter and views of the training rows (C3, G3): layers of a true shape with random weights and a small vocabulary."""

import gc
import json
import pathlib
import random

import torch
import transformers
from peft import LoraConfig, get_peft_model

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
VOCABULARY = 2048
RANK = 64
SHAPES = {
    "0.6B": {"hidden_size": 1024, "intermediate_size": 3072, "num_attention_heads": 16, "num_key_value_heads": 8},
    "4B": {"hidden_size": 2560, "intermediate_size": 9728, "num_attention_heads": 32, "num_key_value_heads": 8},
    # This shape is as wide as SmolLM2-135M, and has Qwen3's norms of queries and keys.
    "135M": {"hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64},
}
# The privileged template adds this number of tokens to a Self prompt (performance.md).
TEMPLATE = 130


def write_model(folder, shape, layers, precision="float32", device="cpu"):
    """Makes the MODEL and ADAPTER folders on the device; B of the adapter is not zero."""
    folder = pathlib.Path(folder)
    torch.manual_seed(1)
    config = transformers.Qwen3Config(vocab_size=VOCABULARY, num_hidden_layers=layers, tie_word_embeddings=True,
                                      max_position_embeddings=40960, rope_theta=1e6, eos_token_id=1, pad_token_id=0, **{"head_dim": 128, **SHAPES[shape]})
    with torch.device(device):
        model = transformers.Qwen3ForCausalLM(config).to(getattr(torch, precision))
        model.save_pretrained(folder / "model")
        adapted = get_peft_model(model, LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=TARGETS, task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.data = parameter.data.float()
            if "lora_B" in name:
                parameter.normal_(std=0.02)
    adapted.save_pretrained(folder / "adapter")
    del adapted, model
    gc.collect()
    torch.cuda.empty_cache()  # frees memory for the contenders if the model was made on a GPU
    return folder / "model", folder / "adapter"


def live_views(prompt, rollout, reference, samples=1):
    """Returns for each sample the rollout's two views and the reference's two: token ids, first scored token, number of scored tokens."""
    rng = random.Random(7)

    def tokens(count):
        return [rng.randrange(2, VOCABULARY) for _ in range(count)]

    groups = []
    for _ in range(samples):
        x, y, y_star, template = tokens(prompt), tokens(rollout), tokens(reference), tokens(TEMPLATE)
        groups.append([(x + y, len(x), rollout), (x + y + y, len(x + y), rollout)])
        groups.append([(x + y_star, len(x), reference), (x + template + y_star + y_star, len(x + template + y_star), reference)])
    return groups


def write_views(path, groups):
    views = [{"input_ids": ids, "scored_from": start, "scored_count": count} for group in groups for ids, start, count in group]
    path.write_text(json.dumps({"views": views, "groups": [len(group) for group in groups]}))
    return path
