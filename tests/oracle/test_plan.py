"""Compares `dapd check` for the paper's five sizes with the same arithmetic done here with separate numbers."""

import json
import re
import shutil

import pytest
import transformers
import yaml

from conftest import ROOT, run_dapd, write_jsonl

# hidden, MLP, layers, heads, tied
SIZES = {"1.7b": (2048, 6144, 28, 16, True), "4b": (2560, 9728, 36, 32, True), "8b": (4096, 12288, 36, 32, False),
         "14b": (5120, 17408, 40, 40, False), "32b": (5120, 25600, 64, 64, False)}
KV_HEADS, HEAD, VOCABULARY, RANK = 8, 128, 151936, 64
PROMPT, TEMPLATE, ANSWER, BATCH = 200, 130, 1024, 32


def shapes(hidden, mlp, heads):
    """Returns (in, out) of the seven projections."""
    q, kv = heads * HEAD, KV_HEADS * HEAD
    return [(hidden, q), (hidden, kv), (hidden, kv), (q, hidden), (hidden, mlp), (hidden, mlp), (mlp, hidden)]


def expected_work(hidden, mlp, layers, heads, snapshot_is_base):
    """Returns the PFLOP of trainer and teachers: every product of every layer of every view, one by one."""
    privileged = PROMPT + TEMPLATE
    live = [PROMPT + 2 * ANSWER, privileged + 2 * ANSWER, PROMPT + ANSWER]
    base = [PROMPT + ANSWER] * 2 + [privileged + 2 * ANSWER] * 2
    snapshot = [] if snapshot_is_base else [privileged + 2 * ANSWER] * 2

    def forward(tokens, adapted):
        flops = 0
        for width_in, width_out in shapes(hidden, mlp, heads):
            flops += 2 * tokens * width_in * width_out
            if adapted:
                flops += 2 * tokens * RANK * (width_in + width_out)
        attention = 2 * tokens * tokens * heads * HEAD  # causal: half of two products over the square
        return layers * flops, layers * attention

    def backward(tokens):
        # These are the input gradients of the frozen weights, the input and weight gradients of the adapter, and
        # attention two and a half times.
        flops = sum(2 * tokens * i * o + 4 * tokens * RANK * (i + o) for i, o in shapes(hidden, mlp, heads))
        return layers * (flops + 2.5 * 2 * tokens * tokens * heads * HEAD)

    trainer = sum(2 * sum(forward(t, True)) + backward(t) for t in live)  # forward, recomputation, backward
    teacher = sum(sum(forward(t, False)) for t in base) + sum(sum(forward(t, True)) for t in snapshot)
    head = 2 * hidden * VOCABULARY
    scored = 2 * ANSWER
    teachers = 2 if snapshot_is_base else 3
    trainer += head * scored * (teachers + 2 + 2)  # teachers and students forward, students backward
    return BATCH * trainer / 1e12, BATCH * teacher / 1e12


def make_model_without_weights(size, qwen_folder, folder):
    """Makes the model and a problem for it; returns the flags that name them."""
    hidden, mlp, layers, heads, tied = SIZES[size]
    model = shutil.copytree(qwen_folder, folder / "model")
    config = transformers.Qwen3Config(vocab_size=VOCABULARY, hidden_size=hidden, intermediate_size=mlp, num_hidden_layers=layers, num_attention_heads=heads,
                                      num_key_value_heads=KV_HEADS, head_dim=HEAD, tie_word_embeddings=tied, max_position_embeddings=40960)
    config.save_pretrained(model)
    data = write_jsonl(folder / "data.jsonl", [{"problem": "1 + 1?", "solution": "2", "answer": "2"}])
    sets = {"model.path": model, "model.device": "cpu", "data.path": data}
    return [part for key, value in sets.items() for part in ("--set", f"{key}={value}")]


