# foretaste in a container: for the CPU by default, for NVIDIA GPUs by two build arguments
# (docs/install.md shows the commands). The target "serve" answers over HTTP (docs/serving.md).
ARG BASE_IMAGE=python:3.11-slim-bookworm

FROM ${BASE_IMAGE} AS build
# Where pip finds PyTorch; empty is pip's own index, whose builds for Linux are those for CUDA.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PATH=/opt/foretaste/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/foretaste
WORKDIR /source
# PyTorch is most of the image: in a layer of its own, it is not fetched again for a change of code.
COPY constraints.txt ./
RUN pip install ${TORCH_INDEX:+--index-url "${TORCH_INDEX}"} --constraint constraints.txt torch
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN pip install --constraint constraints.txt ".[serve,sql]" && pip uninstall --yes pip

FROM ${BASE_IMAGE} AS command
# Triton compiles kernels for a GPU when they are first used: there it is "gcc libc6-dev".
ARG SYSTEM_PACKAGES=""
# hadolint ignore=DL3008,SC2086
RUN if [ -n "${SYSTEM_PACKAGES}" ]; then \
        apt-get update \
        && apt-get install --yes --no-install-recommends ${SYSTEM_PACKAGES} \
        && rm -rf /var/lib/apt/lists/*; \
    fi
COPY --from=build /opt/foretaste /opt/foretaste
# Caches go where any user may write: files in a mounted folder then can belong to whoever runs it.
ENV PATH=/opt/foretaste/bin:$PATH HOME=/tmp USER=foretaste
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
WORKDIR /data
RUN chown 1000:1000 /data
USER 1000:1000
# A shell, Python and torchrun are started where they are named; everything else is for foretaste.
ENTRYPOINT ["/bin/sh", "-c", "case $1 in bash|/bin/bash|sh|/bin/sh|python|torchrun) exec \"$@\";; esac; exec foretaste \"$@\"", "foretaste"]
CMD ["--help"]

FROM command AS serve
EXPOSE 8000
# Ready once the runs are loaded and have answered, on the port that the command names.
HEALTHCHECK --interval=10s --timeout=5s --start-period=5m \
    CMD ["python", "-c", "import re; from http.client import *; port = re.search(r'--port[=\\0](\\d+)', open('/proc/1/cmdline').read()); c = HTTPConnection('127.0.0.1', int(port[1]) if port else 8000, timeout=4); c.request('GET', '/readyz'); exit(c.getresponse().status != 200)"]
CMD ["serve", "runs/current", "--host", "0.0.0.0", "--token-file", "/run/secrets/token"]

# The last one is that which is built where none is named.
FROM command
