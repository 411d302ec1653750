"""Runs moto's S3 server."""

import urllib.request

from store_server import StoreServer


class S3Server(StoreServer):
    SCHEME = "s3"
    SECRET = "tests-secret"

    def command(self, denies):
        return ["-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]

    def process_environment(self, denies):
        # The only request that is allowed makes the bucket.
        return {"INITIAL_NO_AUTH_ACTION_COUNT": "1"} if denies else {}

    def environment(self, port=None):
        return {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port or self.port}", "AWS_ACCESS_KEY_ID": "tests-key", "AWS_SECRET_ACCESS_KEY": self.SECRET,
                "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/dev/null",
                "AWS_SHARED_CREDENTIALS_FILE": "/dev/null"}

    def make_bucket(self):
        urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{self.port}/{self.BUCKET}", method="PUT"), timeout=120).close()

    def client(self):
        import boto3

        return boto3.client("s3", endpoint_url=f"http://127.0.0.1:{self.port}", region_name="us-east-1", aws_access_key_id="tests-key",
                            aws_secret_access_key=self.SECRET)

    def objects(self, prefix):
        client = self.client()
        found = {}
        try:
            for page in client.get_paginator("list_objects_v2").paginate(Bucket=self.BUCKET, Prefix=prefix + "/"):
                for row in page.get("Contents", []):
                    try:
                        found[row["Key"][len(prefix) + 1:]] = client.get_object(Bucket=self.BUCKET, Key=row["Key"])["Body"].read()
                    except client.exceptions.NoSuchKey:
                        pass  # removed since the listing
        except client.exceptions.NoSuchBucket:
            pass
        return found

    def damage(self, prefix, name, data):
        self.client().put_object(Bucket=self.BUCKET, Key=f"{prefix}/{name}", Body=data)

    def remove(self, prefix, name):
        self.client().delete_object(Bucket=self.BUCKET, Key=f"{prefix}/{name}")
