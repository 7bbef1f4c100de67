module admission-gateway/tests/e2e/openreports

go 1.24

require github.com/openreports/reports-api v0.2.1
