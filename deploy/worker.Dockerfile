# The image of the sample policies: Python, the worker SDK and the libraries that they load.
#
#     docker build -f deploy/worker.Dockerfile -t sample-policies:0.1.0 .
#
# For an image of policies of your own, `admission-gateway new python NAME` writes a project with a Dockerfile.
# deploy/Dockerfile says how to use another base image.
ARG PYTHON_IMAGE=docker.io/library/python:3.11-slim-bookworm@sha256:0bee7276f83efd4a1ee05bbbf4281d95ed28e079220a9457f25a93e3f1e3c31b

FROM ${PYTHON_IMAGE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src

COPY pyproject.toml constraints.txt ./
COPY workers/python/pyproject.toml workers/python/
COPY deploy/pinned.py deploy/sbom.py deploy/
RUN python3 -m deploy.pinned admission-gateway-worker > /tmp/run.txt \
 && python3 -m deploy.pinned build-system > /tmp/build.txt \
 && python3 -m venv /opt/build \
 && python3 -m venv --without-pip /opt/worker \
 && /opt/build/bin/pip --python /opt/worker/bin/python install --only-binary :all: --no-deps --require-hashes -r /tmp/run.txt \
 && /opt/build/bin/pip install --only-binary :all: --no-deps --require-hashes -r /tmp/build.txt

COPY LICENSE ./
COPY workers/python workers/python/
COPY deploy/rootfs.py deploy/
ARG SOURCE_DATE_EPOCH
RUN /opt/build/bin/pip wheel --no-deps --no-index --no-build-isolation --wheel-dir /tmp/wheels ./workers/python \
 && /opt/build/bin/pip --python /opt/worker/bin/python install --no-deps --no-index /tmp/wheels/*.whl \
 && /opt/build/bin/pip --python /opt/worker/bin/python check \
 && python3 -m deploy.rootfs /rootfs /opt/worker admission-gateway-worker

FROM scratch
ARG REVISION=unknown
LABEL org.opencontainers.image.title="sample-policies" \
      org.opencontainers.image.description="The sample policies of admission-gateway's Python SDK" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/admission-gateway/admission-gateway" \
      org.opencontainers.image.url="https://admission-gateway.io"
COPY --from=build /rootfs /
ENV PATH=/opt/worker/bin PYTHONDONTWRITEBYTECODE=1 SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
USER 65532:65532
WORKDIR /
EXPOSE 50051
STOPSIGNAL SIGTERM
ENTRYPOINT ["python", "-m", "admission_gateway_worker.samples"]
CMD ["--listen", "0.0.0.0:50051"]
