"""`dapd serve` with the clients that people use: the openai package and lm-eval."""

import contextlib
import json
import os
import signal
import ssl
import subprocess
import sys

import openai
import peft
import pytest
import torch
import transformers
from service_process import fetch, running

from certificates import make
from test_services import promtool, start
from workspace import BIN, wait_for

QUESTION = [{"role": "user", "content": "What is 2 + 2?"}]


@contextlib.contextmanager
def serving(workspace, tmp_path, *arguments, name="tiny"):
    """Yields the port of a server that can answer."""
    port_file, log = tmp_path / "port", tmp_path / "serve.log"
    with open(log, "w") as errors:
        process = subprocess.Popen([BIN / "dapd", "serve", "--model", workspace.model, "--name", name, "--listen", "127.0.0.1:0",
                                    "--port-file", port_file, *map(str, arguments)], stderr=errors)
    try:
        wait_for(lambda: port_file.exists() or process.poll() is not None, what="a port")
        assert process.poll() is None, log.read_text()
        yield int(port_file.read_text())
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def client_of(port, **more):
    return openai.OpenAI(**{"base_url": f"http://127.0.0.1:{port}/v1", "api_key": "none", "max_retries": 0, **more})


@pytest.fixture(scope="module")
def port(workspace, tmp_path_factory):
    with serving(workspace, tmp_path_factory.mktemp("serve"), "--device", "cpu", "--slots", 4) as port:
        yield port


@pytest.fixture(scope="module")
def client(port):
    return client_of(port)


def ask(client, **more):
    return client.chat.completions.create(**{"model": "tiny", "messages": QUESTION, "max_tokens": 12, "seed": 42, **more})


def complete(client, prompt, **more):
    return client.completions.create(**{"model": "tiny", "prompt": prompt, "max_tokens": 12, "seed": 42, **more})


@pytest.mark.parametrize("temperature", [0, 1])
def test_answers_are_those_of_generate(temperature, workspace, client, tmp_path):
    prompts, answers = tmp_path / "prompts.jsonl", tmp_path / "answers.jsonl"
    prompts.write_text(json.dumps({"id": "one", "messages": QUESTION}) + "\n")
    workspace.dapd("generate", "--model", workspace.model, "--device", "cpu", "--input", prompts, "--output", answers, "--temperature", temperature,
                   "--seed", 42, "--max-new-tokens", 12)
    expected = json.loads(answers.read_text())
    answer = ask(client, temperature=temperature, logprobs=True)
    choice = answer.choices[0]
    assert choice.message.content == expected["text"]
    assert choice.finish_reason == {"eos": "stop", "length": "length"}[expected["finish_reason"]]
    logprobs = [token.logprob for token in choice.logprobs.content]
    # The end token is no part of the answer.
    difference = max(abs(ours - theirs) for ours, theirs in zip(logprobs, expected["logprobs"]))
    print(f"log-probabilities differ by at most {difference:.1e}")
    assert difference == 0 and len(logprobs) >= len(expected["logprobs"]) - 1
    assert answer.usage.completion_tokens == len(expected["ids"])
    assert answer.system_fingerprint == "base"


@pytest.mark.parametrize("messages", [
    QUESTION,
    [{"role": "system", "content": "Be brief."}, *QUESTION, {"role": "assistant", "content": "4"}, {"role": "user", "content": [
        {"type": "text", "text": "Sure? "}, {"type": "text", "text": "\u00e9\u4e16"}]}]])
def test_a_chat_is_the_prompt_that_transformers_renders(messages, workspace, client):
    tokenizer = transformers.AutoTokenizer.from_pretrained(workspace.model)
    plain = [{**message, "content": "".join(part["text"] for part in message["content"]) if isinstance(message["content"], list)
              else message["content"]} for message in messages]
    text = tokenizer.apply_chat_template(plain, tokenize=False, add_generation_prompt=True)
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    chat, same = ask(client, messages=messages), complete(client, ids)
    assert chat.usage.prompt_tokens == len(ids)
    assert chat.choices[0].message.content == same.choices[0].text
    assert complete(client, text).choices[0].text == same.choices[0].text


