"""Serves a Hugging Face hub on 127.0.0.1, with the part of its HTTP protocol that a download needs."""

import hashlib
import http.server
import json
import threading
import urllib.parse

COMMIT = "89abcdef0123456789abcdef0123456789abcdef"
LARGE_BYTES = 4096  # a file of this size or more is served behind a redirect


class HubServer:
    """Serves `repositories`, {"models/org/name" or "datasets/org/name": {path: bytes}}, all at COMMIT.

    `requests` has every ("GET" or "HEAD", path) so far, `cut` the paths whose download breaks off half-way, and `gated` the
    repositories that require a token.
    """

    def __init__(self, repositories, revisions=("main",)):
        self.repositories = repositories
        self.revisions = set(revisions) | {COMMIT}
        self.requests = []
        self.cut = set()
        self.gated = set()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self.make_handler())
        self.endpoint = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def downloads(self):
        """Returns the paths of the requested files, whether directly or through a redirect."""
        paths = [path for method, path in self.requests if method == "GET"]
        return [path.split(f"/resolve/{COMMIT}/")[1] for path in paths if f"/resolve/{COMMIT}/" in path] + [
            "/".join(path.split("/")[5:]) for path in paths if path.startswith("/cdn/")]

    def make_handler(hub):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *arguments):
                pass

            def do_GET(self):
                self.answer()

            def do_HEAD(self):
                self.answer()

            def answer(self):
                path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
                hub.requests.append((self.command, path))
                parts = path.strip("/").split("/")
                if parts[0] == "api":
                    self.answer_api("/".join(parts[1:4]), parts[4:])
                elif parts[0] == "cdn":
                    name = "/".join(parts[4:])
                    self.send_file(hub.repositories["/".join(parts[1:4])][name], name in hub.cut)
                else:
                    kind = parts.pop(0) if parts[0] == "datasets" else "models"
                    self.answer_file(f"{kind}/{'/'.join(parts[:2])}", parts[2:])

            def refuse(self, code, error):
                self.send_response(code)
                self.send_header("X-Error-Code", error)
                self.send_header("X-Error-Message", error)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def find(self, repository, revision):
                if repository not in hub.repositories:
                    self.refuse(404, "RepoNotFound")
                elif repository in hub.gated:
                    self.refuse(403, "GatedRepo")
                elif revision not in hub.revisions:
                    self.refuse(404, "RevisionNotFound")
                else:
                    return hub.repositories[repository]

            def answer_api(self, repository, rest):
                revision = rest[1] if len(rest) > 1 else "main"
                files = self.find(repository, revision)
                if files is None:
                    return
                if rest[:1] == ["tree"]:
                    self.send_json([describe(path, data) for path, data in files.items()])
                else:
                    self.send_json({"id": repository.split("/", 1)[1], "sha": COMMIT, "siblings": [{"rfilename": path} for path in files]})

            def answer_file(self, repository, rest):
                if rest[:1] != ["resolve"]:
                    return self.refuse(404, "EntryNotFound")
                files = self.find(repository, rest[1])
                if files is None:
                    return
                path = "/".join(rest[2:])
                if path not in files:
                    return self.refuse(404, "EntryNotFound")
                data = files[path]
                if len(data) < LARGE_BYTES:
                    return self.send_file(data, path in hub.cut)
                self.send_response(302)
                self.send_header("X-Repo-Commit", COMMIT)
                self.send_header("X-Linked-Etag", f'"{hashlib.sha256(data).hexdigest()}"')
                self.send_header("X-Linked-Size", str(len(data)))
                self.send_header("Location", f"{hub.endpoint}/cdn/{repository}/{path}")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def send_json(self, value):
                data = json.dumps(value).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def send_file(self, data, is_cut=False):
                self.send_response(200)
                self.send_header("X-Repo-Commit", COMMIT)
                self.send_header("ETag", f'"{git_id(data)}"')
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if self.command == "HEAD":
                    return
                if is_cut:
                    self.wfile.write(data[: len(data) // 2])
                    self.wfile.flush()
                    self.close_connection = True
                    self.connection.close()
                else:
                    self.wfile.write(data)

        return Handler


def git_id(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def describe(path, data):
    """Returns a row of the hub's list of a commit's files."""
    row = {"type": "file", "path": path, "oid": git_id(data), "size": len(data)}
    if len(data) >= LARGE_BYTES:
        row["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
    return row
