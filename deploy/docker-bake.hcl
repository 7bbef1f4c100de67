# Both images for two architectures, with provenance and SBOM as attestations:
#
#     REGISTRY=registry.example/team REVISION=$(git rev-parse HEAD) docker buildx bake -f deploy/docker-bake.hcl --push

variable "REGISTRY" { default = "" }
variable "VERSION" { default = "0.1.0" }
variable "REVISION" { default = "unknown" }

group "default" { targets = ["admission-gateway", "sample-policies"] }

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
