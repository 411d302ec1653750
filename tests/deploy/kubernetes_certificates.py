"""Takes the place of cert-manager: makes the secrets that the Certificates in a set of manifests ask for."""

import subprocess

from kubernetes_manifests import of_kind

USAGES = {"server auth": "serverAuth", "client auth": "clientAuth"}
NEW_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


def issue(everything, folder):
    """Maps each secret's name to {"tls.crt", "tls.key", "ca.crt"}, all from one authority made in `folder`."""
    folder.mkdir()
    certificates = [entry["spec"] for entry in of_kind(everything, "Certificate")]
    (authority,) = (spec for spec in certificates if spec.get("isCA"))
    ca = folder / "ca.crt"
    openssl("req", "-x509", *NEW_KEY, "-keyout", folder / "ca.key", "-out", ca, "-subj", f"/CN={authority['commonName']}", "-days", 2)
    secrets = {}
    for spec in certificates:
        if spec.get("isCA"):
            continue
        assert spec["issuerRef"]["name"] == "dapd-authority"
        name = spec["secretName"]
        names = [f"URI:{uri}" for uri in spec["uris"]] + [f"DNS:{host}" for host in spec["dnsNames"]]
        request, key, certificate = (folder / f"{name}.{end}" for end in ("csr", "key", "crt"))
        extensions = [f"subjectAltName={','.join(names)}", f"extendedKeyUsage={','.join(USAGES[u] for u in spec['usages'])}"]
        added = [part for extension in extensions for part in ("-addext", extension)]
        openssl("req", *NEW_KEY, "-keyout", key, "-out", request, "-subj", f"/CN={spec['commonName']}", *added)
        openssl("x509", "-req", "-in", request, "-CA", ca, "-CAkey", folder / "ca.key", "-CAcreateserial", "-days", 1,
                "-copy_extensions", "copy", "-out", certificate)  # fmt: skip
        secrets[name] = {"tls.crt": certificate.read_bytes(), "tls.key": key.read_bytes(), "ca.crt": ca.read_bytes()}
    return secrets