def test_a_stream_has_the_same_text(client):
    whole = ask(client, n=2, logprobs=True)
    texts, ends, usage, logprobs = ["", ""], [None, None], None, [[], []]
    for chunk in ask(client, n=2, logprobs=True, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            ends[choice.index] = choice.finish_reason or ends[choice.index]
            logprobs[choice.index] += [token.logprob for token in choice.logprobs.content] if choice.logprobs else []
    assert texts == [choice.message.content for choice in whole.choices]
    assert ends == [choice.finish_reason for choice in whole.choices]
    assert logprobs == [[token.logprob for token in choice.logprobs.content] for choice in whole.choices]
    assert usage == whole.usage
    pieces = list(complete(client, "What", stream=True))
    assert "".join(piece.choices[0].text for piece in pieces) == complete(client, "What").choices[0].text


def test_a_seed_decides_the_text(client):
    first = [choice.message.content for choice in ask(client, n=3, max_tokens=20).choices]
    assert [choice.message.content for choice in ask(client, n=3, max_tokens=20).choices] == first
    assert len(set(first)) == 3
    assert [choice.message.content for choice in ask(client, n=3, max_tokens=20, seed=43).choices] != first
    assert ask(client, seed=None, max_tokens=20).choices[0].message.content != ask(client, seed=None, max_tokens=20).choices[0].message.content


def test_prompts_are_answered_in_their_order(client):
    many = complete(client, ["One", "Two"], n=2, echo=True)
    assert [choice.index for choice in many.choices] == [0, 1, 2, 3]
    assert [choice.text[:3] for choice in many.choices] == ["One", "One", "Two", "Two"]
    assert many.choices[0].text == complete(client, "One", echo=True).choices[0].text


def scores_of(model, ids):
    """Returns the log-probability of each token behind the first, the most probable tokens and their log-probabilities."""
    with torch.no_grad():
        logprobs = torch.log_softmax(model(torch.tensor([ids])).logits[0, :-1].float(), -1)
    best = logprobs.max(-1)
    return logprobs.gather(1, torch.tensor(ids[1:]).unsqueeze(1)).squeeze(1).tolist(), best.indices.tolist(), best.values.tolist()


def compare_scores(choice, tokenizer, model, ids):
    """Returns the largest error of a completion's log-probabilities of the prompt `ids`."""
    found = choice.logprobs
    expected, best, best_values = scores_of(model, ids)
    assert found.token_logprobs[0] is None and found.top_logprobs[0] is None
    assert found.tokens[:len(ids)] == [tokenizer.decode([each]) for each in ids]
    error = 0
    for place, (value, best_id, best_value) in enumerate(zip(expected, best, best_values), 1):
        top = found.top_logprobs[place]
        assert max(top.values()) == top[tokenizer.decode([best_id])]
        error = max(error, abs(found.token_logprobs[place] - value), abs(max(top.values()) - best_value))
    return error


def check_offsets(choice):
    """Tests that each token that is whole characters stands in the text at its offset, which counts characters as Python does."""
    for token, offset in zip(choice.logprobs.tokens, choice.logprobs.text_offset):
        assert "\ufffd" in token or choice.text[offset:].startswith(token), (token, offset)


# The long prompt takes several passes; the three of a request are scored side by side.
def test_prompts_are_scored_as_by_transformers(workspace, client):
    tokenizer = transformers.AutoTokenizer.from_pretrained(workspace.model)
    model = transformers.AutoModelForCausalLM.from_pretrained(workspace.model, dtype=torch.float32).eval()
    texts = ["What is 2 + 2? \u00c9t\u00e9 \u4e16\u754c \U0001f600 is 4.", "A", "Count: " + ", ".join(str(i) for i in range(300))]
    prompts = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    assert len(prompts[2]) > 600
    error = 0
    for max_tokens in (0, 1):
        answer = client.completions.create(model="tiny", prompt=prompts, max_tokens=max_tokens, temperature=0, logprobs=1, echo=True)
        assert [choice.index for choice in answer.choices] == [0, 1, 2]
        for choice, text, ids in zip(answer.choices, texts, prompts):
            assert choice.text.startswith(text) and len(choice.logprobs.tokens) == len(ids) + max_tokens
            error = max(error, compare_scores(choice, tokenizer, model, ids))
            check_offsets(choice)
            if max_tokens == 1:
                (sampled,), (top,) = choice.logprobs.token_logprobs[len(ids):], choice.logprobs.top_logprobs[len(ids):]
                assert top == {choice.logprobs.tokens[-1]: sampled}
        assert answer.usage.completion_tokens == 3 * max_tokens
    print(f"log-probabilities of {sum(map(len, prompts))} tokens differ from transformers' by at most {error:.1e}")
    assert error < 1e-4


def test_an_answer_ends_before_a_stop(client):
    whole = complete(client, "What", max_tokens=40).choices[0].text
    stop = whole[5:7]
    cut = complete(client, "What", max_tokens=40, stop=[stop, "never said"])
    assert cut.choices[0].text == whole[:whole.index(stop)]
    assert cut.choices[0].finish_reason == "stop" and cut.usage.completion_tokens < 40


def test_the_model_is_listed(client):
    assert [model.id for model in client.models.list()] == ["tiny"]


@pytest.mark.parametrize("error, parameter, arguments", [
    (openai.BadRequestError, "frequency_penalty", {"frequency_penalty": 0.5}),
    (openai.BadRequestError, "top_logprobs", {"logprobs": True, "top_logprobs": 2}),
    (openai.BadRequestError, "messages", {"max_tokens": 10**6}),
    (openai.BadRequestError, "unheard_of", {"extra_body": {"unheard_of": 1}}),
    (openai.NotFoundError, None, {"model": "other"})])
def test_an_error_names_its_parameter(error, parameter, arguments, client):
    with pytest.raises(error) as raised:
        ask(client, **arguments)
    assert raised.value.param == parameter
    print(raised.value.message)


def test_a_client_that_leaves_frees_its_slot(port, client):
    stream = ask(client, max_tokens=3000, stream=True)
    next(iter(stream))
    stream.close()
    name = 'dapd_serve_requests_total{run="tiny",endpoint="chat",status="499"}'
    wait_for(lambda: name in fetch(f"http://127.0.0.1:{port}/metrics")[1], what="a cancelled request")
    assert 'dapd_serve_running_requests{run="tiny"} 0' in fetch(f"http://127.0.0.1:{port}/metrics")[1]
    promtool(fetch(f"http://127.0.0.1:{port}/metrics")[1])


def test_a_certificate_and_a_token_protect_it(workspace, tmp_path):
    make(tmp_path / "certificates", "rollout")
    folder = tmp_path / "certificates/rollout"
    token = tmp_path / "token"
    token.write_text("t" * 40)
    token.chmod(0o600)
    with serving(workspace, tmp_path, "--device", "cpu", "--token-file", token, "--certificate", folder / "tls.crt",
                 "--private-key", folder / "tls.key") as port:
        context = ssl.create_default_context(cafile=folder / "ca.crt")
        for key, outcome in (("t" * 40, "tiny"), ("u" * 40, openai.AuthenticationError)):
            client = client_of(port, base_url=f"https://127.0.0.1:{port}/v1", api_key=key, http_client=openai.DefaultHttpxClient(verify=context))
            if isinstance(outcome, str):
                assert ask(client).model == outcome
            else:
                with pytest.raises(outcome):
                    ask(client)


def test_a_wrong_certificate_is_named_by_its_option(workspace, tmp_path):
    nonsense = tmp_path / "nonsense"
    nonsense.write_text("nothing")
    result = workspace.dapd("serve", "--model", workspace.model, "--listen", "127.0.0.1:0", "--certificate", nonsense, "--private-key", nonsense,
                            check=False)
    assert result.returncode == 3 and "--certificate: " in result.stderr and "security." not in result.stderr, result.stderr


def test_an_open_address_is_refused(workspace):
    result = workspace.dapd("serve", "--model", workspace.model, "--listen", "0.0.0.0:0", check=False)
    assert result.returncode == 3 and "--insecure" in result.stderr and result.stderr.count("\n") == 1, result.stderr


def test_it_answers_with_the_current_policy_of_a_run(workspace, tmp_path):
    with running("dapd-rollout", workspace, {}) as rollout, running("dapd-teacher", workspace, {}) as teacher, \
            serving(workspace, tmp_path, "--workers", f"127.0.0.1:{rollout.port}", "--peer-timeout", 2) as port:
        with pytest.raises(openai.InternalServerError, match="has not given it a policy yet"):
            ask(client_of(port, timeout=120), max_tokens=2)
        trainer = start("dapd-trainer", workspace, **{
            "run.name": "served", "rollout.addresses": f"[127.0.0.1:{rollout.port}]", "teacher.addresses": f"[127.0.0.1:{teacher.port}]",
            "trainer.listen": "127.0.0.1:0", "trainer.steps": 400, "trainer.schedule_steps": 400})
        try:
            versions = set()

            def sees_two_versions():
                with contextlib.suppress(openai.InternalServerError):
                    versions.add(ask(client_of(port), max_tokens=2).system_fingerprint)
                return len({version for version in versions if version.startswith("policy-")}) > 1

            wait_for(sees_two_versions, seconds=240, what="a second policy")
            assert trainer.poll() is None
        finally:
            trainer.send_signal(signal.SIGTERM)
            trainer.communicate(timeout=60)
        # The worker still serves the last policy, which the trainer has saved.
        tokenizer = transformers.AutoTokenizer.from_pretrained(workspace.model)
        ids = tokenizer("What is 2 + 2? The sum is 4.", add_special_tokens=False)["input_ids"]
        scored = client_of(port).completions.create(model="tiny", prompt=ids, max_tokens=0, logprobs=1, echo=True)
        step = int(scored.system_fingerprint.split("-")[1])
        adapter = max((workspace.folder / "runs/served/checkpoints").glob("step-*"))
        assert int(adapter.name.split("-")[1]) == step
        base = transformers.AutoModelForCausalLM.from_pretrained(workspace.model, dtype=torch.float32)
        model = peft.PeftModel.from_pretrained(base, adapter / "adapter").eval()
        error = compare_scores(scored.choices[0], tokenizer, model, ids)
        print(f"log-probabilities of policy {step} differ from peft's by at most {error:.1e}")
        assert error < 1e-4


EVALUATE = """
import json, sys
import lm_eval
from lm_eval.tasks import TaskManager
folder, port = sys.argv[1:]
texts = {}
for model, path, more in (("local-completions", "completions", {}), ("local-chat-completions", "chat/completions", {"apply_chat_template": True})):
    arguments = {"model": "tiny", "base_url": f"http://127.0.0.1:{port}/v1/{path}", "num_concurrent": 2, "max_retries": 1,
                 "tokenized_requests": False, "tokenizer_backend": "none"}
    result = lm_eval.simple_evaluate(model=model, model_args=arguments, tasks=["sums"], bootstrap_iters=0, log_samples=True,
                                     task_manager=TaskManager(include_path=folder, include_defaults=False), **more)
    samples = sorted(result["samples"]["sums"], key=lambda sample: sample["doc_id"])
    texts[path] = [sample["resps"][0][0] for sample in samples]
    texts[path + " score"] = result["results"]["sums"]["exact_match,none"]
print(json.dumps(texts))
"""

TASK = """
task: sums
dataset_path: json
dataset_kwargs: {{data_files: {{test: {rows}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["zzz"], max_gen_toks: 8, do_sample: false}}
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
"""


def evaluate(program, folder, *arguments):
    """Returns what a program prints that runs lm-eval on the task in `folder`."""
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "hf")}
    result = subprocess.run([sys.executable, "-c", program, folder, *arguments], capture_output=True, text=True, timeout=300, cwd=folder,
                            env={**os.environ, **offline})
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def test_lm_eval_evaluates_it(port, client, tmp_path):
    questions = [f"What is {i} + {i}?" for i in range(3)]
    # The second answer is right by construction.
    answers = ["none", complete(client, questions[1], max_tokens=8, temperature=0).choices[0].text, "none"]
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"question": question, "answer": answer}) + "\n" for question, answer in zip(questions, answers)))
    (tmp_path / "sums.yaml").write_text(TASK.format(rows=rows))
    texts = evaluate(EVALUATE, tmp_path, str(port))
    assert texts["completions"] == [complete(client, question, max_tokens=8, temperature=0).choices[0].text for question in questions]
    assert texts["chat/completions"] == [
        ask(client, messages=[{"role": "user", "content": question}], max_tokens=8, temperature=0).choices[0].message.content
        for question in questions]
    assert texts["completions score"] == pytest.approx(1 / 3)


