"""The whole loop gives the same result whatever happens to the workers."""

import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import time

import pytest
import torch
import transformers
import yaml
from peft import PeftModel

from conftest import BIN, children, set_flags, wait_for


def test_three_rollout_workers_give_the_adapter_of_one(reference_run):
    reference_run.run("three", **{"run.rollout_workers": 3, "run.teacher_workers": 2})
    assert reference_run.adapter_digest("three") == reference_run.adapter_digest("reference")


@pytest.mark.parametrize("victim", ["dapd-rollout", "dapd-teacher"])
def test_a_killed_worker_does_not_change_the_result(victim, reference_run):
    name = f"killed-{victim}"
    # Steps take long enough that each kill falls into another step on any machine.
    process = reference_run.start(name, failpoints="train.before_micro_batch=sleep:200", **{"run.rollout_workers": 2})
    kills = 0
    for step in (1, 2, 3):
        wait_for(lambda: len(reference_run.metrics(name)) >= step or process.poll() is not None, what=f"step {step}")
        pids = children(process).get(victim, [])
        if process.poll() is None and pids:
            os.kill(pids[0], signal.SIGKILL)
            kills += 1
    assert process.wait(timeout=120) == 0, reference_run.log(name)
    print(f"{victim}: killed {kills} times")
    assert kills >= 2
    assert "restarting it" in reference_run.log(name)
    assert reference_run.adapter_digest(name) == reference_run.adapter_digest("reference")
    assert len(reference_run.metrics(name)) == 5


def test_resume_never_is_about_the_runs_before_this_one(reference_run):
    name = "never"
    process = reference_run.start(name, failpoints="train.before_micro_batch=sleep:200", **{"run.resume": "never"})
    wait_for(lambda: reference_run.metrics(name) or process.poll() is not None, what="a step")
    os.kill(children(process)["dapd-trainer"][0], signal.SIGKILL)
    assert process.wait(timeout=120) == 0, reference_run.log(name)
    assert "restarting from the newest checkpoint" in reference_run.log(name)
    assert reference_run.adapter_digest(name) == reference_run.adapter_digest("reference")
    again = reference_run.run(name, check=False, **{"run.resume": "never", "trainer.steps": 6})
    assert again.returncode == 3 and "already holds a run" in again.stderr


def test_each_process_gets_a_gpu_of_its_own(reference_run, monkeypatch):
    """Without a GPU only the settings that the processes are given can be checked."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7,8")
    process = reference_run.start("gpus", **{"trainer.ranks": 2, "run.rollout_workers": 2, "model.device": "auto"})
    wait_for(lambda: len(children(process).get("dapd-trainer", [])) == 2 or process.poll() is not None, what="two trainers")

    def gpus_of(pid):
        variables = dict(line.split("=", 1) for line in open(f"/proc/{pid}/environ").read().split("\0") if "=" in line)
        return variables["CUDA_VISIBLE_DEVICES"]

    given = {name: sorted(map(gpus_of, pids)) for name, pids in children(process).items()}
    assert process.wait(timeout=120) == 0, reference_run.log("gpus")
    assert given == {"dapd-trainer": ["4", "5"], "dapd-rollout": ["6", "7"], "dapd-teacher": ["8"]}


def test_processes_that_share_a_gpu_know_it(reference_run, monkeypatch):
    """A trainer, a worker and a teacher on one GPU each plan with a third of its memory."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    process = reference_run.start("shared-gpu", **{"model.device": "auto"})
    wait_for(lambda: len(children(process).get("dapd-trainer", [])) == 1 or process.poll() is not None, what="the trainer")
    told = [open(f"/proc/{pid}/cmdline").read().split("\0") for pids in children(process).values() for pid in pids]
    assert process.wait(timeout=120) == 0, reference_run.log("shared-gpu")
    assert len(told) == 3 and all("run.gpu_processes=3" in arguments for arguments in told)


def listening_on(address):
    """Returns how many TCP sockets listen on an IPv4 address of this machine."""
    wanted = socket.inet_aton(address)[::-1].hex().upper()
    sockets = [line.split() for line in open("/proc/net/tcp").read().splitlines()[1:]]
    return sum(local.startswith(f"{wanted}:") and state == "0A" for _, local, _, state, *_ in sockets)


