# The image of the worker with Kubewarden's policies. Its build takes some ten minutes.
#
#     docker build -f deploy/kubewarden.Dockerfile -t kubewarden-worker:0.1.0 .
#
# In the image, /sbom.cdx.json lists the crates of the program, and /licenses has their licences. To use another base image,
# give --build-arg RUST_IMAGE=…: one with a C compiler, Python and glibc.
# The default is Rust 1.98.0 of 2026-08-25, as docker-library/repo-info on GitHub lists it (repos/rust/remote/1.98.0-bookworm.md).
ARG RUST_IMAGE=docker.io/library/rust:1.98.0-bookworm@sha256:82150a52ec202c1b14d7817e14516c392bb7f5cfebd88f1ed531cb37ebd39922

FROM ${RUST_IMAGE} AS build
WORKDIR /src
COPY LICENSE ./
COPY protos/admissiongateway protos/admissiongateway/
COPY workers/rust workers/rust/
COPY workers/wasm workers/wasm/
COPY deploy/sbom.py deploy/cargo_sbom.py deploy/
ARG SOURCE_DATE_EPOCH
RUN mkdir -m 1777 -p /image/tmp \
 && cargo build --release --manifest-path workers/wasm/Cargo.toml \
 && cp workers/wasm/target/release/admission-gateway-wasm /image/worker \
 && strip /image/worker \
 && ldd /image/worker | grep -o '/[^ ]*' | xargs -I LIBRARY cp --parents --dereference LIBRARY /image \
 && cargo metadata --manifest-path workers/wasm/Cargo.toml --format-version 1 --filter-platform "$(rustc -vV | sed -n 's/^host: //p')" > /tmp/crates.json \
 && python3 -m deploy.cargo_sbom /image < /tmp/crates.json

FROM scratch
ARG REVISION=unknown
LABEL org.opencontainers.image.title="kubewarden-worker" \
      org.opencontainers.image.description="Policies of Kubewarden for admission-gateway, WebAssembly modules" \
      org.opencontainers.image.version="0.1.0" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/admission-gateway/admission-gateway" \
      org.opencontainers.image.url="https://admission-gateway.io"
COPY --from=build /image /
USER 65532:65532
EXPOSE 50051
STOPSIGNAL SIGTERM
ENTRYPOINT ["/worker"]
