"""Tests the wheel's module dapd with the real programs that the wheel brings: runs are started, followed, stopped, lost and found again."""

import ast
import json
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/fakes"))
import certificates  # noqa: E402
from workspace import wait_for  # noqa: E402

# The tiny model trains for a few seconds; a test that has to meet the run in the middle raises `steps`.
CONFIG = """
model: {{path: {model}, precision: float32, device: cpu}}
lora: {{rank: 4, alpha: 8}}
data: {{path: {folder}/train.jsonl}}
objective: {{max_reference_tokens: 48}}
rollout: {{max_new_tokens: 16, slots: 4}}
trainer: {{batch_size: 6, micro_batch_size: 2, steps: 3, schedule_steps: 3000, learning_rate: 1.0e-3}}
evaluation: {{path: {folder}/held_out.jsonl, interval: 2, kl_problems: 2}}
run: {{name: run, output_dir: runs, num_threads: 1}}
metrics: {{rollout_listen: "127.0.0.1:0", teacher_listen: "127.0.0.1:0", trainer_listen: "127.0.0.1:0"}}
"""


class Python:
    """Runs scripts in the wheel's environment, in a folder with config.yaml and its problems."""

    def __init__(self, environment, folder):
        self.python, self.folder = environment / "bin/python", folder
        self.run("""
            import dapd
            dapd.problems("unit_conversion", "train.jsonl", count=60)
            dapd.problems("unit_conversion", "held_out.jsonl", split="held_out", count=4)
            print(dapd.tiny_model)
            """)
        (folder / "config.yaml").write_text(CONFIG.format(model=self.said.strip(), folder=folder))

    def run(self, code, **variables):
        """Returns what the script printed; `said` keeps it."""
        result = subprocess.run([self.python, "-c", textwrap.dedent(code)], cwd=self.folder, capture_output=True, text=True, timeout=240,
                                env={**os.environ, "PYTHONPYCACHEPREFIX": str(self.folder / "pycache"), **variables})
        assert result.returncode == 0, result.stderr
        self.said = result.stdout
        return result.stdout

    def error(self, code):
        """Returns the class, exit code and message of the CommandError that ends a script."""
        code = textwrap.indent(textwrap.dedent(code), "    ")
        return json.loads(self.run(f"""
import json, dapd
try:
{code}
except dapd.CommandError as error:
    print(json.dumps([type(error).__name__, error.exit_code, error.message]))
"""))


@pytest.fixture(scope="module")
def python(wheel_environment, tmp_path_factory):
    python = Python(wheel_environment, tmp_path_factory.mktemp("module"))
    yield python
    # A test that failed may have left runs.
    python.run("import dapd; [run.process.stop(at_once=True) for run in dapd.runs() if run.process]")


@pytest.fixture(scope="module")
def finished(python):
    """Returns the folder of a run of three steps that the module has started and waited for."""
    python.run("""
        import dapd
        run = dapd.run("config.yaml", set={"run.name": "finished"})
        assert run.wait(timeout=200).state == "finished"
        """)
    return python.folder / "runs/finished"


def test_its_types_are_strict():
    result = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--cache-dir", ROOT / "build/mypy", ROOT / "deploy/python/dapd"], capture_output=True,
                            text=True)
    assert result.returncode == 0, result.stdout


def test_what_it_offers_has_a_docstring(python):
    lacking = python.run("""
        import dapd, inspect
        for name in dapd.__all__:
            thing = getattr(dapd, name)
            if callable(thing) and not inspect.getdoc(thing):
                print(name)
            if inspect.isclass(thing) and not issubclass(thing, Exception):
                print(*[f"{name}.{key}" for key, value in vars(thing).items()
                        if not key.startswith("_") and (callable(value) or isinstance(value, property)) and not inspect.getdoc(value)])
        """)
    assert lacking.split() == []


