package documents

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// quietTime is the time without a change after which changes are applied, and patience the longest that they wait.
	quietTime = 200 * time.Millisecond
	patience  = 2 * time.Second
	// discoveryInterval is the time between two looks at which kinds the cluster has.
	discoveryInterval = 10 * time.Second
	// callsPerSecond and callsAtOnce are bounds of requests: each kind of constraints has a list of its own, and with the
	// bounds of the library, 5 and 10, the start with 50 of them took 11 s.
	callsPerSecond, callsAtOnce = 100, 200
	lastApplied                 = "kubectl.kubernetes.io/last-applied-configuration"
	// anyKind stands for all kinds of a group.
	anyKind = "*"
)

// RESTConfig returns how to reach the cluster.
func (s *Source) RESTConfig() (*rest.Config, error) {
	if s.Kubeconfig == "" {
		return rest.InClusterConfig()
	}
	return clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
}

// follower follows kinds of a cluster.
type follower struct {
	*Source
	ctx       context.Context
	discovery discovery.DiscoveryInterface
	client    dynamic.Interface
	wanted    Wanted
	apply     func([]Object) error
	// changed has room for one signal.
	changed chan struct{}

	followed map[schema.GroupVersionResource]*followed
	// kinds are those of the last discovery.
	kinds     map[schema.GroupVersionResource]schema.GroupVersionKind
	asked     []schema.GroupVersionKind
	refreshed time.Time
}

// followed is one kind.
type followed struct {
	store cache.Store
	end   context.CancelFunc
	list  cache.Controller

	mu sync.Mutex
	// refused is why the kind cannot be listed; empty: it can, or that is not known yet.
	refused string
}

// newFollower returns a follower that follows nothing yet.
func (s *Source) newFollower(ctx context.Context, wanted Wanted, apply func([]Object) error) (*follower, error) {
	config, err := s.RESTConfig()
	if err != nil {
		return nil, fmt.Errorf("the cluster: %w", err)
	}
	config.QPS, config.Burst = callsPerSecond, callsAtOnce
	asks, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("the cluster: %w", err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("the cluster: %w", err)
	}
	return &follower{
		Source: s, ctx: ctx, discovery: asks, client: client, wanted: wanted, apply: apply, changed: make(chan struct{}, 1),
		followed: make(map[schema.GroupVersionResource]*followed),
	}, nil
}

// followCluster applies the objects of the cluster when all wanted kinds are known, and again after each change.
func (s *Source) followCluster(ctx context.Context, wanted Wanted, apply func([]Object) error) error {
	f, err := s.newFollower(ctx, wanted, apply)
	if err != nil {
		return err
	}
	for !f.isComplete() {
		if err := f.pause(quietTime); err != nil {
			return err
		}
	}
	if err := apply(f.objects()); err != nil {
		return err
	}
	go f.run()
	return nil
}

// run applies changes until the context ends.
func (f *follower) run() {
	complained := ""
	for {
		select {
		case <-f.ctx.Done():
			return
		case <-f.changed:
			f.settle()
		case <-time.After(discoveryInterval):
			if !f.refresh() {
				continue
			}
		}
		for !f.isComplete() {
			if f.pause(quietTime) != nil {
				return
			}
		}
		err := f.apply(f.objects())
		if err != nil && err.Error() != complained {
			f.Log.Printf("documents: %v", err)
		}
		complained = ""
		if err != nil {
			complained = err.Error()
		}
	}
}

// settle waits until there is no change for a while, but not for ever.
func (f *follower) settle() {
	longest := time.After(patience)
	for {
		select {
		case <-f.ctx.Done():
			return
		case <-longest:
			return
		case <-f.changed:
		case <-time.After(quietTime):
			return
		}
	}
}

func (f *follower) pause(interval time.Duration) error {
	select {
	case <-f.ctx.Done():
		return f.ctx.Err()
	case <-time.After(interval):
		return nil
	}
}

// isComplete reports whether all wanted kinds are listed, or cannot be. It begins to follow those that are new, and ends
// to follow those that are not wanted any more.
func (f *follower) isComplete() bool {
	asked := f.wanted(f.objects())
	if f.kinds == nil || time.Since(f.refreshed) > discoveryInterval || !slices.Equal(asked, f.asked) {
		f.asked = asked
		f.refresh()
	}
	if f.kinds == nil {
		return false
	}
	for resource := range f.kinds {
		if f.followed[resource] == nil {
			f.follow(resource)
		}
	}
	for resource, each := range f.followed {
		if _, isWanted := f.kinds[resource]; !isWanted {
			each.end()
			delete(f.followed, resource)
		}
	}
	for _, each := range f.followed {
		if !each.list.HasSynced() && each.why() == "" {
			return false
		}
	}
	return slices.Equal(f.wanted(f.objects()), f.asked)
}

func (f *followed) why() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.refused
}

// refresh asks which of the wanted kinds the cluster has, and returns whether that has changed.
func (f *follower) refresh() (changed bool) {
	f.refreshed = time.Now()
	found, err := f.discover()
	if err != nil {
		f.Log.Printf("documents: the cluster cannot be asked for its kinds, which is tried again: %v", err)
		return false
	}
	f.keep(found)
	changed = !maps.Equal(found, f.kinds)
	f.kinds = found
	return changed
}

