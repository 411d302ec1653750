#!/usr/bin/env python3
"""Downloads a repository of the Hugging Face hub into the local cache, with huggingface_hub's own client.

    fetch_from_hub.py model|data ID[@REVISION][:GLOB]

Of a model it fetches only what DAPD reads: no weights in other formats, no checkpoints in subfolders, and not
Mistral's own copy of the weights. If a path of the same spelling exists, the path wins over the id, as everywhere,
and nothing is fetched. deploy/fetch.sh calls this with the project's own Python, and so does the image of
deploy/fetch.Dockerfile. The exit codes are dapd's: 0 done, 2 usage, 4 the hub does not have it, 5 the hub cannot be
reached.
"""

import argparse
import os
import sys

import httpx2
from huggingface_hub import snapshot_download
from huggingface_hub.errors import (GatedRepoError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, RepositoryNotFoundError,
                                    RevisionNotFoundError)

USAGE, DATA, UNREACHABLE = 2, 4, 5

# Files by name, in any folder: * matches a / too. The files of a model include the files of an adapter.
PATTERNS = {
    "model": ["*.safetensors", "*.json", "*.jinja", "*.txt", "*.model", "LICENSE*"],
    "data": ["*.parquet", "*.arrow", "*.jsonl", "*.ndjson", "*.json", "*.jsonl.gz", "*.ndjson.gz", "*.json.gz", "README.md", ".huggingface.yaml"],
}
# DAPD does not read these weights. Their index is a *.json, which a complete model must have.
UNREAD = {"model": ["consolidated*.safetensors", "*/*.safetensors"], "data": []}
REPO_TYPES = {"model": "model", "data": "dataset"}


def split_id(text):
    """Splits "org/name@revision:glob" into ("org/name", "revision" or None, "glob" or None). A part behind a # chooses
    among the fetched files."""
    text, _, pattern = text.partition("#")[0].partition(":")
    name, _, revision = text.partition("@")
    return name, revision or None, pattern or None


def fail(code, message):
    print(f"fetch: {message}", file=sys.stderr)
    sys.exit(code)


def first_line(error):
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def fetch(kind, name, revision, pattern):
    what = f"{name}@{revision}" if revision else name
    try:
        return snapshot_download(name, repo_type=REPO_TYPES[kind], revision=revision, allow_patterns=[pattern] if pattern else PATTERNS[kind],
                                 ignore_patterns=UNREAD[kind])
    except HFValidationError as error:
        fail(USAGE, f"'{name}' is not an id: {first_line(error)}")
    except GatedRepoError:
        fail(DATA, f"{what} is gated: accept its terms on its page, and set HF_TOKEN to a token of that account")
    except RepositoryNotFoundError:
        fail(DATA, f"the hub has no {kind} {name}, or it is not public and HF_TOKEN is not a token that may read it")
    except RevisionNotFoundError:
        fail(DATA, f"{name} has no revision {revision}")
    except LocalEntryNotFoundError as error:
        fail(UNREACHABLE, f"{what} is not completely in the cache, and the hub does not answer: {first_line(error)}")
    except (HfHubHTTPError, httpx2.HTTPError, OSError) as error:
        fail(UNREACHABLE, f"{what} was not downloaded completely: {first_line(error)}; the same command resumes it")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=sorted(PATTERNS))
    parser.add_argument("id", help="org/name, with @revision and, for data, :glob")
    options = parser.parse_args()
    if os.path.exists(options.id):
        print(f"{options.id} is an existing path; nothing is fetched")
        return
    name, revision, pattern = split_id(options.id)
    if pattern and options.kind == "model":
        parser.error("a glob can only choose files of a data set")
    folder = fetch(options.kind, name, revision, pattern)
    print(f"{folder}\nuse it as: --set {options.kind}.path={options.id}")


if __name__ == "__main__":
    main()
