"""Makes certificates for tests: valid ones by deploy/make_certificates.sh, and wrong ones."""

import pathlib
import ssl
import subprocess

import grpc

ROOT = pathlib.Path(__file__).resolve().parents[2]


def make(folder, *arguments):
    subprocess.run([ROOT / "deploy/make_certificates.sh", folder, *arguments], check=True, capture_output=True)


def make_odd(authority, folder, names, days=1):
    """Makes a certificate of `authority` with any names; `days` may be negative."""
    folder.mkdir(parents=True)
    key, request, extensions = folder / "tls.key", folder / "request", folder / "extensions"
    extensions.write_text(f"subjectAltName={names}\n")

    def openssl(*arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)

    openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key)
    openssl("req", "-new", "-key", key, "-subj", "/CN=odd", "-out", request)
    openssl("x509", "-req", "-in", request, "-CA", authority / "ca.crt", "-CAkey", authority / "ca.key", "-days", days,
            "-out", folder / "tls.crt", "-extfile", extensions)
    (folder / "ca.crt").write_bytes((authority / "ca.crt").read_bytes())
    return folder


def settings(folder, in_one_file=False):
    """Returns the configuration keys of a process with the certificate in `folder`."""
    own = ("identity.pem", "identity.pem") if in_one_file else ("tls.crt", "tls.key")
    return {"security.certificate": folder / own[0], "security.private_key": folder / own[1], "security.ca": folder / "ca.crt"}


def channel(port, folder=None, ca=None):
    """Opens a gRPC channel with the certificate in `folder`, or without one."""
    key = certificate = None
    if folder is not None:
        key, certificate = (folder / "tls.key").read_bytes(), (folder / "tls.crt").read_bytes()
    roots = ((ca or folder) / "ca.crt").read_bytes()
    return grpc.secure_channel(f"127.0.0.1:{port}", grpc.ssl_channel_credentials(roots, key, certificate))


def https(ca, folder=None):
    """Returns a context for urllib that trusts `ca` and presents the certificate in `folder`."""
    context = ssl.create_default_context(cafile=ca / "ca.crt")
    if folder is not None:
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return context