def test_what_is_to_be_seen_from_elsewhere_listens_where_it_is_told(reference_run):
    """The address is not 127.0.0.1: the page and the status of a run in a container must be reachable from outside."""
    elsewhere = {"metrics.trainer_listen": "127.0.0.2:0", "metrics.rollout_listen": "127.0.0.2:0", "metrics.teacher_listen": "127.0.0.2:0",
                 "trainer.listen": "127.0.0.3:0"}
    process = reference_run.start("elsewhere", **elsewhere)
    page = wait_for(lambda: re.search(r"status page: (http://127\.0\.0\.2:\d+/)", reference_run.log("elsewhere")) or process.poll() is not None, what="the page's address")
    # These are the sockets of the trainer, a worker and a teacher.
    wait_for(lambda: listening_on("127.0.0.2") >= 3 or process.poll() is not None, what="three endpoints")
    assert process.poll() is None, reference_run.log("elsewhere")
    status = re.search(r"dapd status (127\.0\.0\.3:\d+)", reference_run.log("elsewhere"))
    assert process.wait(timeout=120) == 0, reference_run.log("elsewhere")
    assert page is not True and status, reference_run.log("elsewhere")


@pytest.mark.skipif(not os.path.exists("/proc/net/if_inet6"), reason="no IPv6")
def test_a_run_listens_on_ipv6(reference_run):
    """IPv6 addresses must be quoted in YAML, in which the run's processes get them."""
    run = reference_run.run("ipv6", **{key: '"[::1]:0"' for key in (
        "trainer.listen", "metrics.trainer_listen", "metrics.rollout_listen", "metrics.teacher_listen")})
    assert re.search(r"status page: http://\[::1\]:\d+/", run.stderr) and re.search(r"dapd status \[::1\]:\d+", run.stderr)
    assert reference_run.adapter_digest("ipv6") == reference_run.adapter_digest("reference")


def test_a_second_run_in_the_same_folder_is_refused(reference_run):
    result = reference_run.run("reference", check=False)
    assert result.returncode == 3 and "already holds a finished run" in result.stderr


def test_an_interrupt_while_the_trainer_is_being_started_is_one(reference_run):
    process = reference_run.start("hasty", **{"trainer.steps": 500, "trainer.schedule_steps": 500})
    wait_for(lambda: "starting the trainer" in reference_run.log("hasty"), what="a trainer")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130, reference_run.log("hasty")
    assert not children(process)


def test_a_run_goes_on_when_nobody_reads_its_log(reference_run):
    flags = set_flags({"run.name": "unread"})
    process = subprocess.Popen([BIN / "dapd", "run", reference_run.config, *flags], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    process.stderr.readline()
    process.stderr.close()
    assert process.wait(timeout=240) == 0
    assert reference_run.adapter_digest("unread") == reference_run.adapter_digest("reference")


def test_a_finished_run_without_its_checkpoints_is_not_begun_anew(reference_run):
    reference_run.run("bare", **{"trainer.steps": 1})
    folder = reference_run.runs("bare")
    before = reference_run.adapter_digest("bare")
    shutil.rmtree(folder / "checkpoints")
    result = reference_run.run("bare", check=False, **{"trainer.steps": 2})
    assert result.returncode == 6 and "no checkpoint to resume from" in result.stderr, result.stderr
    assert reference_run.adapter_digest("bare") == before


def tell(process, how):
    if how == "SIGTERM":
        process.send_signal(signal.SIGTERM)
    elif how == "a service manager":
        for told in (process.pid, *sum(children(process).values(), [])):
            os.kill(told, signal.SIGTERM)
    elif how == "a closed terminal":  # the kernel signals the process, and so does the shell
        process.send_signal(signal.SIGHUP)
        time.sleep(0.05)
        process.send_signal(signal.SIGHUP)
    else:  # the kernel signals the children, once for each thread of their parent
        process.kill()


@pytest.mark.parametrize("how", ["SIGTERM", "a service manager", "a closed terminal", "its parent's death"])
def test_a_stop_saves_the_last_whole_step(how, reference_run):
    name = f"stopped-by-{how.split()[-1].lower()}"
    process = reference_run.start(name, **{"trainer.steps": 500, "trainer.schedule_steps": 500})
    wait_for(lambda: len(reference_run.metrics(name)) >= 2, what="two steps")
    started = sum(children(process).values(), [])
    tell(process, how)
    assert process.wait(timeout=60) == (-signal.SIGKILL if how == "its parent's death" else 130), reference_run.log(name)
    wait_for(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in started), what="the end of all processes")
    folder = reference_run.runs(name)
    steps = len(reference_run.metrics(name))
    newest = sorted((folder / "checkpoints").iterdir())[-1]
    assert json.loads((newest / "state.json").read_text())["step"] == steps, reference_run.log(name)
    assert json.loads((folder / "outcome.json").read_text())["state"] == "stopped"
    assert (folder / "adapter" / "adapter_model.safetensors").exists()
    assert "the same command resumes the run" in reference_run.log(name)
    assert not [line for line in reference_run.log(name).splitlines() if line.startswith("E")], "a stop is no error"