@pytest.mark.parametrize("size", SIZES)
def test_the_plan_of_a_published_size_is_the_sum_of_its_products(size, qwen_folder, tmp_path):
    hidden, mlp, layers, heads, tied = SIZES[size]
    flags = make_model_without_weights(size, qwen_folder, tmp_path)
    rates = ["--tflops", 400, "--memory-gbs", 3000, "--network-gbs", 10]
    out = run_dapd("check", ROOT / f"configs/qwen3-{size}.yaml", *flags, *rates).stdout
    print(out)

    for line, snapshot_is_base in (("step at first", True), ("step later", False)):
        found = re.search(rf"{line} .* TFLOP: trainer (\S+) for .*teachers (\S+) for", out)
        ours = [float(value) for value in found.groups()]
        expected = expected_work(hidden, mlp, layers, heads, snapshot_is_base)
        worst = max(abs(a / b - 1) for a, b in zip(ours, expected))
        print(f"{size} {line}: {ours} against {[round(x, 1) for x in expected]} TFLOP, largest difference {worst:.1e}")
        assert worst < 1e-3

    linear = layers * sum(i * o for i, o in shapes(hidden, mlp, heads))
    others = VOCABULARY * hidden * (1 if tied else 2) + layers * (2 * hidden + 2 * HEAD) + hidden
    for ranks in (2, 4, 8):
        # This counts two gathered layers, and the projection down while its parts are joined.
        expected = 2 * (others + linear / ranks + 2 * linear / layers + mlp * hidden) / 2**30
        found = float(re.search(rf"base +(\S+) GiB a rank if {ranks} split", out)[1])
        assert abs(found - expected) < 0.006, (ranks, found, expected)
    lora = layers * sum(RANK * (i + o) for i, o in shapes(hidden, mlp, heads))
    assert json.loads(re.search(r"rank 64, alpha 128: (\d+) parameters", out)[1]) == lora


def documented(size):
    """Returns a column of the table in docs/scale.md, by a row's name."""
    section = (ROOT / "docs/scale.md").read_text().split("## The paper's five sizes")[1]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")]
    column = rows[0].index(f"{size[:-1]}B")
    return {row[0]: row[column] for row in rows[2:]}


@pytest.mark.parametrize("size", SIZES)
def test_the_table_of_the_sizes_is_what_check_prints(size, qwen_folder, tmp_path):
    flags = [*make_model_without_weights(size, qwen_folder, tmp_path), "--set", "model.device=cuda"]
    out = run_dapd("check", ROOT / f"configs/qwen3-{size}.yaml", *flags, "--tflops", 400, "--memory-gbs", 2500, "--network-gbs", 10).stdout
    table = documented(size)

    def printed(pattern):
        return [float(number) for number in re.search(pattern, out, re.M).groups()]

    for row, decimals, pattern in (
            ("rollout (base)", 1, r"^rollout +(\S+) GiB .* base (\S+),"),
            ("teacher, six requests in parallel", 1, r"^teacher +(\S+) GiB"),
            ("trainer, minimum (up to 14B including 2 for passes that are run ahead)", 1, r"^trainer +(\S+) GiB"),
            ("base of one of 8 ranks that split every layer", 1, r"^ +base +(\S+) GiB a rank if 8 split"),
            ("trainer TFLOP, first / later", 0, r"^step at first .*trainer (\S+) for [^$]*^step later .*trainer (\S+) for "),
            ("teacher TFLOP, first / later", 0, r"^step at first .*teachers (\S+) for [^$]*^step later .*teachers (\S+) for "),
            ("scores, MiB per step", 0, r"^wire .*scores (\S+),"),
            ("adapter, MiB per worker and step", 0, r"^wire .*adapter (\S+) a worker"),
            ("time of a step, phase after phase, at 400 TFLOP/s, 2.5 TB/s, 10 GB/s", 0, r"^step later [^$]*?^ +one by one +(\S+) s:")):
        found = printed(pattern)
        said = [float(number.replace(",", "")) for number in re.findall(r"[\d,]*\d(?:\.\d+)?", table[row])][:len(found)]
        # Both are rounded.
        assert said == [pytest.approx(number, abs=0.5 * 10**-decimals + 0.0051) for number in found], (row, table[row])


