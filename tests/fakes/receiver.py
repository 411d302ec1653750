"""Provides an HTTP or HTTPS server that keeps the JSON documents it receives, for run.notify_url and grader.url."""

import http.server
import json
import ssl
import threading


class Receiver:
    """Keeps the documents that it receives; with `hangs` it accepts connections and never answers. `answer` makes the JSON that it
    answers a document with."""

    def __init__(self, hangs=False, certificate=None, answer=None):
        self.documents, self.headers, self.released = [], [], threading.Event()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.headers.append(self.headers)
                receiver.documents.append(json.loads(body))
                if hangs:
                    receiver.released.wait()
                self.send_response(200)
                self.end_headers()
                if answer is not None:
                    self.wfile.write(json.dumps(answer(receiver.documents[-1])).encode())

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate / "tls.crt", certificate / "tls.key")
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"http{'s' if certificate is not None else ''}://127.0.0.1:{self.server.server_port}/hidden-path"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.released.set()
        self.server.shutdown()
        self.server.server_close()
