// Package documents gives workers that run the policies of another engine the engine's documents: those of folders, or
// those of a cluster, and again whenever they change.
package documents

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Object is an object with where it was found: FILE: document N, or "cluster". It is shared, and must not be changed. One
// that has not changed is the same pointer in the next list.
type Object struct {
	*unstructured.Unstructured
	Place string
}

// Source is where documents come from, by the flags of [Source.Define].
type Source struct {
	// Folders have files with documents.
	Folders []string
	// Cluster reads the documents in a cluster instead, and Kubeconfig names a file with how to reach it; empty: the
	// account of the Pod.
	Cluster    bool
	Kubeconfig string
	// Log gets what is wrong while documents are followed.
	Log *log.Logger
}

// Usage describes the flags in the output of --help.
const Usage = `  --policies DIR      read the documents in this folder and below, repeatable
  --cluster           read them in the cluster instead, and follow them there
  --kubeconfig FILE   how to reach the cluster; default: the account of the Pod
`

// Define adds the flags.
func (s *Source) Define(flags *flag.FlagSet) {
	flags.Func("policies", "", func(folder string) error {
		s.Folders = append(s.Folders, folder)
		return nil
	})
	flags.BoolVar(&s.Cluster, "cluster", false, "")
	flags.StringVar(&s.Kubeconfig, "kubeconfig", "", "")
}

// Wanted returns the kinds of a cluster that are followed, by the objects that were found so far. A kind * stands for all
// of its group, and an empty version for the one that the API server prefers. Kinds that the cluster does not have are
// followed as soon as it has them.
type Wanted func(current []Object) []schema.GroupVersionKind

// Follow calls apply with all objects: once before it returns, and again after each change until ctx ends, one call at a
// time. It returns what is wrong with the flags, the documents or the cluster, and an error of the first call. Later,
// documents that cannot be read are logged, and apply is not called until they can; the same for its errors.
func (s *Source) Follow(ctx context.Context, wanted Wanted, apply func([]Object) error) error {
	switch {
	case s.Cluster && len(s.Folders) > 0:
		return errors.New("--policies and --cluster exclude each other")
	case s.Kubeconfig != "" && !s.Cluster:
		return errors.New("--kubeconfig is for --cluster")
	case s.Cluster:
		return s.followCluster(ctx, wanted, apply)
	case len(s.Folders) == 0:
		return errors.New("--policies DIR or --cluster is required")
	}
	return s.followFolders(ctx, apply)
}

// identity is what makes two documents versions of one object.
type identity struct{ group, kind, namespace, name string }

func identityOf(object Object) identity {
	kind := object.GroupVersionKind()
	return identity{kind.Group, kind.Kind, object.GetNamespace(), object.GetName()}
}

// repeated returns a problem for each object that stands twice. Documents without a name are no objects of a cluster.
func repeated(objects []Object) (problems []error) {
	places := make(map[identity]string, len(objects))
	for _, object := range objects {
		if object.GetName() == "" {
			continue
		}
		key := identityOf(object)
		if place, isKnown := places[key]; isKnown {
			problems = append(problems, fmt.Errorf("%s: %s %s stands in %s already", object.Place, key.kind, key.name, place))
			continue
		}
		places[key] = object.Place
	}
	return problems
}