@pytest.mark.parametrize("size", SIZES)
def test_what_a_trainer_keeps_on_a_gpu_of_80_gib_is_there(size, qwen_folder, tmp_path):
    """The planned passes, which are added up here, take no more than the base leaves; up to 8B no layer is computed
    again."""
    hidden, mlp, layers, heads, _ = SIZES[size]
    flags = make_model_without_weights(size, qwen_folder, tmp_path)
    out = run_dapd("check", ROOT / f"configs/qwen3-{size}.yaml", *flags, "--gpu-gib", 80).stdout
    line = re.search(r"^passes .*$", out, re.M)[0]
    print(size, line)
    pack, activations, kept, of, longest, ahead = map(float, re.search(
        r"packs of (\d+) tokens, .* (\S+) GiB of activations \((\d+) of (\d+) layers .*, (\d+) tokens\), (\S+) GiB ahead", line).groups())
    base = float(re.search(r"^trainer .* base (\S+?),", out, re.M)[1])
    assert base + activations + ahead + 2 * pack * hidden * layers / 2**30 < 80
    # Keys have 8 heads in all sizes; the adapter's products are float32.
    row = 2 * (2 * hidden + 2 * (heads + 8) * HEAD + 2 * mlp) + 4 * (7 * RANK + heads)
    assert of == layers and abs(kept - min(layers, activations * 2**30 // (longest * row))) <= 1
    if size in ("1.7b", "4b", "8b"):
        assert kept == layers and "answers whole" in line


def test_a_plan_for_recorded_samples_has_their_views_tokens(qwen_folder, tmp_path):
    samples = [{"id": f"s{n}", "problem": "How many? " * n, "reference": "Count them: " * (4 - n), "rollout_ids": list(range(100, 100 + 7 * n))}
               for n in (1, 2, 3)]
    recorded = write_jsonl(tmp_path / "samples.jsonl", samples)
    flags = [*make_model_without_weights("4b", qwen_folder, tmp_path), "--set", "trainer.batch_size=30", "--set", "trainer.micro_batch_size=2"]
    config = ROOT / "configs/qwen3-4b.yaml"
    run_dapd("views", "--config", config, *flags, "--input", recorded, "--output", tmp_path / "views.jsonl")
    views = [json.loads(line)["views"] for line in (tmp_path / "views.jsonl").read_text().splitlines()]

    def tokens(*names):
        return sum(len(view[name]["input_ids"]) for view in views for name in names) * 30 / len(views)

    live = tokens("self_rollout", "self_reference", "none_reference")  # none_rollout is the beginning of self_rollout
    base = tokens("none_rollout", "cross_rollout", "none_reference", "cross_reference")
    snapshot = tokens("cross_rollout", "cross_reference")
    out = run_dapd("check", config, *flags, "--samples", recorded).stdout
    for line, teachers in (("step at first", base), ("step later", base + snapshot)):
        found = [float(value) for value in re.search(rf"{line} .* for (\S+) tokens, teachers \S+ for (\S+);", out).groups()]
        print(f"{line}: {found} tokens against {live:.1f} and {teachers:.1f}")
        assert found == [pytest.approx(live, abs=0.51), pytest.approx(teachers, abs=0.51)]


def test_rates_come_all_three_or_not_at_all(tmp_path):
    result = run_dapd("check", tmp_path / "none.yaml", "--tflops", 400, check=False)
    assert result.returncode == 2 and "--memory-gbs" in result.stderr


def test_the_recommended_split_is_what_the_plan_says_of_it_and_beats_the_others(qwen_folder, tmp_path):
    flags = make_model_without_weights("4b", qwen_folder, tmp_path)
    config = ROOT / "configs/qwen3-4b.yaml"
    rates = ["--tflops", 400, "--memory-gbs", 2500, "--network-gbs", 10]
    line = re.search(r"^split .*$", run_dapd("check", config, *flags, *rates, "--gpus", 7).stdout, re.M)[0]
    print(line)
    ranks, teachers, rollouts = (int(n) for n in re.search(r"of 7: ranks (\d+), teachers (\d+), rollouts (\d+);", line).groups())
    assert ranks + teachers + rollouts == 7

    def seconds(ranks, teachers, rollouts):
        split = {"trainer.ranks": ranks, "run.teacher_workers": teachers, "run.rollout_workers": rollouts}
        sets = [part for key, value in split.items() for part in ("--set", f"{key}={value}")]
        return float(re.findall(r"one by one +(\S+) s", run_dapd("check", config, *flags, *sets, *rates).stdout)[1])

    best = seconds(ranks, teachers, rollouts)
    assert float(re.search(r"(\S+) s a step", line)[1]) == pytest.approx(best, rel=1e-3)
    for other in ((1, 2, 4), (2, 2, 3), (2, 4, 1), (4, 1, 2)):
        assert best <= seconds(*other)
    result = run_dapd("check", config, *flags, "--gpus", 2, check=False)
    assert result.returncode == 3 and "2 devices are too few" in result.stderr


def test_compose_for_eight_gpus_splits_them_as_recommended(qwen_folder, tmp_path):
    """deploy/compose.8gpu.yaml has the split that `dapd check`, with its default rates, recommends for its model."""
    services = yaml.safe_load((ROOT / "deploy/compose.8gpu.yaml").read_text())["services"]

    def gpus(role):
        return sum(len(service["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"])
                   for name, service in services.items() if name.split("-")[0] == role)

    flags = make_model_without_weights("4b", qwen_folder, tmp_path)
    out = run_dapd("check", ROOT / "configs/qwen3-4b.yaml", *flags, "--gpus", 8).stdout
    recommended = re.search(r"^split .*of 8: ranks (\d+), teachers (\d+), rollouts (\d+);", out, re.M)
    print(recommended[0])
    assert [gpus("trainer"), gpus("teacher"), gpus("rollout")] == [int(number) for number in recommended.groups()]


def test_32b_has_a_recipe_for_eight_gpus_of_80_gb(qwen_folder, tmp_path):
    """The configuration, check's split within the memory, and the overlay agree."""
    flags = [*make_model_without_weights("32b", qwen_folder, tmp_path), "--set", "model.device=cuda"]
    config = ROOT / "configs/qwen3-32b.yaml"
    out = run_dapd("check", config, *flags, "--gpus", 8, "--gpu-gib", 79.2).stdout
    line = re.search(r"^split .*$", out, re.M)[0]
    print(line)
    assert re.search(r"of 8: ranks 4, teachers 2, rollouts 1; .*; 2 devices a rollout worker$", line)
    assert re.search(r"^passes +on a GPU of 79.2 GiB: packs of ", out, re.M)
    seconds, memory = map(float, re.search(r"; (\S+) s a step .* (\S+) GiB a rank", line).groups())
    scale, page = ((ROOT / path).read_text() for path in ("docs/scale.md", "deploy/kubernetes/overlays/qwen3-32b/README.md"))
    assert f"a step takes {seconds:.0f} s" in re.sub(r"\s+", " ", page) and f"| {memory:.1f} GiB |" in page
    assert f"({memory:.1f} GiB)" in scale and f"with {seconds:.0f} s a step" in scale
    settings = (ROOT / "deploy/kubernetes/overlays/qwen3-32b/kustomization.yaml").read_text()
    assert all(f"- {pair}\n" in settings for pair in ("trainer-pods=1", "trainer-gpus=4", "teacher-pods=2", "rollout-pods=1", "rollout-gpus=2"))
    # If a GPU cannot hold a teacher, the message comes before anything starts.
    small = run_dapd("check", config, *flags, "--gpus", 8, "--gpu-gib", 68, check=False)
    assert small.returncode == 3 and "GiB has room for a teacher" in small.stderr, small.stderr


def test_a_worker_of_several_gpus_is_recommended_where_it_pays(qwen_folder, tmp_path):
    """docs/scale.md says of 4B: on 8 GPUs a further teacher is worth more, on 16 such a worker."""
    flags = [*make_model_without_weights("4b", qwen_folder, tmp_path), "--set", "model.device=cuda"]
    config = ROOT / "configs/qwen3-4b.yaml"

    def split(gpus, *sets):
        return re.search(r"^split .*$", run_dapd("check", config, *flags, *sets, "--gpus", gpus).stdout, re.M)[0]

    scale = re.sub(r"\s+", " ", (ROOT / "docs/scale.md").read_text())
    one, two = split(8), split(8, "--set", "rollout.tensor_parallel=2")
    seconds = [re.search(r"; (\S+) s a step", line)[1] for line in (one, two)]
    assert "ranks 4, teachers 3, rollouts 1;" in one and "devices a rollout worker" not in one
    assert "ranks 4, teachers 2, rollouts 1;" in two and "2 devices a rollout worker" in two
    assert f"a step takes {float(seconds[0]):.1f} s on 8 GPUs" in scale and f"{float(seconds[1]):.1f} s with 4, 2 and a worker of two" in scale, seconds
    assert re.search(r"; [248] devices a rollout worker$", split(16))


@pytest.mark.parametrize("page, size, gpus", [("one-node-8-gpus", "4b", 8), ("two-nodes-8-gpus", "8b", 16)])
def test_the_page_of_an_overlay_says_what_check_plans_for_it(page, size, gpus, qwen_folder, tmp_path):
    """The page states split, seconds of a step and GPU memory."""
    text = re.sub(r"\s+", " ", (ROOT / f"deploy/kubernetes/overlays/{page}/README.md").read_text())
    said = re.search(r"(\d+) (?:trainer )?ranks.*?, (\d+) teachers, (\d+) rollout workers?\..*?a step takes (\S+) s .*? with (\d+) GiB of GPU memory per rank", text)
    flags = make_model_without_weights(size, qwen_folder, tmp_path)
    out = run_dapd("check", ROOT / f"configs/qwen3-{size}.yaml", *flags, "--set", "model.device=cuda", "--gpus", gpus).stdout
    line = re.search(r"^split .*$", out, re.M)[0]
    print(line)
    *split, seconds, memory = re.search(r"ranks (\d+), teachers (\d+), rollouts (\d+); (\S+) s .* (\S+) GiB a rank", line).groups()
    assert list(said.groups()[:3]) == split
    assert float(said[4]) == pytest.approx(float(seconds), abs=0.06)
    assert int(said[5]) == round(float(memory))
    if page == "one-node-8-gpus":
        workers = re.search(r"per rank and (\d+) per teacher and worker", text)
        planned = [re.search(rf"^{role} +(\S+) GiB a process", out, re.M)[1] for role in ("teacher", "rollout")]
        assert [round(float(number)) for number in planned] == 2 * [int(workers[1])]
