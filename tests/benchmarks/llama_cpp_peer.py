"""llama.cpp as a peer of C2: built from its source on this machine, with the same weights.

    llama_cpp_peer.py MODEL.gguf PRECISION THREADS     answers the requests of decode_benchmark.cc

build() makes .deps/llama-cpp from requirements-llama.txt, once (several minutes on two cores); write_gguf() turns a folder of bfloat16
safetensors into a GGUF of bfloat16 or float32. All sequences of a batch are decoded at once, each with its own keys and values; numpy's
argmax chooses tokens, which costs less than llama.cpp's own sampler."""

import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / ".deps/llama-cpp"
REQUIREMENTS = pathlib.Path(__file__).with_name("requirements-llama.txt")
# The build is for this processor, without examples and without the reader of pictures.
CMAKE_ARGS = "-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_SERVER=OFF"


def build():
    """Returns the environment's interpreter."""
    python, installed = ENVIRONMENT / "bin/python", ENVIRONMENT / "installed.txt"
    if installed.is_file() and installed.read_text() == REQUIREMENTS.read_text():
        return python
    print("    llama.cpp is built once, which takes several minutes", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", ENVIRONMENT], check=True)
    # The build tools come first, because llama-cpp-python needs them.
    names = [line for line in REQUIREMENTS.read_text().splitlines() if line and not line.startswith("#")]
    install = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-input", "--disable-pip-version-check"]
    subprocess.run([*install, *(name for name in names if not name.startswith("llama"))], check=True)
    subprocess.run([*install, "--no-build-isolation", "--no-binary", "llama-cpp-python", *(name for name in names if name.startswith("llama"))], check=True,
                   env={**os.environ, "CMAKE_ARGS": CMAKE_ARGS, "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count())})
    installed.write_text(REQUIREMENTS.read_text())
    return python


def write_gguf(folder, path, precision):
    """Writes the model of `folder` (make_qwen3_0_6b.py) as a GGUF without a tokenizer; an existing file stays."""
    if path.exists():
        return path
    import gguf
    import safetensors
    import torch

    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(path.with_suffix(".part"), gguf.MODEL_ARCH_NAMES[gguf.MODEL_ARCH.QWEN3])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_tokenizer_model("no_vocab")
    wide = precision == "float32"
    writer.add_file_type(gguf.LlamaFileType.ALL_F32 if wide else gguf.LlamaFileType.MOSTLY_BF16)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, config["num_hidden_layers"])
    for shard in sorted(folder.glob("*.safetensors")):
        with safetensors.safe_open(shard, framework="pt") as tensors:
            for name in tensors.keys():
                tensor, new = tensors.get_tensor(name), names.get_name(name, try_suffixes=(".weight",))
                # llama.cpp needs norms in float32.
                if wide or tensor.dim() == 1:
                    writer.add_tensor(new, tensor.float().numpy())
                else:
                    writer.add_tensor(new, tensor.view(torch.uint8).numpy(), raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    path.with_suffix(".part").rename(path)
    return path


class Peer:
    def __init__(self, path, precision, threads):
        import llama_cpp
        self.api, self.precision, self.threads, self.context, self.shape = llama_cpp, precision, threads, None, None
        self.quiet = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.quiet, None)
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            sys.exit(f"llama.cpp does not load {path}")
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))

    def prepare(self, sequences, tokens):
        """Makes an empty context for `sequences` sequences of `tokens` tokens each."""
        api = self.api
        if self.shape != (sequences, tokens):
            if self.context:
                api.llama_free(self.context)
            params = api.llama_context_default_params()
            each = (tokens + 255) // 256 * 256
            params.n_ctx, params.n_seq_max, params.n_batch = sequences * each, sequences, max(512, sequences * tokens)
            params.n_threads = params.n_threads_batch = self.threads
            if self.precision == "float32":
                params.type_k = params.type_v = api.GGML_TYPE_F32
            self.context = api.llama_init_from_model(self.model, params)
            if not self.context:
                sys.exit(f"llama.cpp makes no context of {sequences} sequences with {tokens} tokens")
            self.shape = (sequences, tokens)
        api.llama_memory_clear(api.llama_get_memory(self.context), False)

    def decode(self, rows):
        """Takes `rows` of (token, position, sequence, wants logits); returns an array of the wanted logits, in order."""
        import numpy as np
        batch = self.api.llama_batch_init(len(rows), 0, 1)
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, wants) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, wants
            batch.seq_id[i][0] = sequence
        if self.api.llama_decode(self.context, batch) != 0:
            sys.exit("llama_decode failed")
        self.api.llama_batch_free(batch)
        found = [self.api.llama_get_logits_ith(self.context, i) for i, row in enumerate(rows) if row[3]]
        return [np.ctypeslib.as_array(logits, shape=(self.vocabulary,)) for logits in found]

    def generate(self, prompts, new):
        length = len(prompts[0])
        self.prepare(len(prompts), length + new)
        start = time.perf_counter()
        ids = [[] for _ in prompts]
        rows = [(token, at, i, at + 1 == length) for i, prompt in enumerate(prompts) for at, token in enumerate(prompt)]
        for n in range(new):
            chosen = [int(logits.argmax()) for logits in self.decode(rows)]
            for i, token in enumerate(chosen):
                ids[i].append(token)
            rows = [(token, length + n, i, True) for i, token in enumerate(chosen)]
        return {"seconds": time.perf_counter() - start, "ids": ids}

    def score(self, ids):
        import numpy as np
        self.prepare(1, len(ids))
        logits = self.decode([(token, at, 0, True) for at, token in enumerate(ids)])
        found = []
        for row, token in zip(logits, ids[1:]):
            wide = row.astype(np.float64)
            found.append(float(wide[token] - wide.max() - np.log(np.exp(wide - wide.max()).sum())))
        return {"logprobs": found}


def main():
    from c2_decode import prompt
    from duel import serve
    peer = Peer(sys.argv[1], sys.argv[2], int(sys.argv[3]))

    def round_(line):
        request = json.loads(line)
        if request["kind"] == "score":
            return peer.score(request["ids"])
        return peer.generate([prompt(row, request["prompt"]) for row in range(request["batch"])], request["new"])

    serve({}, round_)


if __name__ == "__main__":
    main()
