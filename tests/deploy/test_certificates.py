"""Tests deploy/make_certificates.sh."""

import pathlib
import stat
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "deploy/make_certificates.sh"


def make(*arguments):
    return subprocess.run([SCRIPT, *map(str, arguments)], capture_output=True, text=True)


def text(path):
    return subprocess.run(["openssl", "x509", "-in", path, "-noout", "-text"], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    result = make(folder, "--dns", "worker.example", "--days", "7")
    assert result.returncode == 0, result.stderr
    return folder


@pytest.mark.parametrize("role", ["rollout", "teacher", "trainer", "viewer", "admin"])
def test_each_role_gets_a_certificate_of_the_authority_that_names_it(role, folder):
    certificate = folder / role / "tls.crt"
    verified = subprocess.run(["openssl", "verify", "-CAfile", folder / role / "ca.crt", certificate], capture_output=True, text=True)
    assert verified.returncode == 0, verified.stderr
    description = text(certificate)
    assert f"URI:spiffe://dapd/{role}," in description and "DNS:worker.example" in description and "CA:FALSE" in description
    # A viewer's certificate must not serve as a server's certificate.
    assert ("TLS Web Server Authentication" in description) == (role in ("rollout", "teacher", "trainer"))
    assert (folder / role / "identity.pem").read_bytes() == (folder / role / "tls.key").read_bytes() + certificate.read_bytes()


def test_nobody_else_can_read_what_it_writes(folder):
    for path in folder.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_a_second_call_keeps_the_authority_and_renews_the_rest(folder):
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert make(folder, "rollout").returncode == 0
    for path, contents in before.items():
        is_new = path.parent.name == "rollout" and path.name != "ca.crt"
        assert (path.read_bytes() != contents) == is_new, path
    assert sorted(path.name for path in (folder / "rollout").iterdir()) == ["ca.crt", "identity.pem", "tls.crt", "tls.key"]


def test_one_certificate_can_name_several_roles(folder):
    assert make(folder, "rollout+trainer").returncode == 0
    description = text(folder / "rollout+trainer" / "tls.crt")
    assert "URI:spiffe://dapd/rollout" in description and "URI:spiffe://dapd/trainer" in description


@pytest.mark.parametrize("arguments", [[], ["x", "root"], ["x", "../rollout"], ["x", "rollout", "viewer+root"], ["x", "--days", "soon"], ["x", "--days", "0"],
                                       ["x", "--dns"], ["x", "--dns", ""], ["x", "--dns", "a,URI:spiffe://dapd/admin"], ["x", "--unknown"],
                                       ["", "rollout"], ["x", ""], ["x", "+"], ["x", "rollout+"], ["x", "rollout++trainer"], ["x", "rollout trainer"]])
def test_wrong_arguments_make_nothing(arguments, tmp_path):
    result = subprocess.run([SCRIPT, *arguments], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 2 and result.stderr
    assert not list(tmp_path.iterdir())


def test_an_authority_that_was_not_made_to_its_end_is_made_to_it(tmp_path):
    """The first call ended between the key and its certificate."""
    assert make(tmp_path, "rollout").returncode == 0
    (tmp_path / "ca/ca.crt").unlink()
    result = make(tmp_path, "trainer")
    assert result.returncode == 0, result.stderr
    # Certificates that the same key signed before stay valid.
    for role in ("rollout", "trainer"):
        subprocess.run(["openssl", "verify", "-CAfile", tmp_path / "ca/ca.crt", tmp_path / role / "tls.crt"], check=True, capture_output=True)


def test_an_authority_that_cannot_sign_is_named_and_nothing_is_left_of_the_attempt(tmp_path):
    assert make(tmp_path, "rollout").returncode == 0
    (tmp_path / "ca/ca.crt").write_text("no certificate")
    result = make(tmp_path, "trainer")
    assert result.returncode == 1 and f"{tmp_path}/ca cannot sign for trainer: " in result.stderr
    assert not list((tmp_path / "trainer").iterdir())


def test_calls_at_the_same_time_share_an_authority_and_do_not_mix_files(tmp_path):
    calls = [subprocess.Popen([SCRIPT, tmp_path, "rollout"], stderr=subprocess.DEVNULL) for _ in range(4)]
    assert [call.wait() for call in calls] == [0] * 4
    folder = tmp_path / "rollout"
    subprocess.run(["openssl", "verify", "-CAfile", tmp_path / "ca/ca.crt", folder / "tls.crt"], check=True, capture_output=True)
    assert (folder / "identity.pem").read_bytes() == (folder / "tls.key").read_bytes() + (folder / "tls.crt").read_bytes()
