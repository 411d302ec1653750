"""Writes a Hugging Face model folder atomically (aside, synced, then renamed), and holds the parts that the project's
own models share."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import sys

from safetensors.numpy import save_file

# Qwen3's markers, and a template that writes them with the empty think block.
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
PLAIN = ["<think>", "</think>"]
CHAT_TEMPLATE = """\
{%- set no_thoughts = '<think>\\n\\n</think>\\n\\n' -%}
{%- for message in messages -%}
  {{- '<|im_start|>' + message.role + '\\n' -}}
  {%- if message.role == 'assistant' and loop.last -%}{{- no_thoughts -}}{%- endif -%}
  {{- message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\\n' -}}
  {%- if enable_thinking is defined and not enable_thinking -%}{{- no_thoughts -}}{%- endif -%}
{%- endif -%}"""

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}


def tokenizer_document(added, pre_tokenizer, vocab, merges):
    """Returns tokenizer.json of a byte-level BPE."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": merges,
        },
    }


def sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def cleaning_up_when_terminated():
    """Lets SIGTERM end the program like Ctrl-C, so that cleanup code runs."""
    before = signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def written_aside(output):
    """Yields a folder to write into. Without an error it becomes `output`, if that does not exist or is empty."""
    output = pathlib.Path(output)
    aside = output.with_name(f"{output.name}.tmp-{os.getpid()}")
    with cleaning_up_when_terminated():
        try:
            # In a container a process may have the number of one that was killed.
            shutil.rmtree(aside, ignore_errors=True)
            aside.mkdir(parents=True)
            yield aside
            for path in (*aside.iterdir(), aside):
                sync(path)
            try:
                aside.rename(output)
            except OSError as error:  # it exists with other content
                sys.exit(f"{output}: {error.strerror}; it stays as it is: choose another --output, or remove it")
            sync(output.parent)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    print(f"wrote {output}")


def write_documents(folder, documents):
    """`documents` has JSON content by file name."""
    for name, content in documents.items():
        (folder / name).write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")


def write_model_folder(output, documents, weights):
    """`documents` has JSON content by file name; `weights` has numpy arrays by checkpoint name."""
    with written_aside(output) as aside:
        write_documents(aside, documents)
        save_file(weights, aside / "model.safetensors", metadata={"format": "pt"})
        (aside / "model.safetensors").chmod(0o644)
