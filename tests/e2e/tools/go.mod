module admission-gateway/tests/e2e/tools

go 1.26.0
