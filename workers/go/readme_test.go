package worker

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// The policies of the README, with their tests, in a folder of this module.
func TestTheReadmeHolds(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll("target", 0o755); err != nil {
		t.Fatal(err)
	}
	folder, err := os.MkdirTemp("target", "readme")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(folder)
	blocks := regexp.MustCompile("(?s)```go\n// (\\w+\\.go)\n(.*?)```").FindAllSubmatch(text, -1)
	if len(blocks) != 2 {
		t.Fatalf("there are %d programs in it", len(blocks))
	}
	for _, block := range blocks {
		if err := os.WriteFile(filepath.Join(folder, string(block[1])), block[2], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, arguments := range [][]string{{"vet", "./" + folder}, {"test", "./" + folder}} {
		if output, err := exec.Command("go", arguments...).CombinedOutput(); err != nil {
			t.Errorf("go %s: %v\n%s", arguments[0], err, output)
		}
	}
	if output, err := exec.Command("gofmt", "-l", folder).CombinedOutput(); err != nil || len(output) > 0 {
		t.Errorf("gofmt: %v\n%s", err, output)
	}
}
