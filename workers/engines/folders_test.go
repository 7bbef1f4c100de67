package documents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// inTime is how long a test waits for what has to happen.
const inTime = time.Minute

func write(t *testing.T, folder, name, text string) string {
	t.Helper()
	path := filepath.Join(folder, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func object(kind, name string) string {
	return fmt.Sprintf("apiVersion: example.com/v1\nkind: %s\nmetadata: {name: %s}\n", kind, name)
}

func namesOf(objects []Object) string {
	var found []string
	for _, each := range objects {
		found = append(found, each.GetKind()+"/"+each.GetName())
	}
	return strings.Join(found, " ")
}

// follow follows folders, and returns the names of the objects that are applied.
func follow(t *testing.T, folders ...string) (<-chan string, *strings.Builder, error) {
	t.Helper()
	ctx, end := context.WithCancel(context.Background())
	t.Cleanup(end)
	var logged strings.Builder
	applied := make(chan string, 100)
	source := &Source{Folders: folders, Log: log.New(&logged, "", 0)}
	err := source.Follow(ctx, nil, func(objects []Object) error {
		applied <- namesOf(objects)
		return nil
	})
	return applied, &logged, err
}

func next(t *testing.T, applied <-chan string) string {
	t.Helper()
	select {
	case names := <-applied:
		return names
	case <-time.After(inTime):
		t.Fatal("nothing is applied")
		return ""
	}
}

func TestAllFilesOfAFolderAreRead(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, "b.yaml", object("B", "one")+"---\n# nothing\n---\n"+object("B", "two"))
	write(t, folder, "a.json", `{"apiVersion": "v1", "kind": "List", "items": [
		{"apiVersion": "v1", "kind": "A", "metadata": {"name": "one", "managedFields": [{}],
		"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x", "kept": "y"}}}]}`)
	write(t, folder, "below/deep/c.yml", object("C", "one"))
	write(t, folder, "notes.txt", "no document")
	write(t, folder, ".hidden.yaml", "no: document")
	var found []Object
	source := &Source{Folders: []string{folder}, Log: log.New(io.Discard, "", 0)}
	err := source.Follow(t.Context(), nil, func(objects []Object) error {
		found = objects
		return nil
	})
	if names := namesOf(found); err != nil || names != "A/one B/one B/two C/one" {
		t.Fatal(names, err)
	}
	if place := found[2].Place; place != filepath.Join(folder, "b.yaml")+": document 3" {
		t.Error(place)
	}
	if annotations := found[0].GetAnnotations(); len(annotations) != 1 || annotations["kept"] != "y" || found[0].GetManagedFields() != nil {
		t.Error(found[0])
	}
}

// Each mistake is a line with the file and the document.
func TestMistakesAreNamed(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, "a.yaml", "kind: A\n---\na: 1\na: 2\n---\n"+object("A", "one")+"---\n- a list\n")
	write(t, folder, "b.yaml", object("A", "one")+"---\n: [\n")
	_, _, err := follow(t, folder)
	if err == nil {
		t.Fatal("it is accepted")
	}
	lines := strings.Split(strings.ReplaceAll(err.Error(), folder+string(filepath.Separator), ""), "\n")
	for index, want := range []string{
		"a.yaml: document 1: apiVersion and kind are required", "a.yaml: document 2: ", "a.yaml: document 4: ",
		"b.yaml: document 2: ", "b.yaml: document 1: A one stands in ",
	} {
		if index >= len(lines) || !strings.HasPrefix(lines[index], want) {
			t.Errorf("line %d of\n%s\nexpected %s", index+1, strings.Join(lines, "\n"), want)
		}
	}
	if _, _, err := follow(t, filepath.Join(folder, "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestChangesAreApplied(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, "a.yaml", object("A", "one"))
	applied, _, err := follow(t, folder)
	if err != nil || next(t, applied) != "A/one" {
		t.Fatal(err)
	}
	write(t, folder, "b.yaml", object("B", "one"))
	if names := next(t, applied); names != "A/one B/one" {
		t.Error(names)
	}
	// While a file is wrong, what was read before stays.
	write(t, folder, "b.yaml", "apiVersion: [")
	write(t, folder, "c.yaml", object("C", "one"))
	time.Sleep(3 * pollInterval)
	if err := os.Remove(filepath.Join(folder, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	if names := next(t, applied); names != "A/one C/one" {
		t.Error(names)
	}
}

// A ConfigMap is mounted as links through a folder that is exchanged as a whole.
func TestAMountedConfigMapIsRead(t *testing.T) {
	folder := t.TempDir()
	write(t, folder, "..first/a.yaml", object("A", "first"))
	write(t, folder, "..second/a.yaml", object("A", "second"))
	link := func(to, name string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(folder, "new")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(folder, "new"), filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("..first", "..data")
	link(filepath.Join("..data", "a.yaml"), "a.yaml")
	applied, _, err := follow(t, folder)
	if err != nil || next(t, applied) != "A/first" {
		t.Fatal(err)
	}
	link("..second", "..data")
	if names := next(t, applied); names != "A/second" {
		t.Error(names)
	}
}

func TestFlagsThatExcludeEachOther(t *testing.T) {
	for want, source := range map[string]*Source{
		"--policies DIR or --cluster is required":             {},
		"--policies and --cluster exclude each other":         {Folders: []string{"x"}, Cluster: true},
		"--kubeconfig is for --cluster":                       {Folders: []string{"x"}, Kubeconfig: "y"},
		"the cluster: stat absent: no such file or directory": {Cluster: true, Kubeconfig: "absent"},
	} {
		err := source.Follow(t.Context(), nil, func([]Object) error { return nil })
		if err == nil || err.Error() != want {
			t.Errorf("found %v, expected %s", err, want)
		}
	}
}
