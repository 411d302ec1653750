"""Drives headless Chromium over the DevTools protocol on a pipe, without a driver, a port or another package."""

import base64
import collections
import itertools
import json
import os
import select
import shutil
import subprocess
import time

CHROMIUM = shutil.which("chromium")


class Browser:
    """One page. It collects the page's requests and errors."""

    def __init__(self, profile):
        to_child, from_us = os.pipe()
        from_child, to_us = os.pipe()
        # In the browser the protocol's descriptors are 3 (read) and 4 (written).
        wire = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
        command = [
            "bash", "-c", wire, "bash", str(to_child), str(to_us), CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu",
            "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--no-first-run",
            "--hide-scrollbars", "--force-device-scale-factor=1", f"--user-data-dir={profile}", "--remote-debugging-pipe",
        ]
        self.log = open(f"{profile}.log", "w")
        self.process = subprocess.Popen(command, pass_fds=(to_child, to_us), stdout=self.log, stderr=self.log)
        os.close(to_child)
        os.close(to_us)
        self.write_end, self.read_end = from_us, from_child
        self.buffer = b""
        self.numbers = itertools.count(1)
        self.requests, self.problems, self.events = [], [], collections.Counter()
        target = self.call("Target.createTarget", url="about:blank", session=False)["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True, session=False)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, session=True, timeout=60, **parameters):
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + timeout
        while True:
            answer = self.receive(deadline, method)
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def receive(self, deadline, waiting_for):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read_end], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"the browser did not answer {waiting_for}"
            block = os.read(self.read_end, 1 << 16)
            assert block, f"the browser ended during {waiting_for}"
            self.buffer += block
        text, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(text)
        if "method" in message:
            self.note(message["method"], message["params"])
        return message

    def note(self, method, event):
        self.events[method] += 1
        if method == "Network.requestWillBeSent":
            self.requests.append(event["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.problems.append(str(event["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and event["type"] in ("error", "warning", "assert"):
            self.problems.append(str(event["args"]))
        elif method == "Log.entryAdded" and event["entry"]["level"] in ("error", "warning"):
            self.problems.append(str(event["entry"]))

    def open(self, url, width=1440, height=900, dark=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def js(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, f"{expression}: {result['exceptionDetails']}"
        return result["result"].get("value")

    def wait(self, condition, seconds=60):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.js(condition):
                return
            time.sleep(0.05)
        raise AssertionError(f"{condition} did not hold within {seconds} s; the page reads: {self.js('document.body.innerText')[:2000]}")

    def screenshot(self, path, top=0, height=None):
        """Returns the page in its full width, from `top` on; without `height` to its end."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        image = self.call("Page.captureScreenshot", captureBeyondViewport=True,
                          clip={"x": 0, "y": top, "width": size["width"], "height": height or size["height"] - top, "scale": 1})
        path.write_bytes(base64.b64decode(image["data"]))

    def close(self):
        self.process.terminate()
        self.process.wait(timeout=20)
        os.close(self.write_end)
        os.close(self.read_end)
        self.log.close()