// keep adds the kinds that are still asked for and have objects: the answers of an API server that starts can lack kinds.
// When a definition is deleted, its objects are deleted before.
func (f *follower) keep(found map[schema.GroupVersionResource]schema.GroupVersionKind) {
	served := make(map[schema.GroupResource]bool, len(found))
	for resource := range found {
		served[resource.GroupResource()] = true
	}
	for resource, kind := range f.kinds {
		isAsked := slices.ContainsFunc(f.asked, func(asked schema.GroupVersionKind) bool { return isAskedFor(asked, kind) })
		each := f.followed[resource]
		if isAsked && !served[resource.GroupResource()] && each != nil && len(each.store.ListKeys()) > 0 {
			found[resource] = kind
		}
	}
}

// isAskedFor reports whether a kind is one of those asked for.
func isAskedFor(asked, kind schema.GroupVersionKind) bool {
	return asked.Group == kind.Group && (asked.Version == "" || asked.Version == kind.Version) &&
		(asked.Kind == anyKind || asked.Kind == kind.Kind)
}

// versionsOf returns the versions of a group in which a kind is looked for. A kind can lack the preferred one.
func versionsOf(group metav1.APIGroup, asked schema.GroupVersionKind) []string {
	if asked.Version != "" {
		return []string{asked.Version}
	}
	versions := []string{group.PreferredVersion.Version}
	for _, each := range group.Versions {
		if each.Version != group.PreferredVersion.Version {
			versions = append(versions, each.Version)
		}
	}
	return versions
}

// discover returns the wanted kinds that the cluster has, by their resource.
func (f *follower) discover() (map[schema.GroupVersionResource]schema.GroupVersionKind, error) {
	served, err := f.discovery.ServerGroups()
	if err != nil {
		return nil, err
	}
	found := make(map[schema.GroupVersionResource]schema.GroupVersionKind)
	lists := make(map[schema.GroupVersion][]metav1.APIResource)
	listOf := func(version schema.GroupVersion) ([]metav1.APIResource, error) {
		if of, isKnown := lists[version]; isKnown {
			return of, nil
		}
		list, err := f.discovery.ServerResourcesForGroupVersion(version.String())
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
		if list != nil {
			lists[version] = list.APIResources
		}
		return lists[version], nil
	}
	for _, asked := range f.asked {
		for _, group := range served.Groups {
			if group.Name != asked.Group {
				continue
			}
			isFound := make(map[string]bool)
			for _, name := range versionsOf(group, asked) {
				version := schema.GroupVersion{Group: asked.Group, Version: name}
				of, err := listOf(version)
				if err != nil {
					return nil, err
				}
				for _, each := range of {
					isFollowed := !strings.Contains(each.Name, "/") && slices.Contains(each.Verbs, "list") && slices.Contains(each.Verbs, "watch")
					if isFollowed && !isFound[each.Name] && isAskedFor(asked, version.WithKind(each.Kind)) {
						isFound[each.Name] = true
						found[version.WithResource(each.Name)] = version.WithKind(each.Kind)
					}
				}
			}
		}
	}
	return found, nil
}

// follow begins to list and watch a kind.
func (f *follower) follow(resource schema.GroupVersionResource) {
	ctx, end := context.WithCancel(f.ctx)
	made := &followed{end: end}
	of := f.client.Resource(resource)
	calls := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			found, err := of.List(ctx, options)
			made.note(f, resource, err)
			return found, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			// A list may be the begin of a watch.
			found, err := of.Watch(ctx, options)
			made.note(f, resource, err)
			return found, err
		},
	}
	made.store, made.list = cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: calls, ObjectType: &unstructured.Unstructured{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { f.signal() },
			UpdateFunc: func(any, any) { f.signal() },
			DeleteFunc: func(any) { f.signal() },
		},
		Transform: func(object any) (any, error) {
			if found, ok := object.(*unstructured.Unstructured); ok {
				return trimmed(found), nil
			}
			return object, nil
		},
	})
	f.followed[resource] = made
	go made.list.RunWithContext(ctx)
}

// note remembers why a kind cannot be listed, and logs it once.
func (f *followed) note(of *follower, resource schema.GroupVersionResource, err error) {
	refused := ""
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		refused = err.Error()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if refused != "" && refused != f.refused {
		of.Log.Printf("documents: %s cannot be listed; without them, calls of policies that need them fail: %v", resource.GroupResource(), err)
	}
	if refused != f.refused {
		f.refused = refused
		of.signal()
	}
}

// signal says that something has changed.
func (f *follower) signal() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// objects returns all objects, by kind, namespace and name.
func (f *follower) objects() []Object {
	var found []Object
	for _, each := range f.followed {
		for _, object := range each.store.List() {
			found = append(found, Object{object.(*unstructured.Unstructured), "cluster"})
		}
	}
	slices.SortFunc(found, func(a, b Object) int {
		one, other := identityOf(a), identityOf(b)
		return cmp.Or(
			strings.Compare(one.group, other.group), strings.Compare(one.kind, other.kind),
			strings.Compare(one.namespace, other.namespace), strings.Compare(one.name, other.name),
		)
	})
	return found
}

// trimmed drops what no policy reads, and what takes as much memory as the rest.
func trimmed(object *unstructured.Unstructured) *unstructured.Unstructured {
	object.SetManagedFields(nil)
	if annotations := object.GetAnnotations(); annotations[lastApplied] != "" {
		delete(annotations, lastApplied)
		object.SetAnnotations(annotations)
	}
	return object
}
