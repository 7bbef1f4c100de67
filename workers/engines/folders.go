package documents

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

const (
	// pollInterval is the time between two looks at the files. A change is read when two looks find the same: it may still
	// be written.
	pollInterval = time.Second
	// maxDepth is how deep folders are read.
	maxDepth = 16
	// maxFileBytes is the limit of one file, and maxFiles that of their number.
	maxFileBytes = 64 * 1024 * 1024
	maxFiles     = 100_000
)

// stamp tells versions of a file apart.
type stamp struct {
	path     string
	bytes    int64
	modified time.Time
}

// listing has the files by their path.
type listing map[string]stamp

// files returns the files with documents. A ConfigMap that is mounted has links to files behind names with a leading dot,
// which are left out.
func files(folders []string) (listing, error) {
	found := make(listing)
	for _, folder := range folders {
		if err := found.add(folder, 0); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (l listing) add(folder string, depth int) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		path := filepath.Join(folder, entry.Name())
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		// What a link leads to.
		about, err := os.Stat(path)
		switch {
		case errors.Is(err, os.ErrNotExist):
			continue
		case err != nil:
			return err
		case about.IsDir() && depth == maxDepth:
			return fmt.Errorf("%s: more than %d folders deep", path, maxDepth)
		case about.IsDir():
			if err := l.add(path, depth+1); err != nil {
				return err
			}
		case hasDocuments(path) && about.Mode().IsRegular():
			if about.Size() > maxFileBytes {
				return fmt.Errorf("%s: found %d bytes, expected at most %d", path, about.Size(), maxFileBytes)
			}
			l[path] = stamp{path, about.Size(), about.ModTime()}
		}
		if len(l) > maxFiles {
			return fmt.Errorf("%s: more than %d files", folder, maxFiles)
		}
	}
	return nil
}

func hasDocuments(path string) bool {
	switch filepath.Ext(path) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// reader reads files that have changed.
type reader struct {
	folders []string
	seen    map[stamp][]Object
}

// read returns the objects of all files, in the order of their paths, and the files that were read.
func (r *reader) read() ([]Object, listing, error) {
	found, err := files(r.folders)
	if err != nil {
		return nil, nil, err
	}
	seen := make(map[stamp][]Object, len(found))
	var objects []Object
	var problems []error
	for _, path := range slices.Sorted(maps.Keys(found)) {
		of, isKnown := r.seen[found[path]]
		if !isKnown {
			text, err := os.ReadFile(path)
			if err == nil {
				of, err = Parse(path, text)
			}
			if err != nil {
				problems = append(problems, err)
			}
		}
		seen[found[path]] = of
		objects = append(objects, of...)
	}
	if problems = append(problems, repeated(objects)...); len(problems) == 0 {
		r.seen = seen
	}
	return objects, found, errors.Join(problems...)
}

// Parse returns the documents of a file with this path: YAML, or JSON, of which YAML is a superset. The items of a List
// are documents. The error has all problems, a line each.
func Parse(path string, text []byte) ([]Object, error) {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	var found []Object
	var problems []error
	for number := 1; ; number++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return found, errors.Join(problems...)
		}
		place := fmt.Sprintf("%s: document %d", path, number)
		if err == nil {
			var of []Object
			of, err = parseDocument(place, document)
			found = append(found, of...)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %s", place, strings.Join(strings.Fields(err.Error()), " ")))
		}
	}
}

func parseDocument(place string, text []byte) ([]Object, error) {
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil || string(asJSON) == "null" {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(asJSON); err != nil {
		return nil, err
	}
	if !object.IsList() {
		return single(place, object)
	}
	var found []Object
	err = object.EachListItem(func(item runtime.Object) error {
		of, err := single(place, item.(*unstructured.Unstructured))
		found = append(found, of...)
		return err
	})
	return found, err
}

func single(place string, object *unstructured.Unstructured) ([]Object, error) {
	if object.GetAPIVersion() == "" || object.GetKind() == "" {
		return nil, errors.New("apiVersion and kind are required")
	}
	return []Object{{trimmed(object), place}}, nil
}

// followFolders applies the documents of the folders, and again after each change.
func (s *Source) followFolders(ctx context.Context, apply func([]Object) error) error {
	reads := &reader{folders: s.Folders}
	objects, applied, err := reads.read()
	if err == nil {
		err = apply(objects)
	}
	if err != nil {
		return err
	}
	go func() {
		ticks := time.NewTicker(pollInterval)
		defer ticks.Stop()
		var before listing
		complained := ""
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
			found, err := files(s.Folders)
			if err == nil && (maps.Equal(found, applied) || !maps.Equal(found, before)) {
				before = found
				continue
			}
			if err == nil {
				if objects, applied, err = reads.read(); err == nil {
					complained, err = "", apply(objects)
				} else if applied == nil {
					applied = before
				}
			}
			if err != nil && err.Error() != complained {
				complained = err.Error()
				s.Log.Printf("documents: what was read before stays in force, because of this: %v", err)
			}
		}
	}()
	return nil
}