CHOOSE = """
import json, sys
import lm_eval
from lm_eval.tasks import TaskManager
folder, port, path = sys.argv[1:]
found = {}
for model, arguments in (("local-completions", {"model": "tiny", "base_url": f"http://127.0.0.1:{port}/v1/completions", "tokenizer": path,
                                                "num_concurrent": 2, "max_retries": 1}),
                         ("hf", {"pretrained": path, "dtype": "float32", "device": "cpu"})):
    result = lm_eval.simple_evaluate(model=model, model_args=arguments, tasks=["choices"], bootstrap_iters=0, log_samples=True, batch_size=3,
                                     task_manager=TaskManager(include_path=folder, include_defaults=False))
    samples = sorted(result["samples"]["choices"], key=lambda sample: sample["doc_id"])
    found[model] = {"answers": [response[0] for sample in samples for response in sample["resps"]],
                    "acc": result["results"]["choices"]["acc,none"], "acc_norm": result["results"]["choices"]["acc_norm,none"]}
print(json.dumps(found))
"""

CHOICES = """
task: choices
dataset_path: json
dataset_kwargs: {{data_files: {{test: {rows}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_target: label
doc_to_choice: "{{{{choices}}}}"
target_delimiter: ""
metric_list: [{{metric: acc}}, {{metric: acc_norm}}]
"""


