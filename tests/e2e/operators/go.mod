module admission-gateway/tests/e2e/operators

go 1.25.0

require github.com/cert-manager/cert-manager v1.21.2

require github.com/prometheus-operator/prometheus-operator v0.85.0
