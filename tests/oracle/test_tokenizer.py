"""Compares encoding and decoding with Hugging Face `tokenizers`, on generated text."""

import json
import random
import unicodedata

import pytest
import transformers
from tokenizers import Tokenizer

from conftest import ROOT, read_jsonl, run_dapd, write_jsonl

NUM_TEXTS = 10_000
RANGES = [
    (0x20, 0x7F), (0xA0, 0x180), (0x300, 0x370), (0x370, 0x400), (0x400, 0x530), (0x590, 0x700), (0x900, 0xD80),
    (0xE00, 0xF00), (0x1100, 0x1200), (0x1E00, 0x2000), (0x2000, 0x2070), (0x2070, 0x2190), (0x2190, 0x2C00),
    (0x3000, 0x3100), (0x4E00, 0x5000), (0xAC00, 0xAD00), (0xF900, 0xFB00), (0xFE00, 0x10000), (0x1D400, 0x1D800),
    (0x1F300, 0x1FA00), (0x20000, 0x20100), (0x1C4, 0x1CD), (0x2B0, 0x2F0), (0x1F80, 0x1FB0), (0x10400, 0x10450),
]
SNIPPETS = [
    "'s", "'S", "'ll", "'RE", "'\u017f", "don't", "I'D", "\n\n", "\r\n", " \n ", "\t\t", "    ", "\u00a0", "\u3000", "\u2028", "\u0085",
    "12345", "3.14", "\u00bd", "\u0663\u0664", "\u2167", "e\u0301", "\u1100\u1161\u11a8", "\u212b", "\u00e9", "fi\ufb01", "<think>",
    "</think>", "<|im_end|>", "<|im_start|>user\n", "<|endoftext|>", "<|im_", "def f(x):\n    return x**2\n", "\\boxed{42}",
    "https://a.b/c?d=e&f", "<|eot_id|>", "<|start_header_id|>user<|end_header_id|>\n\n", "1234567", "qzxjvk", "\x00", "\x1b[0m", "\u200b", "\u200d", "\ufeff", "a" * 50, "!?" * 9, "\U0001f468\u200d\U0001f469",
    "camelCase", "HTTPServer", "XML\u4e2dAB", "AB\u0301CD", "\u0301", "\u0301AB", "\u01c5", "\u02b0Ab", "!/\n//", "//a", "A", "\u0410\u0430\u0411",
]


def is_settled(character):
    """Returns whether both libraries know the character's Unicode version and it is not a surrogate."""
    return unicodedata.category(character) not in ("Cn", "Cs", "Co")


def random_text(rng):
    parts = []
    for _ in range(rng.randint(1, 12)):
        kind = rng.random()
        if kind < 0.4:
            parts.append(rng.choice(SNIPPETS))
        elif kind < 0.6:
            parts.append("".join(rng.choice("abcdefghij ABC.,") for _ in range(rng.randint(1, 30))))
        else:
            low, high = rng.choice(RANGES)
            letters = (chr(rng.randrange(low, high)) for _ in range(rng.randint(1, 12)))
            parts.append("".join(c for c in letters if is_settled(c)))
        if rng.random() < 0.3:
            parts.append(" ")
    return "".join(parts)


@pytest.mark.parametrize("name", ["qwen_folder", "smollm2_folder", "llama3_folder", "tekken_folder"])
def test_ten_thousand_texts_encode_and_decode_alike(name, request, tmp_path):
    folder = request.getfixturevalue(name)
    oracle = Tokenizer.from_file(str(folder / "tokenizer.json"))
    rng = random.Random(7)
    texts = [random_text(rng) for _ in range(NUM_TEXTS)]
    texts += [path.read_text() for path in sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("common/tokenizer/**/*.cc")])]
    write_jsonl(tmp_path / "texts", [{"text": t} for t in texts])
    run_dapd("tokenize", "--model", folder, "--input", tmp_path / "texts", "--output", tmp_path / "ids")
    ours = [row["ids"] for row in read_jsonl(tmp_path / "ids")]
    expected = [e.ids for e in oracle.encode_batch(texts, add_special_tokens=False)]
    wrong = [i for i in range(len(texts)) if ours[i] != expected[i]]
    print(f"{name}: {len(wrong)} of {len(texts)} encodings differ, {sum(map(len, expected))} tokens")
    assert not wrong, (texts[wrong[0]], ours[wrong[0]], expected[wrong[0]])

    # Random ids are included: they form byte sequences that are not valid UTF-8.
    size = oracle.get_vocab_size()
    sequences = expected[:3000] + [[rng.randrange(size) for _ in range(rng.randint(1, 20))] for _ in range(3000)]
    write_jsonl(tmp_path / "ids", [{"ids": s} for s in sequences])
    for skip in (False, True):
        flags = ["--skip-special-tokens"] if skip else []
        run_dapd("tokenize", "--decode", *flags, "--model", folder, "--input", tmp_path / "ids", "--output", tmp_path / "out")
        decoded = [row["text"] for row in read_jsonl(tmp_path / "out")]
        reference = [oracle.decode(s, skip_special_tokens=skip) for s in sequences]
        wrong = [i for i in range(len(sequences)) if decoded[i] != reference[i]]
        print(f"{name}: {len(wrong)} of {len(sequences)} decodings differ (skip_special_tokens={skip})")
        assert not wrong, (sequences[wrong[0]], decoded[wrong[0]], reference[wrong[0]])