def test_lm_eval_finds_the_log_likelihoods_of_transformers(port, workspace, client, tmp_path):
    rows = []
    for i in range(4):
        question = f"What is {i} + {i}? The answer is"
        # One of the choices is what the model would say.
        said = complete(client, question, max_tokens=1, temperature=0).choices[0].text or "."
        rows.append({"question": question, "choices": [f" {2 * i}.", said, f" {i} and a longer text"], "label": i % 3})
    data = tmp_path / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "choices.yaml").write_text(CHOICES.format(rows=data))
    found = evaluate(CHOOSE, tmp_path, str(port), str(workspace.model))
    ours, theirs = found["local-completions"], found["hf"]
    assert len(ours["answers"]) == len(theirs["answers"]) == 12
    error = max(abs(a - b) for (a, _), (b, _) in zip(ours["answers"], theirs["answers"]))
    greedy = [is_greedy for _, is_greedy in ours["answers"]]
    print(f"log-likelihoods differ from transformers' by at most {error:.1e}; {sum(greedy)} of {len(greedy)} are greedy")
    assert error < 1e-4
    assert greedy == [is_greedy for _, is_greedy in theirs["answers"]] and any(greedy) and not all(greedy)
    assert (ours["acc"], ours["acc_norm"]) == (theirs["acc"], theirs["acc_norm"])
