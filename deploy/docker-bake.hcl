# The images for two architectures, with provenance and SBOM as attestations:
#
#     REGISTRY=registry.example/team REVISION=$(git rev-parse HEAD) docker buildx bake -f deploy/docker-bake.hcl --push

variable "REGISTRY" { default = "" }
variable "VERSION" { default = "0.1.0" }
variable "REVISION" { default = "unknown" }

group "default" { targets = ["admission-gateway", "sample-policies", "gatekeeper-worker"] }

target "image" {
  context   = "."
  platforms = ["linux/amd64", "linux/arm64"]
  args      = { REVISION = REVISION }
  attest    = ["type=provenance,mode=max", "type=sbom"]
}

target "admission-gateway" {
  inherits   = ["image"]
  dockerfile = "deploy/Dockerfile"
  tags       = ["${REGISTRY == "" ? "" : "${REGISTRY}/"}admission-gateway:${VERSION}"]
}

target "sample-policies" {
  inherits   = ["image"]
  dockerfile = "deploy/worker.Dockerfile"
  tags       = ["${REGISTRY == "" ? "" : "${REGISTRY}/"}sample-policies:${VERSION}"]
}

target "gatekeeper-worker" {
  inherits   = ["image"]
  dockerfile = "deploy/engine.Dockerfile"
  args       = { REVISION = REVISION, WORKER = "gatekeeper" }
  tags       = ["${REGISTRY == "" ? "" : "${REGISTRY}/"}gatekeeper-worker:${VERSION}"]
}

# Not built by default, as the next one: each takes some ten minutes.
target "kubewarden-worker" {
  inherits   = ["image"]
  dockerfile = "deploy/kubewarden.Dockerfile"
  tags       = ["${REGISTRY == "" ? "" : "${REGISTRY}/"}kubewarden-worker:${VERSION}"]
}

target "kyverno-worker" {
  inherits   = ["image"]
  dockerfile = "deploy/engine.Dockerfile"
  args       = { REVISION = REVISION, WORKER = "kyverno" }
  tags       = ["${REGISTRY == "" ? "" : "${REGISTRY}/"}kyverno-worker:${VERSION}"]
}
