# The image of components/download (deploy/kubernetes): the Hugging Face hub's client in
# the versions of deploy/requirements.txt, and nothing that computes.
#
#   docker build -f deploy/fetch.Dockerfile -t dapd-fetch:1 .
#   docker run -v hub:/hub -e HF_HOME=/hub dapd-fetch:1 model Qwen/Qwen3-4B@main
#
# BASE is a Debian 12 with apt; name the one of your registry with --build-arg.
ARG BASE=debian:bookworm-slim

FROM ${BASE}
RUN apt-get update && apt-get upgrade -y && \
    apt-get install -y --no-install-recommends ca-certificates python3 python3-venv && \
    rm -rf /var/lib/apt/lists/*
COPY deploy/requirements.txt /opt/fetch/
# The list serves as constraints: only what the client needs is installed.
RUN python3 -m venv /opt/fetch/venv && \
    /opt/fetch/venv/bin/pip install --no-cache-dir --constraint /opt/fetch/requirements.txt huggingface_hub
COPY deploy/fetch_from_hub.py /opt/fetch/
# Containers run as another user, whom the mask of the checkout may keep out.
RUN chmod go=rX /opt/fetch/fetch_from_hub.py
# A volume that is mounted there while it is empty takes over the owner.
RUN install --directory --owner=10001 --group=10001 /hub
USER 10001:10001
ENV HOME=/tmp PATH=/opt/fetch/venv/bin:/usr/bin:/bin
ENTRYPOINT ["python3", "/opt/fetch/fetch_from_hub.py"]
