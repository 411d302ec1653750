"""deploy/compose.yaml as a project with its own name, on the tests' own engine."""

import hashlib
import json
import os
import pathlib
import re
import subprocess

from waiting import wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMPOSE = ROOT / "deploy/compose.yaml"
USER = 10001
ENDLESS = 100000
# These settings apply to every worker and trainer.
CONFIG = """
model: {{path: /opt/dapd/demo/tiny-qwen3, precision: float32, device: cpu}}
lora: {{rank: 4, alpha: 8}}
data: {{path: /opt/dapd/demo/train.jsonl}}
objective: {{max_reference_tokens: 32}}
rollout: {{max_new_tokens: 12, slots: 2}}
teacher: {{snapshot_interval: 20}}
trainer: {{batch_size: 4, micro_batch_size: 2, steps: {steps}, schedule_steps: 100000, learning_rate: 1.0e-3}}
checkpoint: {{interval: 10}}
run: {{name: {name}, seed: {seed}, num_threads: 1}}
"""
BATCH = 4


def adapter_digest(folder):
    return hashlib.sha256((folder / "adapter/adapter_model.safetensors").read_bytes()).hexdigest()


class Project:
    """A run that trains until it is told to end. The project and the run have the same name."""

    def __init__(self, engine, name, configs, runs=None, seed=1, files=(), **environment):
        """`configs` is the folder that gets a configuration; `runs` has the run folders, instead of the project's volume."""
        self.engine, self.name, self.configs, self.seed, self.files = engine, name, configs, seed, [COMPOSE, *files]
        self.write_config(ENDLESS)
        self.environment = {"DAPD_IMAGE": "dapd:cpu", "DAPD_CONFIGS": str(configs), "DAPD_CONFIG": f"{name}.yaml", **environment}
        if runs is None:
            self.runs = engine.volume(f"{name}_runs")
        else:
            self.runs = runs
            os.chown(runs, USER, USER)
            self.environment["DAPD_RUNS"] = str(runs)
        self.run_folder = self.runs / name

    def config(self, steps):
        return CONFIG.format(name=self.name, seed=self.seed, steps=steps)

    def write_config(self, steps):
        (self.configs / f"{self.name}.yaml").write_text(self.config(steps))

    def compose(self, *arguments, check=True):
        files = [part for file in self.files for part in ("--file", file)]
        return self.engine.compose("--project-name", self.name, *files, *arguments, check=check, **self.environment)

    def down(self):
        self.compose("down", "--volumes", "--timeout", "1", check=False)

    def containers(self, service):
        labels = {"project": self.name, "service": service}
        filters = [part for name, value in labels.items() for part in ("--filter", f"label=com.docker.compose.{name}={value}")]
        return self.engine.docker("ps", "--all", "--quiet", "--no-trunc", *filters).stdout.split()

    def container(self, service):
        (container,) = self.containers(service)
        return container

    def addresses(self, service, network="workers"):
        """Returns the address of each container of a service on a network of this project."""
        template = f'{{{{(index .NetworkSettings.Networks "{self.name}_{network}").IPAddress}}}}'
        containers = self.containers(service)
        return {*self.engine.docker("inspect", "--format", template, *containers).stdout.split()} if containers else set()

    def log(self, service):
        result = self.engine.docker("logs", self.container(service))
        return result.stdout + result.stderr

    def status(self):
        """Returns the JSON of `dapd status`, or no workers if no trainer answers."""
        for container in self.containers("trainer"):
            result = self.engine.docker("exec", container, "dapd", "status", "127.0.0.1:7003", "--json", check=False)
            if result.returncode == 0:
                return json.loads(result.stdout)
        return {"workers": []}

    def workers(self, role):
        """Returns the state of each worker that the trainer knows, lost workers included, by address."""
        return {worker["address"].rsplit(":", 1)[0]: worker["state"] for worker in self.status()["workers"] if worker["role"] == role}

    def metrics(self, address):
        return self.engine.fetch(f"http://{address}/metrics")

    def steps(self):
        path = self.run_folder / "metrics.jsonl"
        return path.read_text().count("\n") if path.exists() else 0

    def wait_for_step(self, step):
        wait_for(lambda: self.steps() >= step, f"step {step} of {self.name}", 180)

    def wait_for_steps(self, count):
        """Waits until `count` more steps are done, which needs workers."""
        self.wait_for_step(self.steps() + count)

    def finish(self, more):
        """Stops the trainer and starts it again for `more` steps; returns the total number of steps."""
        trainer = self.container("trainer")
        self.compose("stop", "trainer")
        assert self.engine.inspect(trainer, "{{.State.ExitCode}}") == "130"
        steps = self.steps() + more
        self.write_config(steps)
        self.compose("start", "trainer")
        return steps

    def wait_for_the_end(self, steps):
        trainer = self.container("trainer")
        wait_for(lambda: self.engine.inspect(trainer, "{{.State.Status}}") == "exited", f"the end of {self.name}", 120)
        assert self.engine.inspect(trainer, "{{.State.ExitCode}}") == "0"
        assert self.steps() == steps

    def digest_alone(self, package, folder, steps):
        """Returns the digest of the adapter that the same run gives without containers; its run folder is in `folder`."""
        config = folder / f"{self.name}.yaml"
        config.write_text(self.config(steps).replace("/opt/dapd", str(package)))
        subprocess.run([package / "bin/dapd", "run", config, "--set", f"run.output_dir={folder}/alone"], check=True, capture_output=True, timeout=540)
        return adapter_digest(folder / "alone" / self.name)


def values_of_label(text, label):
    """Returns the values of a label in all series of Prometheus's text."""
    return set(re.findall(rf'[{{,]{label}="([^"]*)"', text))