def test_a_runs_files_are_tables(python, finished):
    python.run("""
        import dapd, json, pathlib
        run = dapd.Run("runs/finished")
        assert [type(table).__name__ for table in (run.metrics, run.answers, run.evaluations, run.held_out_answers, run.samples)] == ["Table"] * 5
        lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
        assert run.metrics["step"].to_pylist() == [1, 2, 3]
        assert run.metrics["loss"].to_pylist() == [line["loss"] for line in lines]
        term = next(iter(lines[0]["terms"]))
        assert run.metrics[f"terms/{term}/value"].to_pylist() == [line["terms"][term]["value"] for line in lines]
        assert run.evaluations["when"].to_pylist() == ["before", "step-000002", "after"]
        assert run.evaluations["policy_version"].to_pylist() == [0, 2, 3] and run.evaluations["problems"].to_pylist() == [4, 4, 4]
        assert set(run.held_out_answers["when"].to_pylist()) == {"before", "step-000002", "after"}
        assert run.answers["step"].to_pylist() == sorted(run.answers["step"].to_pylist()) and set(run.answers["step"].to_pylist()) == {1, 2, 3}
        assert run.samples.num_rows == 18 and run.samples_of(2)["step"].to_pylist() == [2] * 6 and run.samples_of(9).num_rows == 0
        """)