def encode_like(oracle, folder, texts):
    """Checks that the ids of each text by the tokenizer in `folder` equal the oracle's."""
    write_jsonl(folder / "texts", [{"text": text} for text in texts])
    run_dapd("tokenize", "--model", folder, "--input", folder / "texts", "--output", folder / "ids")
    encoded = [row["ids"] for row in read_jsonl(folder / "ids")]
    assert encoded == oracle(texts, add_special_tokens=False)["input_ids"]
    return encoded


def decode_like(oracle, folder, encoded):
    """Decodes to text without special tokens."""
    write_jsonl(folder / "ids", [{"ids": ids} for ids in encoded])
    run_dapd("tokenize", "--decode", "--skip-special-tokens", "--model", folder, "--input", folder / "ids", "--output", folder / "out")
    assert [row["text"] for row in read_jsonl(folder / "out")] == [oracle.decode(ids, skip_special_tokens=True) for ids in encoded]


def test_tokens_that_only_the_configuration_adds_count(tmp_path):
    """The configuration also changes tokens that tokenizer.json has."""
    import models

    ids = models.write_tokenizer(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    config = json.loads(path.read_text())
    flags = dict(lstrip=False, rstrip=False, normalized=False, single_word=False)
    size = max(ids.values()) + 1
    config["added_tokens_decoder"] = {
        str(size + 1): dict(content="<b>", special=True, **flags), str(size): dict(content="<a>", special=False, **flags),
        str(ids["<think>"]): dict(content="<think>", special=True, **flags),
    }
    path.write_text(json.dumps(config))
    oracle = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    texts = ["x<a>y<b> <b>", "<think>x</think><a", "<|im_end|><a><b>"]
    encoded = encode_like(oracle, tmp_path, texts)
    assert size in encoded[0] and size + 1 in encoded[0]
    decode_like(oracle, tmp_path, encoded)


@pytest.mark.parametrize("split", [False, True])
def test_special_tokens_may_be_text_like_any_other(split, tmp_path):
    import models

    ids = models.write_tokenizer(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    flags = dict(lstrip=False, rstrip=False, normalized=False, single_word=False)
    size = max(ids.values()) + 1
    tokens = {"<|im_start": False, "im_end|>": False, "<|x|>": True}
    added = {str(size + i): dict(content=text, special=special, **flags) for i, (text, special) in enumerate(tokens.items())}
    path.write_text(json.dumps({**json.loads(path.read_text()), "added_tokens_decoder": added, "split_special_tokens": split}))
    oracle = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    rng = random.Random(13)
    parts = ["<|im_start|>", "<|im_end|>", "<|im_start", "im_end|>", "<|x|>", "<|", "x", " ", "<think>", "</think>", "|>", "e\u0301"]
    texts = ["".join(rng.choices(parts, k=rng.randint(1, 9))) for _ in range(1000)]
    encode_like(oracle, tmp_path, texts)
    assert split == (ids["<|im_end|>"] not in oracle("<|im_end|>", add_special_tokens=False)["input_ids"])


def test_special_tokens_of_the_configuration_are_added(tmp_path):
    """tokenizer.json has them as words, as tokens that are not special, or not at all."""
    import models

    models.write_tokenizer(tmp_path)
    tokenizer = json.loads((tmp_path / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary.update({text: len(vocabulary) + i for i, text in enumerate(["en", "end"])})
    tokenizer["model"]["merges"] = [["e", "n"], ["en", "d"]] * 2
    for token in tokenizer["added_tokens"]:
        token["id"] += 2
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    path = tmp_path / "tokenizer_config.json"
    config = json.loads(path.read_text())
    config.update(eos_token="en", pad_token="<pad>", unk_token="<think>", bos_token="<bos>", extra_special_tokens=["<extra>", "</think>"])
    path.write_text(json.dumps(config))
    oracle = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    texts = ["<bos>a end <pad>", "<extra><think>x</think><|im_end|>en", "<pa d>"]
    encoded = encode_like(oracle, tmp_path, texts)
    assert encoded[0][0] >= len(vocabulary) and vocabulary["en"] in encoded[0]
    decode_like(oracle, tmp_path, encoded)


def with_merges(folder, rng):
    """Returns a folder of models.write_tokenizer whose words merge, so that the ids show where words are cut."""
    import models

    models.write_tokenizer(folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocabulary, merges = tokenizer["model"]["vocab"], tokenizer["model"]["merges"]
    new = list(vocabulary)
    for _ in range(600):
        left, right = rng.choice(new), rng.choice(new)
        if left + right not in vocabulary and len(left + right) < 5:
            vocabulary[left + right] = len(vocabulary)
            merges.append([left, right])
            new += [left + right] * 2
    # These are likely pairs, over any boundaries.
    letters = [*"abAB019.,!?-", "\u0120", "\u010a", "\u00ce", "\u00b1", "\u00d9", "\u00a3"]
    for left in letters:
        for right in letters:
            if left + right not in vocabulary:
                vocabulary[left + right] = len(vocabulary)
                merges.append([left, right])
    for i, token in enumerate(tokenizer["added_tokens"]):
        token["id"] = len(vocabulary) + i
    return tokenizer


SPLIT = {"type": "Split", "invert": False}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
BEHAVIORS = ["Isolated", "Removed", "Contiguous", "MergedWithPrevious", "MergedWithNext"]
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
DEEPSEEK_V3 = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN3_5 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
REGEXES = [O200K, CL100K, DEEPSEEK_V3, QWEN3_5, r"[0-9][0-9][0-9]", r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", r"\p{N}{1,3}",
           "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+", r"\d{1,3}(?=(?:\d{3})*\b)".replace(r"\b", "(?!\\d)"), r"x*", r"\p{Nd}", r"^a|b$", r".a", r"(?<=a)b"]
# Published tokenizers: Falcon 3, deepseek-math, deepseek-coder, DeepSeek V3, StarCoder 2, Phi-4, GPT-2, gpt-oss, Bloom.
PUBLISHED = [
    [{"type": "Punctuation", "behavior": "Contiguous"}, {**BYTES, "use_regex": True}, {"type": "Digits", "individual_digits": False}, {**SPLIT, "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated"}],
    [*({**SPLIT, "pattern": {"Regex": regex}, "behavior": "Isolated"} for regex in REGEXES[5:9]), {"type": "Digits", "individual_digits": True}, BYTES],
    [*({**SPLIT, "pattern": {"Regex": regex}, "behavior": "Isolated"} for regex in (r"\p{N}{1,3}", REGEXES[10], DEEPSEEK_V3)), BYTES],
    [{"type": "Digits", "individual_digits": True}, {**BYTES, "use_regex": True}],
    [{"type": "Digits", "individual_digits": False}, {**BYTES, "use_regex": True, "add_prefix_space": True}],
    [{**SPLIT, "pattern": {"Regex": CL100K}, "behavior": "Removed", "invert": True}, BYTES],
    [{**SPLIT, "pattern": {"Regex": O200K}, "behavior": "Isolated"}, BYTES],
    [{**SPLIT, "pattern": {"Regex": REGEXES[11]}, "behavior": "Isolated"}, BYTES],
]


def random_part(rng):
    kind = rng.choice(["Split", "Split", "Split", "Punctuation", "Digits", "Whitespace", "WhitespaceSplit", "CharDelimiterSplit"])
    if kind == "Split":
        pattern = {"Regex": rng.choice(REGEXES)} if rng.random() < 0.7 else {"String": rng.choice([" ", "a", "ab", ".", "\u4e2d", "aa"])}
        return {**SPLIT, "pattern": pattern, "behavior": rng.choice(BEHAVIORS), "invert": rng.random() < 0.3}
    return {"type": kind, **{"Punctuation": {"behavior": rng.choice(BEHAVIORS)}, "Digits": {"individual_digits": rng.random() < 0.5},
                             "CharDelimiterSplit": {"delimiter": rng.choice(["a", " ", "\u00e9"])}}.get(kind, {})}


def random_normalizer(rng):
    kind = rng.choice([None, None, "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Strip", "Replace", "Replace", "Prepend", "Sequence"])
    pattern = {"Regex": rng.choice([r"\s+", r"a|b", r"x+", r"\p{N}"])} if rng.random() < 0.5 else {"String": rng.choice([" ", "a", "ab"])}
    extra = {"Strip": {"strip_left": rng.random() < 0.5, "strip_right": rng.random() < 0.5}, "Replace": {"pattern": pattern, "content": rng.choice(["", "_", "ab"])},
             "Prepend": {"prepend": rng.choice([" ", "a"])}, "Sequence": {"normalizers": [n for n in (random_normalizer(rng) for _ in range(2)) if n] if kind == "Sequence" else []}}
    return kind and {"type": kind, **extra.get(kind, {})}


def random_tokenizer(folder, rng, index):
    """Returns one of the published shapes, or random parts around ByteLevel, with added tokens that have random flags."""
    tokenizer = with_merges(folder, rng)
    before, after = [random_part(rng) for _ in range(rng.randint(0, 2))], [random_part(rng) for _ in range(rng.choice([0, 0, 1]))]
    bytes_part = {**BYTES, "add_prefix_space": rng.random() < 0.3, "use_regex": rng.random() < 0.5}
    parts = PUBLISHED[index] if index < len(PUBLISHED) else [*before, bytes_part, *after]
    tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": parts}
    tokenizer["normalizer"] = None if index < len(PUBLISHED) else random_normalizer(rng)
    last = max(token["id"] for token in tokenizer["added_tokens"])
    for i, content in enumerate(["<a>", "<b>", "word", "  ", "\u00c9t", "Big"]):
        flags = {flag: rng.random() < 0.4 for flag in ("lstrip", "rstrip", "single_word", "normalized", "special")}
        tokenizer["added_tokens"].append({"id": last + 1 + i, "content": content, **flags})
    for token in tokenizer["added_tokens"][:3]:
        token.update(lstrip=rng.random() < 0.5, rstrip=rng.random() < 0.5)
    return tokenizer


def ids_or_none(oracle, text):
    """Returns None if the library itself panics, as it does for some texts after Replace."""
    try:
        return oracle.encode(text, add_special_tokens=False).ids
    except BaseException as error:
        assert type(error).__name__ == "PanicException", error
        return None


NEW = ["\U00010d4a\U00010d50\U00010d70", "\u1c89\u1c8a", "\ua7cb\ua7dc", "\U00011bf0\U00011bf1", "\U0002ebf0", "\U00016d70", "\u0897", "\U00011de0", "\U0001e5d0", "\U00011f50"]


def test_random_folders_encode_alike(tmp_path):
    rng = random.Random(17)
    texts = [random_text(rng) for _ in range(150)]
    own = ["<a>", " <a> ", "  <b>\n", "word", "sword", "word ", "a word.", "Big", "big", "\u00c9t\u00e9", "<|im_start|>", " <|im_end|>\n ", "ab", "aab", "123456", "1 2", "a.b", "...", " ", "\n\n", "\u00a0", "x", *NEW]
    texts += ["".join(rng.choices(own, k=rng.randint(1, 7))) for _ in range(350)]
    write_jsonl(tmp_path / "texts", [{"text": text} for text in texts])
    differing = []
    for index in range(60):
        folder = tmp_path / str(index)
        folder.mkdir()
        tokenizer = random_tokenizer(folder, rng, index)
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        (folder / "tokenizer_config.json").write_text("{}")
        oracle = Tokenizer.from_file(str(folder / "tokenizer.json"))
        result = run_dapd("tokenize", "--model", folder, "--input", tmp_path / "texts", "--output", folder / "ids", check=False)
        shape = {key: tokenizer[key] for key in ("pre_tokenizer", "normalizer")}
        if "the normalizer leaves nothing of" in result.stderr:
            continue  # The library would find the token everywhere.
        assert result.returncode == 0, (shape, result.stderr)
        ours = [row["ids"] for row in read_jsonl(folder / "ids")]
        expected = [ids_or_none(oracle, text) for text in texts]
        wrong = [text for text, ids, right in zip(texts, ours, expected, strict=True) if right is not None and ids != right]
        if wrong:
            differing.append((len(wrong), min(wrong, key=len), shape, tokenizer["added_tokens"][-6:]))
    print(f"60 folders, {len(texts)} texts each: {len(differing)} folders differ")
    assert not differing, differing[:3]


@pytest.mark.parametrize("part", [
    {**SPLIT, "pattern": {"Regex": r"\p{L}"}, "behavior": "Isolated"}, {**SPLIT, "pattern": {"Regex": r"[\p{Lu}\p{N}]"}, "behavior": "Isolated"}, {**SPLIT, "pattern": {"Regex": r"\p{M}|\p{Ll}"}, "behavior": "Isolated"},
    {**SPLIT, "pattern": {"Regex": r"\p{P}|\p{Lo}"}, "behavior": "Isolated"}, {**SPLIT, "pattern": {"Regex": r"[\p{S}\p{Lm}]|\p{Nd}"}, "behavior": "Isolated"}, {"type": "Digits", "individual_digits": True}, {"type": "Punctuation", "behavior": "Isolated"},
    {"type": "Whitespace"}, {"type": "WhitespaceSplit"}, {**BYTES, "use_regex": True},
])
def test_every_character_is_of_the_same_kind(part, tmp_path):
    """A character that is cut off does not merge with the letter next to it. This covers all of Unicode, whatever the
    machine's ICU knows."""
    tokenizer = with_merges(tmp_path, random.Random(1))
    vocabulary, merges = tokenizer["model"]["vocab"], tokenizer["model"]["merges"]
    vocabulary.clear()
    merges.clear()
    from tokenizers import pre_tokenizers
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    # Any byte merges with the letter after it, and any letter with the byte after it.
    for token in [*alphabet, *(a + "x" for a in alphabet), *("x" + a for a in alphabet if a != "x")]:
        vocabulary[token] = len(vocabulary)
    merges += [[token[0], token[1]] for token in vocabulary if len(token) == 2]
    tokenizer["added_tokens"] = []
    tokenizer["normalizer"] = None
    tokenizer["pre_tokenizer"] = part if part["type"] == "ByteLevel" else {"type": "Sequence", "pretokenizers": [part, BYTES]}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    (tmp_path / "tokenizer_config.json").write_text("{}")
    oracle = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    characters = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000 and not 0xF0000 <= c]
    texts = ["".join(f"x{c}x " for c in characters[i : i + 400]) for i in range(0, len(characters), 400)]
    write_jsonl(tmp_path / "texts", [{"text": text} for text in texts])
    run_dapd("tokenize", "--model", tmp_path, "--input", tmp_path / "texts", "--output", tmp_path / "ids")
    expected = [encoding.ids for encoding in oracle.encode_batch(texts, add_special_tokens=False)]
    wrong = [i for i, row in enumerate(read_jsonl(tmp_path / "ids")) if row["ids"] != expected[i]]
    print(f"{part}: {len(wrong)} of {len(texts)} blocks of 400 characters differ")
    assert not wrong, [hex(ord(characters[400 * i])) for i in wrong[:20]]


def broken(tokenizer, change):
    copy = json.loads(json.dumps(tokenizer))
    change(copy)
    return json.dumps(copy)


def test_a_broken_tokenizer_is_refused_by_name(tmp_path):
    import models

    models.write_tokenizer(tmp_path)
    path = tmp_path / "tokenizer.json"
    good = json.loads(path.read_text())
    write_jsonl(tmp_path / "in", [{"text": "a"}])
    cases = {
        "not valid JSON": path.read_text()[:1000],
        "merges[0]": broken(good, lambda t: t["model"]["merges"].append(["a", "zzz"])),
        "type 'Metaspace' is not supported; Split": broken(good, lambda t: t.update(pre_tokenizer={"type": "Metaspace"})),
        "without ByteLevel": broken(good, lambda t: t.update(pre_tokenizer={"type": "Digits"})),
        "'\\w' is not supported": broken(good, lambda t: t["pre_tokenizer"]["pretokenizers"][0]["pattern"].update(Regex="\\w+")),
        "normalizer: type 'Nmt' is not supported; NFC": broken(good, lambda t: t.update(normalizer={"type": "Nmt"})),
        "decoder": broken(good, lambda t: t.update(decoder=None)),
        "byte-level": broken(good, lambda t: t["model"].update(vocab=dict(list(t["model"]["vocab"].items())[:99]))),
        "two tokens": broken(good, lambda t: t["added_tokens"][0].update(id=5)),
        "has id 300": broken(good, lambda t: t["added_tokens"][-1].update(id=300)),
    }
    for expected, text in cases.items():
        path.write_text(text)
        result = run_dapd("tokenize", "--model", tmp_path, "--input", tmp_path / "in", "--output", tmp_path / "out", check=False)
        assert result.returncode == 4 and expected in result.stderr, (expected, result.returncode, result.stderr)
        assert not (tmp_path / "out").exists()
