# The run image with the Python that copies checkpoints to S3 and Google's storage
# (docs/checkpoints.md). It is for the trainer; workers may use it or the run image.
#
#   docker build -f deploy/copier.Dockerfile --build-arg IMAGE=dapd:cuda -t dapd-copier:cuda .
#
# IMAGE is a run image that the engine has, built or loaded from a release. BASE is a
# Debian of the release that IMAGE was built on (Debian 12) with apt; name the one of
# your registry. The image gets from it an interpreter and the libraries that this
# loads; it still has no shell and no package manager.
ARG BASE=debian:bookworm-slim
ARG IMAGE=dapd:cpu

FROM ${IMAGE} AS programs

FROM ${BASE} AS python
WORKDIR /src
RUN apt-get update && apt-get upgrade -y && \
    apt-get install -y --no-install-recommends ca-certificates python3 python3-venv && \
    rm -rf /var/lib/apt/lists/*
COPY deploy/requirements-copy.txt deploy/
RUN python3 -m venv /venv && \
    /venv/bin/pip install --no-cache-dir --no-deps -r deploy/requirements-copy.txt
COPY deploy/stage_libraries.sh deploy/stage_python.sh deploy/
COPY --from=programs /usr/lib /programs/usr/lib
RUN deploy/stage_python.sh /venv /programs /python

FROM programs AS copier
COPY --from=python /python/opt /opt
COPY --from=python /python/usr /usr
COPY --from=python /python/var /var