def test_a_line_that_is_being_written_is_left_out(python, finished, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/metrics.jsonl").write_text('{"step": 1, "loss": 2}\n{"step": 2, "loss": 1.5}\n{"step": 3, "lo')
    said = python.run(f"import dapd; print(dapd.Run({str(tmp_path / 'run')!r}).metrics.to_pydict(), dapd.Run({str(tmp_path / 'run')!r}).answers.num_rows)")
    assert said == "{'step': [1, 2], 'loss': [2.0, 1.5]} 0\n"


def test_a_finished_run_says_how_it_ended_and_what_it_was(python, finished):
    # The process that asks has another environment than the run.
    python.run("""
        import dapd, pathlib
        (run,) = [run for run in dapd.runs() if run.name == "finished"]
        assert run.folder == pathlib.Path("runs/finished").absolute()
        assert (run.outcome.state, run.outcome.exit_code, run.outcome.message) == ("finished", 0, "") and run.outcome.time > 1.7e9
        assert (run.progress.state, run.progress.step, run.progress.steps) == ("finished", 3, 3) and not run.is_running()
        assert str(run.progress).startswith("finished: step 3 of 3, loss ")
        assert run.config["trainer"]["steps"] == 3 and run.config["objective"]["component_clip"] == 0.05 and run.config["run"]["name"] == "finished"
        assert (run.adapter / "adapter_model.safetensors").stat().st_size > 1000 and (run.best_adapter / "adapter_config.json").exists()
        assert run.wait(timeout=1).state == "finished" and run.stop().state == "finished"
        assert "starting the trainer" in run.log
        """, DAPD_TRAINER__STEPS="7")


def test_a_run_that_a_shell_started_has_a_handle_as_well(python):
    dapd = python.python.parent / "dapd"
    subprocess.run([dapd, "run", "config.yaml", "--set", "run.name=by-hand", "--set", "trainer.steps=1"], cwd=python.folder, check=True, capture_output=True)
    python.run("""
        import dapd
        run = dapd.Run("runs/by-hand")
        assert run.process is None and run.address is None and run.log == "" and run.wait().state == "finished" and run.metrics.num_rows == 1
        for call in (run.status, run.stop):
            try:
                call()
            except ValueError as error:
                assert "was not started by dapd.run()" in str(error)
            else:
                raise AssertionError(call)
        """)


def test_a_run_is_followed_stopped_and_goes_on(python):
    python.run("""
        import dapd, time
        settings = {"run.name": "stopped", "trainer.steps": 1000, "evaluation.interval": 0}
        run = dapd.run("config.yaml", set=settings)
        assert run.address and run.page.startswith("http://127.0.0.1:")
        while run.progress.step < 2:
            assert run.progress.state == "running"
            time.sleep(0.1)
        progress = run.progress
        assert progress.steps == 1000 and progress.phase and progress.seconds_left > 0, progress
        assert dapd.status(run.address)["run_name"] == "stopped" and run.status()["total_steps"] == 1000
        try:
            run.wait(timeout=0.1)
        except TimeoutError as error:
            assert "still runs after 0.1 s" in str(error)
        # The same call finds it; another one for the folder is refused.
        assert dapd.run("config.yaml", set=settings).process == run.process
        try:
            dapd.run("config.yaml", set={**settings, "trainer.steps": 5})
        except dapd.UnavailableError as error:
            assert f"process {run.process.pid} trains in {run.folder}" in error.message and "dapd.Run(" in error.message
        else:
            raise AssertionError("two runs in a folder")
        outcome = run.stop(timeout=60)
        assert (outcome.state, outcome.exit_code) == ("stopped", 130) and run.progress.state == "interrupted", outcome
        step = run.progress.step
        assert run.metrics.num_rows == step
        again = dapd.run("config.yaml", set={**settings, "trainer.steps": step + 1})
        assert again.wait(timeout=100).state == "finished" and again.metrics["step"].to_pylist() == list(range(1, step + 2))
        """)


def test_a_run_that_is_stopped_at_once_saves_nothing_and_is_told_as_stopped(python):
    python.run("""
        import dapd, time
        run = dapd.run("config.yaml", set={"run.name": "at-once", "trainer.steps": 1000, "evaluation.interval": 0})
        while run.progress.step < 2:
            time.sleep(0.1)
        started = time.monotonic()
        assert run.stop(timeout=60, at_once=True).state == "stopped" and time.monotonic() - started < 20
        assert run.progress.state == "interrupted"
        """)


def test_a_killed_run_is_told_as_one(python):
    said = python.error("""
        import os, signal, time
        run = dapd.run("config.yaml", set={"run.name": "killed", "trainer.steps": 1000})
        os.killpg(run.process.pid, signal.SIGKILL)
        run.wait(timeout=60)
        """)
    assert said == ["CommandError", 137, f"the processes of {python.folder}/runs/killed were killed; started again in the same way, the run resumes"]


def test_a_run_outlives_who_started_it_and_is_found_again(python):
    python.run("""
        import dapd
        print(dapd.run("config.yaml", set={"run.name": "left", "trainer.steps": 1000, "evaluation.interval": 0}).process.pid)
        """)
    pid = int(python.said)
    assert os.getsid(pid) == pid != os.getsid(0)
    python.run("""
        import dapd, time
        (run,) = [run for run in dapd.runs() if run.is_running()]
        assert run.name == "left"
        while run.progress.step < 2:
            time.sleep(0.1)
        assert run.stop(timeout=60).state == "stopped" and not run.process.is_alive()
        """)


def test_a_process_number_that_another_got_is_not_the_run(python, finished):
    """After a restart of the machine, for example, the process id belongs to another process, which gets no signal."""
    record = finished / "logs/dapd-run.json"
    kept = record.read_text()
    other = subprocess.Popen(["sleep", "100"])
    try:
        record.write_text(json.dumps({**json.loads(kept), "pid": other.pid}))
        python.run('import dapd; run = dapd.Run("runs/finished"); assert not run.process.is_alive() and run.stop().state == "finished"')
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()
        record.write_text(kept)


def test_the_run_goes_on_when_a_notebooks_kernel_is_restarted(python):
    """A real kernel is restarted at once, as the notebook's button does."""
    (python.folder / "kernel.py").write_text(textwrap.dedent("""
        import sys
        from jupyter_client.manager import start_new_kernel

        manager, client = start_new_kernel()

        def execute(code):
            said = []
            reply = client.execute_interactive(code, timeout=120, output_hook=lambda message: said.append(message["content"].get("text", "")))
            assert reply["content"]["status"] == "ok", reply["content"]
            return "".join(said)

        code = 'import dapd; run = dapd.run("config.yaml", set={"run.name": "kernel", "trainer.steps": 1000, "evaluation.interval": 0}); print(run.process.pid)'
        before = execute(code)
        manager.restart_kernel(now=True)
        client.wait_for_ready(timeout=60)
        # The handle, and the cell once more.
        assert execute('import dapd; run = dapd.Run("runs/kernel"); print(run.process.pid)') == before and execute(code) == before
        print(execute('import time\\nwhile run.progress.step < 3: time.sleep(0.1)\\nprint(run.progress.state)\\nprint(run.stop(timeout=60).state)'))
        manager.shutdown_kernel(now=True)
        """))
    result = subprocess.run([python.python, "kernel.py"], cwd=python.folder, capture_output=True, text=True, timeout=240,
                            env={**os.environ, "JUPYTER_RUNTIME_DIR": str(python.folder / "jupyter"), "IPYTHONDIR": str(python.folder / "ipython")})
    assert result.returncode == 0 and result.stdout.split() == ["running", "stopped"], result


@pytest.mark.parametrize("call, expected", [
    ('dapd.run("config.yaml", set={"trainer.stepz": 3})', ["ConfigurationError", 3, "unknown key trainer.stepz"]),
    ('dapd.run("laboratoy")', ["ConfigurationError", 3, "laboratoy is neither a file nor a configuration of"]),
    ('dapd.run("no/such.yaml")', ["ConfigurationError", 3, "no/such.yaml"]),
    ('dapd.run("config.yaml", set={"run.name": "finished"})', ["ConfigurationError", 3, "already holds a finished run"]),
    ('dapd.run("config.yaml", set={"run.name": "no-data", "data.path": "none.jsonl"}).wait(60)', ["DataError", 4, "there is no data file none.jsonl"]),
    ('dapd.run("config.yaml", set={"run.name": "no-model", "model.path": "none"}).wait(60)', ["DataError", 4, "none"]),
    ('dapd.run("config.yaml", set={"run.output_dir": "/dev/null/x"})', ["ConfigurationError", 3, "/dev/null/x/run cannot be made: Not a directory"]),
    ('dapd.run("config.yaml", ranks=0)', ["UsageError", 2, "--ranks"]),
    ('dapd.status("127.0.0.1:1")', ["UnavailableError", 5, "no trainer answers at 127.0.0.1:1"]),
    ('dapd.status("nowhere")', ["UsageError", 2, "nowhere"]),
    ('dapd.generate("none", ["1 + 1?"])', ["DataError", 4, "none"]),
    ('dapd.problems("unit_conversion", "/dev/null/x")', ["DataError", 4, "Not a directory"]),
    ('dapd.check("config.yaml", set={"trainer.steps": -1})', ["ConfigurationError", 3, "trainer.steps"]),
    ('dapd.call("frobnicate")', ["UsageError", 2, "frobnicate"]),
])
def test_an_error_of_the_command_is_an_exception(call, expected, python, finished):
    name, code, message = python.error(call)
    assert [name, code] == expected[:2] and expected[2] in message and not message.startswith("dapd: "), message


def test_json_logs_are_read_as_well(python):
    name, code, message = python.error('dapd.run("config.yaml", set={"run.name": "j", "log.format": "json", "data.path": "none.jsonl"}).wait(60)')
    assert [name, code] == ["DataError", 4] and "none.jsonl" in message and "{" not in message, message


def test_a_folder_that_is_none_is_named(python):
    said = python.run("""
        import dapd
        assert dapd.runs("nowhere") == []
        try:
            dapd.Run("nowhere/x")
        except FileNotFoundError as error:
            print(error)
        """)
    assert "nowhere/x is not a folder" in said


def test_settings_reach_the_command_as_they_are(python):
    said = python.run("""
        import dapd, json, math, pathlib
        from dapd.command import set_flags
        settings = {"model.name": "a: b #c", "evaluation.marker": 'say "\\\\n"', "trainer.learning_rate": 1.5e-7, "trainer.steps": 12, "trainer.shard_base": False,
                    "lora.targets": ["q_proj", "up_proj"], "objective.component_clip": math.inf, "data.path": pathlib.Path("/a b/ä.jsonl")}
        print(dapd.call("config", "config.yaml", *set_flags(settings), "--json"))
        """)
    config = json.loads(said)
    assert config["model"]["name"] == "a: b #c" and config["evaluation"]["marker"] == 'say "\\n"' and config["data"]["path"] == "/a b/ä.jsonl"
    assert config["trainer"]["learning_rate"] == 1.5e-7 and config["trainer"]["steps"] == 12 and config["trainer"]["shard_base"] is False
    assert config["lora"]["targets"] == ["q_proj", "up_proj"] and config["objective"]["component_clip"] == ".inf"


def test_the_trainer_is_asked_with_a_certificate(python):
    roles = "rollout+teacher+trainer"
    certificates.make(python.folder / "tls", roles, "viewer")
    own = {key: str(path) for key, path in certificates.settings(python.folder / "tls" / roles).items()}
    viewer = {key: str(path) for key, path in certificates.settings(python.folder / "tls/viewer").items()}
    python.run(f"""
        import dapd, time
        run = dapd.run("config.yaml", set={{"run.name": "tls", "trainer.steps": 1000, "evaluation.interval": 0, **{own}}})
        try:
            while run.progress.phase is None:
                time.sleep(0.1)
            assert dapd.status(run.address, set={viewer})["run_name"] == "tls"
            assert run.status()["run_name"] == "tls"  # with its own
            try:
                dapd.status(run.address)
            except dapd.UnavailableError:
                pass
            else:
                raise AssertionError("answered without a certificate")
        finally:
            run.stop(timeout=100)
        """)


def test_answers_scores_and_grades(python, finished):
    python.run("""
        import dapd, torch
        prompts = ["1 + 1?", [{"role": "user", "content": "1 + 1?"}], [72, 101, 108]]
        adapter = dapd.Run("runs/finished").adapter
        answers = dapd.generate(dapd.tiny_model, prompts, adapter=adapter, temperature=0, max_new_tokens=6)
        assert answers[0] == answers[1] and len(answers) == 3 and dapd.generate(dapd.tiny_model, []) == []
        for answer in answers:
            assert len(answer.ids) == len(answer.logprobs) <= 6 and answer.finish_reason in ("eos", "length")
        plain, full = dapd.score(dapd.tiny_model, [[72, 101, 108], [72, 101]], logits=True)
        assert plain.logprobs.shape == (2,) and plain.logits.shape == (3, 320) and full.logprobs.shape == (1,)
        expected = torch.log_softmax(plain.logits[:-1].double(), -1)[range(2), [101, 108]]
        assert torch.allclose(plain.logprobs.double(), expected, atol=1e-5) and dapd.score(dapd.tiny_model, [[72, 101]])[0].logits is None
        grades = dapd.grade([("so \\\\boxed{4}", "4"), ("so \\\\boxed{5}", "4"), ("no idea", "4")])
        assert [(grade.extracted, grade.correct) for grade in grades] == [("4", True), ("5", False), (None, False)], grades
        assert "the configuration is sound" in dapd.check("config.yaml")
        """)


def test_without_pyarrow_only_the_tables_are_missing(python, finished):
    said = python.run("""
        import sys
        sys.modules["pyarrow"] = None
        import dapd
        run = dapd.Run("runs/finished")
        assert run.progress.step == 3
        try:
            run.metrics
        except ModuleNotFoundError as error:
            print(error)
        """)
    assert said == "a run's tables are Arrow tables: pip install pyarrow\n"


def test_the_demonstration_keeps_its_problems_and_finds_its_model(python):
    python.run("""
        import dapd, os
        config = dapd.make_demonstration("a demonstration")
        train = config.parent / "train-10000.jsonl"
        stamp = os.stat(train)
        assert dapd.make_demonstration("a demonstration") == config and os.stat(train).st_mtime_ns == stamp.st_mtime_ns
        assert "the configuration is sound" in dapd.check(config)
        assert dapd.config_path("laboratory").is_file() and "qwen3-4b" in dapd.config_names()
        """)
    result = subprocess.run([python.python, "-m", "dapd.demonstrate", "/dev/null/x"], cwd=python.folder, capture_output=True, text=True)
    assert result.returncode == 4 and result.stderr.startswith("dapd: ") and result.stderr.count("\n") == 1, result


def test_the_notebook_runs_and_plots(python, tmp_path):
    """Runs the notebook as a user does, but with a few of its 150 steps, set by the environment."""
    variables = {"DAPD_TRAINER__STEPS": "3", "DAPD_EVALUATION__SAMPLES": "1", "MPLBACKEND": "", "JUPYTER_RUNTIME_DIR": str(tmp_path / "jupyter"),
                 "IPYTHONDIR": str(tmp_path / "ipython"), "MPLCONFIGDIR": str(tmp_path / "matplotlib")}
    variables = {key: value for key, value in variables.items() if value}
    (tmp_path / "notebook.ipynb").write_bytes((ROOT / "docs/notebook.ipynb").read_bytes())
    result = subprocess.run([python.python, "-m", "nbconvert", "--to", "notebook", "--execute", "--output", "executed", "notebook.ipynb"], cwd=tmp_path,
                            capture_output=True, text=True, timeout=300, env={**os.environ, **variables})
    assert result.returncode == 0, result.stderr
    cells = [cell for cell in json.loads((tmp_path / "executed.ipynb").read_text())["cells"] if cell["cell_type"] == "code"]
    outputs = [output for cell in cells for output in cell["outputs"]]
    text = "".join("".join(output.get("text", "")) for output in outputs)
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == 2 and all(len(picture["data"]["image/png"]) > 5000 for picture in pictures)
    assert "finished" in text and "before" in text and "with the adapter:" in text, text
    assert not [output for output in outputs if output["output_type"] == "error" or output.get("name") == "stderr"]
    assert len((tmp_path / "demonstration/runs/laboratory/metrics.jsonl").read_text().splitlines()) == 3


def test_the_notebook_in_the_repository_holds_no_outputs():
    notebook = json.loads((ROOT / "docs/notebook.ipynb").read_text())
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
            ast.parse("".join(cell["source"]))
