"""Runs gcp-storage-emulator, a server of Google Storage's JSON protocol, and adds the authentication that it lacks.

As a program (PORT, and --denies) this file is the server.
"""

import argparse
import functools
import http.server
import json
import os
import pathlib

from store_server import StoreServer


class GcsServer(StoreServer):
    SCHEME = "gs"
    SECRET = "tests-access-token"

    def __init__(self, folder):
        super().__init__(folder)
        self.key = folder / f"service-account-{self.port}.json"

    @functools.cached_property
    def private_key(self):
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import rsa

        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()).decode()

    def command(self, denies):
        return [os.path.abspath(__file__), str(self.port), *(["--denies"] if denies else [])]

    def environment(self, port=None):
        address = f"http://127.0.0.1:{port or self.port}"
        self.key.write_text(json.dumps({
            "type": "service_account", "project_id": "tests", "private_key_id": "1", "private_key": self.private_key,
            "client_email": "copier@tests.iam.gserviceaccount.com", "client_id": "1", "token_uri": f"{address}/token"}))
        return {"STORAGE_EMULATOR_HOST": address, "GOOGLE_APPLICATION_CREDENTIALS": str(self.key)}

    def make_bucket(self):
        """The server makes the bucket itself."""

    def client(self):
        """Returns Google's own client, which compares the checksums of its downloads."""
        from google.cloud import storage
        from google.oauth2.credentials import Credentials

        return storage.Client(project="tests", credentials=Credentials(self.SECRET), client_options={"api_endpoint": f"http://127.0.0.1:{self.port}"})

    def objects(self, prefix):
        from google.api_core.exceptions import NotFound

        found = {}
        for blob in self.client().list_blobs(self.BUCKET, prefix=prefix + "/"):
            try:
                found[blob.name[len(prefix) + 1:]] = blob.download_as_bytes()
            except NotFound:
                pass  # removed since the listing
        return found

    def damage(self, prefix, name, data):
        self.client().bucket(self.BUCKET).blob(f"{prefix}/{name}").upload_from_string(data)

    def remove(self, prefix, name):
        self.client().bucket(self.BUCKET).blob(f"{prefix}/{name}").delete()


def serve(port, denies):
    from gcp_storage_emulator.exceptions import NotFound
    from gcp_storage_emulator.handlers.buckets import create_bucket
    from gcp_storage_emulator.server import Request, RequestHandler
    from gcp_storage_emulator.storage import Storage

    storage = Storage(use_memory_fs=True)
    create_bucket(GcsServer.BUCKET, storage)

    class Handler(RequestHandler):
        """Answers with errors and tokens in the form of https://cloud.google.com/storage/docs/json_api/v1/status-codes and RFC 7523."""

        def parse_request(self):
            if not super().parse_request():
                return False
            if self.path == "/token":
                self.rfile.read(int(self.headers["Content-Length"]))
                self.answer(200, {"access_token": GcsServer.SECRET, "expires_in": 3600, "token_type": "Bearer"})
                return False
            if self.headers.get("Authorization") != f"Bearer {GcsServer.SECRET}":
                self.refuse(401, "required", "Anonymous caller does not have storage.objects.list access to the Google Cloud Storage bucket.")
                return False
            if denies:
                self.refuse(403, "forbidden", "copier@tests.iam.gserviceaccount.com does not have storage.objects.list access to the "
                            "Google Cloud Storage bucket. Permission 'storage.objects.list' denied on resource (or it may not exist).")
                return False
            return True

        def do_DELETE(self):
            if not self.path.startswith("/upload/"):
                super().do_DELETE()
                return
            # The emulator ends a resumable upload only with its last byte.
            try:
                storage.delete_resumable_file_obj(Request(self, "DELETE").query["upload_id"][0])
            except NotFound:
                self.refuse(404, "notFound", "There is no such upload.")
                return
            self.answer(499, {})

        def refuse(self, code, reason, message):
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.answer(code, {"error": {"code": code, "message": message, "errors": [{"domain": "global", "reason": reason, "message": message}]}})

        def answer(self, code, row):
            data = json.dumps(row).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json; charset=UTF-8")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    http.server.HTTPServer(("127.0.0.1", port), functools.partial(Handler, storage)).serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=pathlib.Path(__file__).name)
    parser.add_argument("port", type=int)
    parser.add_argument("--denies", action="store_true")
    arguments = parser.parse_args()
    serve(arguments.port, arguments.denies)
