"""Runs a real Prometheus with the configuration of deploy/monitoring on the processes of a local run."""

import json
import pathlib
import shutil
import subprocess
import urllib.parse
import urllib.request

import yaml
from workspace import free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Prometheus:
    """A Prometheus in which `targets`, the addresses of each job, replace DNS, which a local run does not have, and
    alerts wait for `patience` instead of their minutes. Everything else is as shipped."""

    def __init__(self, folder, targets, scrape_interval="1s", patience="1s"):
        self.folder = folder
        self.port = free_port()
        config = yaml.safe_load((ROOT / "deploy/monitoring/prometheus.yml").read_text())
        config["global"] = {"scrape_interval": scrape_interval, "scrape_timeout": scrape_interval, "evaluation_interval": scrape_interval}
        for job in config["scrape_configs"]:
            del job["dns_sd_configs"]
            job["static_configs"] = [{"targets": targets[job["job_name"]]}]
        shutil.copytree(ROOT / "dashboards/rules", folder / "rules")
        alerts = yaml.safe_load((folder / "rules/alerts.yml").read_text())
        for group in alerts["groups"]:
            for rule in group["rules"]:
                rule["for"] = patience
        (folder / "rules/alerts.yml").write_text(yaml.safe_dump(alerts))
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))

    def __enter__(self):
        self.log = open(self.folder / "prometheus.log", "w")
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={self.folder}/prometheus.yml", f"--storage.tsdb.path={self.folder}/data",
             f"--web.listen-address=127.0.0.1:{self.port}"], stdout=self.log, stderr=self.log)
        return self

    def __exit__(self, *unused):
        self.process.terminate()
        self.process.wait(timeout=30)
        self.log.close()

    def ready(self):
        assert self.process.poll() is None, (self.folder / "prometheus.log").read_text()
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=2).status == 200
        except OSError:
            return False

    def get(self, path, **parameters):
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        return json.loads(urllib.request.urlopen(url, timeout=10).read())["data"]

    def query(self, expr):
        """Returns [(labels, value)] of an expression now."""
        return [(series["metric"], float(series["value"][1])) for series in self.get("query", query=expr)["result"]]

    def value(self, expr):
        """Returns the only value of an expression, or nothing."""
        found = self.query(expr)
        return found[0][1] if len(found) == 1 else None

    def metrics(self):
        return set(self.get("label/__name__/values"))

    def firing(self):
        return {labels["alertname"] for labels, _ in self.query('ALERTS{alertstate="firing"}')}