def test_recorded_samples_replay_to_the_same_losses(reference_run):
    first = reference_run.metrics("reference")[0]
    out = reference_run.folder / "replayed"
    samples = reference_run.runs("reference") / "samples" / "step-000001.jsonl"
    reference_run.dapd("replay", "--config", reference_run.config, "--batch", samples, "--output", out)
    replayed = json.loads((out / "objective.json").read_text())
    for name, term in first["terms"].items():
        error = abs(term["value"] - replayed["terms"][name]["value"])
        print(f"{name}: run {term['value']:.6f}, replay differs by {error:.1e}")
        assert error < 1e-5


@pytest.mark.parametrize("payload", ["logits", "top_k"])
def test_every_payload_gives_the_same_losses(payload, reference_run):
    settings = {"teacher.payload": payload, "trainer.steps": 2, "teacher.top_k": 100000 if payload == "top_k" else 64}
    vocabulary = json.loads((reference_run.model / "config.json").read_text())["vocab_size"]
    if payload == "top_k":
        settings["teacher.top_k"] = vocabulary
    reference_run.run(f"payload-{payload}", **settings)
    for ours, expected in zip(reference_run.metrics(f"payload-{payload}"), reference_run.metrics("reference")[:2], strict=True):
        error = abs(ours["loss"] - expected["loss"])
        print(f"{payload}: step {ours['step']}: loss differs by {error:.1e}")
        assert error < 1e-4


def test_peft_loads_the_adapter_and_gives_our_logprobs(reference_run):
    from safetensors.torch import load_file

    base = transformers.AutoModelForCausalLM.from_pretrained(reference_run.model, dtype=torch.float32)
    model = PeftModel.from_pretrained(base, reference_run.runs("reference") / "adapter").eval()
    ids = torch.randint(0, base.config.vocab_size, (1, 60), generator=torch.Generator().manual_seed(1))
    rows = reference_run.folder / "score.jsonl"
    rows.write_text(json.dumps({"id": "a", "input_ids": ids[0].tolist()}) + "\n")
    out = reference_run.folder / "score.safetensors"
    reference_run.dapd("score", "--model", reference_run.model, "--adapter", reference_run.runs("reference") / "adapter",
                       "--input", rows, "--output", out)
    with torch.no_grad():
        expected = torch.log_softmax(model(ids).logits[0, :-1], -1).gather(1, ids[0, 1:, None])[:, 0]
    error = (load_file(out)["a.logprobs"] - expected).abs().max().item()
    print(f"log-probabilities of the trained adapter: max abs error {error:.1e}")
    assert error < 2e-4


def read_events(path):
    """Returns (tag, step, value) from a TensorBoard file, with an independent reader of the format."""
    from google.protobuf.internal.decoder import _DecodeVarint

    def fields(data):
        position = 0
        while position < len(data):
            key, position = _DecodeVarint(data, position)
            if key & 7 == 0:
                value, position = _DecodeVarint(data, position)
            else:
                size = {1: 8, 5: 4}.get(key & 7)
                if size is None:
                    size, position = _DecodeVarint(data, position)
                value, position = data[position : position + size], position + size
            yield key >> 3, value

    data, scalars, position = path.read_bytes(), [], 0
    while position < len(data):
        (length,) = struct.unpack_from("<Q", data, position)
        event = dict(fields(data[position + 12 : position + 12 + length]))
        position += 12 + length + 4
        if 5 in event:
            value = dict(fields(dict(fields(event[5]))[1]))
            scalars.append((value[1].decode(), event.get(2, 0), struct.unpack("<f", value[2])[0]))
    return scalars


