"""The object stores that tests have a server of, by the protocol of their URLs."""

import pytest

from gcs_server import GcsServer
from s3_server import S3Server

SERVERS = {"s3": S3Server, "gs": GcsServer}


def either(fixture):
    """The test with each kind of server, which the fixture finds in request.param."""
    return pytest.mark.parametrize(fixture, SERVERS, indirect=True)
