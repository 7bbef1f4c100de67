# The image of a worker with the code of another engine: gatekeeper, or kyverno, whose build takes some ten minutes.
#
#     docker build -f deploy/engine.Dockerfile --build-arg WORKER=gatekeeper -t gatekeeper-worker:0.1.0 .
#
# In the image, /sbom.cdx.json lists the modules of the binary, and /licenses has their licences. To use another base image,
# give --build-arg GO_IMAGE=….
# The default is Go 1.26.8 of 2026-09-19, as docker-library/repo-info on GitHub lists it (repos/golang/remote/1.26.8-bookworm.md).
ARG GO_IMAGE=docker.io/library/golang:1.26.8-bookworm@sha256:f4191582e1522dfc5980a6bdc0309a756f9697f3e7d0f199c7e26fc82ab324fd

FROM ${GO_IMAGE} AS build
WORKDIR /src
ARG WORKER
COPY workers/go workers/go/
COPY workers/engines workers/engines/
COPY workers/${WORKER} workers/${WORKER}/
WORKDIR /src/workers/${WORKER}
ARG SOURCE_DATE_EPOCH
ENV CGO_ENABLED=0
RUN mkdir /image \
 && go build -trimpath -ldflags "-s -w" -o /image/worker . \
 && go run admission-gateway.io/engines/sbom -version 0.1.0 /image/worker /image \
 && mkdir -m 1777 /image/tmp

FROM scratch
ARG WORKER
ARG REVISION=unknown
LABEL org.opencontainers.image.title="${WORKER}-worker" \
      org.opencontainers.image.description="Policies of ${WORKER} for admission-gateway, evaluated by the engine's own code" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/admission-gateway/admission-gateway" \
      org.opencontainers.image.url="https://admission-gateway.io"
COPY --from=build /image /
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
USER 65532:65532
EXPOSE 50051
STOPSIGNAL SIGTERM
ENTRYPOINT ["/worker"]
