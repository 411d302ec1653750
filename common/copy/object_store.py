"""Moves objects between this machine and a store that fsspec reaches: a folder, s3://, gs://.

common/copy/object_store.cc starts and watches this program: it passes the program's text and the store's URL to Python.
The program writes {"ready": VERSION} and then answers each line, one after another:

  {"op": "list", "under"}                           {"names": {name: [bytes, seconds since it was written or null]}, "more"},
                                                    including NAME.PROCESS.part of incomplete objects in a folder
  {"op": "read", "name", "limit"}                   {"text"}
  {"op": "write", "name", "text"}                   {"done"}
  {"op": "put", "path", "offset", "bytes", ...}     {"done"}, once the object was read back and is what "sha256" says
  {"op": "check", "name", "bytes", "sha256"}        {"done"}: whether the object has this content
  {"op": "get", "name", "bytes", "sha256", "path", "offset"}  {"done"}: this part of the file now equals the object
  {"op": "remove", "names"}                         {"done"}

While bytes move, {"moved": count} comes before the answer. A failure is answered with {"error", "kind"}; the kind is
"missing" (the object), "unusable" (the bucket is missing), "denied", "changed", "full" (a disk of this machine) or
"other". object_store.cc ends this process if it waits too long for a line.
"""

import datetime
import errno
import hashlib
import json
import logging
import os
import sys
import time

CHUNK = 4 << 20  # bytes read at a time
BLOCK = 16 << 20  # bytes in a request to the store; S3's smallest is 5 MiB, and it takes 10,000 of them
NAMES = 2000  # names in a line
# The clients raise these if no credentials are found, or if they are not valid.
DENIALS = {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ProfileNotFound", "SSOError",
           "TokenRetrievalError",  # botocore
           "DefaultCredentialsError", "RefreshError", "NonRetryableError"}  # google.auth and gcsfs
# S3 has more codes for refused credentials than s3fs translates.
DENIAL_CODES = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "AccessDenied")
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
SECRET_WORDS = ("KEY", "SECRET", "TOKEN", "PASSWORD", "CREDENTIAL")


class Refusal(Exception):
    """An error whose kind and text are sent unchanged."""

    def __init__(self, kind, text):
        super().__init__(text)
        self.kind = kind


