package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// Documents of Gatekeeper on the page are valid.
func TestTheDocumentsOfTheReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if strings.Contains(block[1], ".gatekeeper.sh/") {
			stateOf(t, strings.Trim(block[1], "\n"))
			count++
		}
	}
	if count < 2 {
		t.Errorf("found %d documents", count)
	}
}

func TestTheMutatorOfTheReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "```yaml\napiVersion: mutations")
	block, _, _ := strings.Cut(after, "```")
	request := creation(t, strings.Replace(webPod, "namespace: shop", "namespace: shop-a", 1))
	answer := serve(t, documentsOf(t, "apiVersion: mutations"+block)).review("mutation", request, "")
	containers := applied(t, marshalled(t, request.Object), answer.Patch)["spec"].(map[string]any)["containers"].([]any)
	for _, container := range containers {
		if container.(map[string]any)["imagePullPolicy"] != "Always" {
			t.Errorf("got %v", container)
		}
	}
}