def test_tensorboard_holds_what_metrics_jsonl_holds(reference_run):
    events = read_events(next(reference_run.runs("reference").glob("events.out.tfevents.*")))
    losses = {step: value for tag, step, value in events if tag == "loss/total"}
    for line in reference_run.metrics("reference"):
        assert losses[line["step"]] == pytest.approx(line["loss"], rel=1e-6)


def test_an_adapter_of_a_folder_names_the_base_that_others_have(workspace):
    workspace.run("named", **{"trainer.steps": 1, "model.name": "org/base@v1"})
    folder = workspace.runs("named") / "adapter"
    config = json.loads((folder / "adapter_config.json").read_text())
    assert (config["base_model_name_or_path"], config["revision"]) == ("org/base", "v1")
    assert yaml.safe_load((folder / "README.md").read_text().split("---\n")[1])["base_model"] == "org/base"


def test_figures_of_other_held_out_problems_stand_beside_none(workspace):
    other = workspace.folder / "other_held_out.jsonl"
    workspace.dapd("problems", "--task", "unit_conversion", "--split", "held_out", "--count", 4, "--output", other)
    settings = {"evaluation.kl_problems": 0, "evaluation.path": workspace.folder / "held_out.jsonl"}
    workspace.run("other-problems", **settings, **{"trainer.steps": 1})
    shown = workspace.run("other-problems", **{**settings, "trainer.steps": 2, "evaluation.path": other}).stderr
    assert "are of other held-out problems" in shown and re.search(r"^  accuracy +- +\d", shown, re.M)
    folder = workspace.runs("other-problems")
    assert set(json.loads((folder / "summary.json").read_text())["evaluation"]) == {"after"}
    assert re.search(r"^\| accuracy \| - \| \d", (folder / "adapter/README.md").read_text(), re.M)
    (run,) = json.loads(workspace.dapd("runs", "list", folder, "--json").stdout)
    assert run["accuracy_before"] is None and run["accuracy_after"] is not None


def test_every_adapter_has_a_card_with_what_it_was_trained_on(workspace):
    """The hub reads the header; settings, digests and held-out figures must equal the run's."""
    hostile = "`{problem}`\n---\n```\n<!-- dapd: end of training --> \u202e"
    workspace.run("carded", **{"trainer.steps": 2, "checkpoint.interval": 1, "evaluation.interval": 1, "evaluation.kl_problems": 2,
                               "evaluation.path": workspace.folder / "held_out.jsonl", "prompts.none": json.dumps(hostile)})
    folder = workspace.runs("carded")
    summary = json.loads((folder / "summary.json").read_text())
    state = json.loads((folder / "checkpoints/step-000002/state.json").read_text())
    workspace.dapd("adapter", "merge", "--model", workspace.model, "--adapter", folder / "adapter", "--output", workspace.folder / "carded-merged")
    cards = {where: path.read_text() for where, path in {
        "adapter": folder / "adapter/README.md", "best": folder / "adapter-best/README.md",
        "checkpoint": folder / "checkpoints/step-000001/adapter/README.md", "merged": workspace.folder / "carded-merged/README.md"}.items()}
    for where, card in cards.items():
        header = yaml.safe_load(card.split("---\n")[1])
        assert header["library_name"] == ("transformers" if where == "merged" else "peft") and "dapd" in header["tags"]
        assert "base_model" not in header, "a folder is no id"
        assert state["data_digest"] in card and card.rstrip().endswith("<!-- dapd: end of training -->")
        settings = json.loads(card.split("json\n")[1].rsplit("\n}\n", 1)[0] + "\n}")
        assert settings == state["settings"]
    after = summary["evaluation"]["after"]["accuracy"]
    assert f"{100 * after['mean']:.1f} % \\[{100 * after['low']:.1f}, {100 * after['high']:.1f}\\]" in cards["adapter"]
    assert "* Steps: 2\n" in cards["adapter"] and "* Steps: 1\n" in cards["checkpoint"]
    assert cards["merged"].split("<!-- dapd: training -->")[1] == cards["adapter"].split("<!-- dapd: training -->")[1]