class Store:
    def __init__(self, url, say):
        import fsspec

        # Both caches would return an outdated state.
        options = {"use_listings_cache": False, "skip_instance_cache": True}
        if url.startswith(("gs://", "gcs://")):
            # By default gcsfs asks by gRPC for the kind of the bucket, which needs one more permission, and writes
            # objects to zonal buckets that are visible before they are complete. Its plain client uses JSON only.
            os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")
            # Without this, an unreadable credentials file makes gcsfs continue anonymously.
            if os.environ.get("GOOGLE_APPLICATION_CREDENTIALS"):
                options["token"] = "google_default"
        self.fs, self.root = fsspec.core.url_to_fs(url, **options)
        self.root = self.root.rstrip("/")
        self.is_local = isinstance(self.fs, fsspec.implementations.local.LocalFileSystem)
        self.say = say

    def path(self, name):
        return f"{self.root}/{name}"

    def list(self, row):
        self.fs.invalidate_cache()
        under = self.path(row["under"]) if row["under"] else self.root
        try:
            found = self.fs.find(under, detail=True)
        except FileNotFoundError:
            found = {}
        if not found:
            self.require_bucket()
        names, now = {}, time.time()
        for path, info in sorted(found.items()):
            if not path.startswith(self.root + "/"):
                continue
            names[path[len(self.root) + 1:]] = [info.get("size") or 0, age(info, now)]
            if len(names) == NAMES:
                self.say({"names": names, "more": True})
                names = {}
        return {"names": names, "more": False}

    def read(self, row):
        path = self.path(row["name"])
        self.fs.invalidate_cache()
        size = self.fs.info(path)["size"]
        if size > row["limit"]:
            raise Refusal("changed", f"it has {size} bytes, at most {row['limit']} are accepted")
        return {"text": self.fs.cat_file(path).decode("utf-8", "replace")}

    def write(self, row):
        data = row["text"].encode()
        self.send(row["name"], iter([data]))
        if self.fs.cat_file(self.path(row["name"])) != data:
            raise Refusal("changed", "it reads back differently")
        return {"done": True}

    def put(self, row):
        digest = hashlib.sha256()

        def chunks():
            left = row["bytes"]
            with open(row["path"], "rb") as file:
                file.seek(row["offset"])
                while left > 0:
                    data = file.read(min(CHUNK, left))
                    if not data:
                        raise Refusal("changed", f"{row['path']} has become shorter")
                    digest.update(data)
                    left -= len(data)
                    yield data
            if digest.hexdigest() != row["sha256"]:
                raise Refusal("changed", f"{row['path']} has changed")

        self.send(row["name"], chunks())
        if not self.is_whole(row):
            raise Refusal("changed", "it reads back differently")
        return {"done": True}

    def check(self, row):
        try:
            return {"done": self.is_whole(row)}
        except FileNotFoundError:
            return {"done": False}

    def is_whole(self, row):
        digest, size = hashlib.sha256(), 0
        for data in self.chunks_of(row):
            digest.update(data)
            size += len(data)
        return size == row["bytes"] and digest.hexdigest() == row["sha256"]

    def get(self, row):
        digest = hashlib.sha256()
        descriptor = os.open(row["path"], os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        with os.fdopen(descriptor, "wb") as file:
            file.seek(row["offset"])
            for data in self.chunks_of(row):
                digest.update(data)
                file.write(data)
        if digest.hexdigest() != row["sha256"]:
            raise Refusal("changed", "it is not what was copied there")
        return {"done": True}

    def remove(self, row):
        for name in row["names"]:
            try:
                self.fs.rm_file(self.path(name))
            except FileNotFoundError:
                pass
            self.say({"moved": 0})
        return {"done": True}

    def chunks_of(self, row):
        """Yields the object's content; reads nothing if its size is wrong."""
        path = self.path(row["name"])
        self.fs.invalidate_cache()
        size = self.fs.info(path)["size"]
        if size != row["bytes"]:
            raise Refusal("changed", f"it has {size} bytes instead of {row['bytes']}")
        if size == 0:
            return
        with self.fs.open(path, "rb", block_size=2 * CHUNK, cache_type="readahead") as file:
            while data := file.read(CHUNK):
                self.say({"moved": 0})
                yield data

    def require_bucket(self):
        """Stores report a missing bucket as a missing object, or do not report it."""
        if self.is_local:
            return
        bucket = self.root.split("/")[0]
        try:
            self.fs.ls(bucket)
        except FileNotFoundError:
            raise Refusal("unusable", f"there is no bucket {bucket}") from None
        except Exception:
            pass  # for example, permissions may end above the URL

    def send(self, name, chunks):
        """Makes the object `name` from the chunks, completely or not at all."""
        path = self.path(name)
        if self.is_local:
            self.send_to_folder(path, chunks)
            return
        file = self.fs.open(path, "wb", block_size=BLOCK)
        try:
            for data in chunks:
                file.write(data)
                self.say({"moved": len(data)})
        except BaseException:
            # Closing the file would make an object of the incomplete data.
            file.closed = True
            discard = getattr(file, "discard", None)
            if discard is not None:
                try:
                    discard()
                except Exception:
                    pass  # the first error counts
            raise
        file.close()

    def send_to_folder(self, path, chunks):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        part = f"{path}.{os.getpid()}.part"
        try:
            # Others may know this name, so an existing file is not written into.
            if os.path.lexists(part):
                os.unlink(part)
            with open(part, "xb") as file:
                unsynced = 0
                for data in chunks:
                    file.write(data)
                    unsynced += len(data)
                    if unsynced >= BLOCK:
                        # Syncing all of a large file at the end could take a slow disk longer than the helper may be
                        # silent.
                        file.flush()
                        os.fdatasync(file.fileno())
                        unsynced = 0
                    self.say({"moved": len(data)})
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
        except BaseException:
            if os.path.exists(part):
                os.unlink(part)
            raise
        folder = os.open(os.path.dirname(path), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def age(info, now):
    """Returns the seconds since the object was written; None if the store does not report that time."""
    written = next((info[key] for key in ("LastModified", "mtime", "updated", "last_modified") if info.get(key)), None)
    try:
        if isinstance(written, str):
            written = datetime.datetime.fromisoformat(written)
        if isinstance(written, datetime.datetime):
            written = written.timestamp()
        return None if written is None else now - float(written)
    except ValueError:
        return None


def without_secrets(text):
    """Removes secrets of the environment from a message."""
    for name, value in os.environ.items():
        if len(value) >= 8 and any(word in name.upper() for word in SECRET_WORDS):
            text = text.replace(value, "***")
    return text


def kind_of(error):
    if isinstance(error, Refusal):
        return error.kind
    if isinstance(error, FileNotFoundError):
        return "missing"
    if isinstance(error, OSError) and error.errno in FULL:
        return "full"
    if isinstance(error, PermissionError) or DENIALS & {each.__name__ for each in type(error).__mro__}:
        return "denied"
    # gcsfs has one exception type for every status except 403, and no type for 403.
    if getattr(error, "code", None) in (401, 403) or (isinstance(error, OSError) and str(error).startswith("Forbidden:")):
        return "denied"
    return "denied" if any(code in str(error) for code in DENIAL_CODES) else "other"


def error_of(error):
    text = str(error) if isinstance(error, Refusal) else f"{type(error).__name__}: {error}"
    return {"error": without_secrets(text)[:500], "kind": kind_of(error)}


def main(url):
    # Only this program writes to the channel: everything that a library prints goes to stderr.
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    logging.disable(logging.CRITICAL)

    def say(message):
        channel.write(json.dumps(message) + "\n")

    try:
        import fsspec
        import fsspec.implementations.local

        store = Store(url, say)
        say({"ready": fsspec.__version__})
    except Exception as error:
        # fsspec names the package that a protocol needs.
        said = error_of(error)
        say(said if said["kind"] == "denied" else {**said, "kind": "unusable"})
        return 1
    operations = {"list", "read", "write", "put", "check", "get", "remove"}
    for line in sys.stdin:
        row = json.loads(line)
        try:
            if row["op"] not in operations:
                raise Refusal("other", f"no operation {row['op']}")
            say(getattr(store, row["op"])(row))
        except Exception as error:
            say(error_of(error))
    return 0


if __name__ == "__main__":
    sys.stdin.reconfigure(encoding="utf-8")
    sys.exit(main(sys.argv[1]))
