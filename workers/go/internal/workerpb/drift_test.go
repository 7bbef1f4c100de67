package workerpb

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// versions are lines that say what a file was made with, which may differ without harm.
var versions = regexp.MustCompile(`(?m)^//\s+(- )?protoc\S*\s+v.*$`)

func TestTheCodeIsThatOfTheContract(t *testing.T) {
	folder := t.TempDir()
	output, err := exec.Command("sh", "generate.sh", folder).CombinedOutput()
	var failed *exec.ExitError
	if errors.As(err, &failed) && failed.ExitCode() == 3 {
		t.Skipf("%s", output)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	for _, name := range []string{"worker.pb.go", "worker_grpc.pb.go"} {
		made, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		kept, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if versions.ReplaceAllString(string(made), "") != versions.ReplaceAllString(string(kept), "") {
			t.Errorf("%s is not what the contract says: run go generate ./internal/workerpb", name)
		}
	}
}
