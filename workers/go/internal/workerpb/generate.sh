#!/bin/sh
# Writes worker.pb.go and worker_grpc.pb.go from the worker contract: into this folder, or into the one given.
# Needs protoc, or Python's grpcio-tools as the gateway's development environment has them.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../../.." && pwd)
out=${1:-$here}
proto=admissiongateway/worker/v1/worker.proto
package=admission-gateway.io/worker/internal/workerpb

if command -v protoc >/dev/null; then
  protoc=protoc
elif "$root/.venv/bin/python" -c 'import grpc_tools' 2>/dev/null; then
  protoc="$root/.venv/bin/python -m grpc_tools.protoc"
else
  echo "generate: neither protoc nor $root/.venv with grpcio-tools is there" >&2
  exit 3
fi
cd "$here"
$protoc -I"$root/protos" \
  --plugin="protoc-gen-go=$(go tool -n protoc-gen-go)" \
  --plugin="protoc-gen-go-grpc=$(go tool -n protoc-gen-go-grpc)" \
  --go_out="$out" --go_opt="module=$package,M$proto=$package" \
  --go-grpc_out="$out" --go-grpc_opt="module=$package,M$proto=$package" \
  "$proto"
