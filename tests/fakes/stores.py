"""Lists the servers of object stores for tests, by the protocol of their URLs."""

import pytest

from gcs_server import GcsServer
from s3_server import S3Server

SERVERS = {"s3": S3Server, "gs": GcsServer}


def either(fixture):
    """Runs a test with each kind of server, which the fixture gets in request.param."""
    return pytest.mark.parametrize(fixture, SERVERS, indirect=True)
