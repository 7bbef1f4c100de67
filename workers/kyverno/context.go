package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	kyvernov1 "github.com/kyverno/kyverno/api/kyverno/v1"
	kyvernov2 "github.com/kyverno/kyverno/api/kyverno/v2"
	engineapi "github.com/kyverno/kyverno/pkg/engine/api"
	"github.com/kyverno/kyverno/pkg/engine/apicall"
	enginecontext "github.com/kyverno/kyverno/pkg/engine/context"
	"github.com/kyverno/kyverno/pkg/engine/factories"
	"github.com/kyverno/kyverno/pkg/engine/jmespath"
	"github.com/kyverno/kyverno/pkg/globalcontext/store"
)

const (
	// maxAnswerBytes is how much a service may answer: Kyverno's default.
	maxAnswerBytes = 2 * 1000 * 1000
	// serviceTimeout is for one call; the deadline of the review may be earlier.
	serviceTimeout = 30 * time.Second
	// resourceAge is how old the objects of a GlobalContextEntry may be. Kyverno watches them.
	resourceAge = 10 * time.Second
	// defaultRefresh is the refreshInterval of a GlobalContextEntry with apiCall: the default of its CRD.
	defaultRefresh = 10 * time.Minute
)

// contextLoaders make the loaders of rules' context entries.
type contextLoaders struct {
	access  *access
	data    data
	mocks   *mocks
	entries *globalEntries
}

// contextLoader loads the entries of one rule.
type contextLoader struct {
	*contextLoaders
	policy kyvernov1.PolicyInterface
	rule   string
	inner  engineapi.ContextLoader
}

// of returns the loader of a rule; engineapi.ContextLoaderFactory.
func (c *contextLoaders) of(policy kyvernov1.PolicyInterface, rule kyvernov1.Rule) engineapi.ContextLoader {
	options := []factories.ContextLoaderFactoryOptions{
		factories.WithAPICallConfig(apicall.NewAPICallConfiguration(maxAnswerBytes, serviceTimeout)),
		factories.WithGlobalContextStore(c.entries),
	}
	if c.mocks.isUsed {
		options = append(options, factories.WithInitializer(c.mocks.initialize(policy.GetName(), rule.Name)))
	}
	return &contextLoader{c, policy, rule.Name, factories.DefaultContextLoaderFactory(c.data, options...)(policy, rule)}
}

// Load makes the entries known; each is loaded when it is needed.
func (l *contextLoader) Load(
	ctx context.Context, jp jmespath.Interface, client engineapi.RawClient, registries engineapi.RegistryClientFactory,
	entries []kyvernov1.ContextEntry, known enginecontext.Interface,
) error {
	var loaded []kyvernov1.ContextEntry
	var refused []enginecontext.DeferredLoader
	for _, entry := range entries {
		if l.mocks.isUsed && (entry.APICall != nil || entry.ImageRegistry != nil || entry.GlobalReference != nil) {
			// As `kyverno test`: the values have what such entries would load.
			continue
		}
		if entry.ConfigMap != nil && l.mocks.isUsed && l.mocks.has(l.policy.GetName(), l.rule, entry.Name) {
			continue
		}
		if entry.APICall == nil {
			loaded = append(loaded, entry)
			continue
		}
		entry = *entry.DeepCopy()
		if entry.APICall.Method == "" {
			entry.APICall.Method = "GET"
		}
		if entry.APICall.Service == nil || len(l.access.services) > 0 {
			loaded = append(loaded, entry)
			continue
		}
		deferred, err := enginecontext.NewDeferredLoader(entry.Name, &refusal{entry.Name}, logr.Discard())
		if err != nil {
			return err
		}
		refused = append(refused, deferred)
	}
	if err := l.inner.Load(ctx, jp, client, registries, loaded, known); err != nil {
		return err
	}
	for _, each := range refused {
		if err := known.AddDeferredLoader(each); err != nil {
			return err
		}
	}
	return nil
}

// has reports whether the values have a context entry of a rule.
func (m *mocks) has(policy, rule, entry string) bool {
	isIn := func(values map[string]any) bool {
		for name := range values {
			if name == entry || strings.HasPrefix(name, entry+".") {
				return true
			}
		}
		return false
	}
	if isIn(m.byRule[[2]string{policy, rule}].Values) {
		return true
	}
	for _, each := range m.given {
		if isIn(each.GlobalValues) {
			return true
		}
		for _, of := range each.Policies {
			if of.Name == policy && slices.ContainsFunc(of.Resources, func(n namedValues) bool { return isIn(n.Values) }) {
				return true
			}
		}
	}
	return false
}

// refusal is the loader of a call that the worker may not make.
type refusal struct{ entry string }

// HasLoaded is false: it never loads.
func (r *refusal) HasLoaded() bool { return false }

// LoadData returns why the entry has no value.
func (r *refusal) LoadData() error {
	return fmt.Errorf("context entry %s: calls of services are refused without --service-url", r.entry)
}

// globalEntries are the GlobalContextEntry documents.
type globalEntries struct {
	byName map[string]*globalEntry
}

func newGlobalEntries(given map[string]*kyvernov2.GlobalContextEntry, from data) *globalEntries {
	made := &globalEntries{byName: make(map[string]*globalEntry, len(given))}
	for name, each := range given {
		made.byName[name] = &globalEntry{spec: &each.Spec, from: from, values: make(map[string]any)}
	}
	return made
}

// Get returns an entry by its name.
func (g *globalEntries) Get(name string) (store.Entry, bool) {
	found, isKnown := g.byName[name]
	if !isKnown {
		return nil, false
	}
	return found, true
}

// globalEntry is one GlobalContextEntry, whose value is read when it is needed and too old.
type globalEntry struct {
	spec *kyvernov2.GlobalContextEntrySpec
	from data

	mu     sync.Mutex
	read   time.Time
	values map[string]any
}

// Stop does nothing: nothing runs.
func (g *globalEntry) Stop() {}

// Get returns the value of the entry, or of one of its projections.
func (g *globalEntry) Get(projection string) (any, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.read) > g.age() {
		if err := g.fetch(); err != nil {
			return nil, err
		}
	}
	found, isKnown := g.values[projection]
	if !isKnown {
		return nil, fmt.Errorf("the projection %q is not one of the GlobalContextEntry", projection)
	}
	return found, nil
}

func (g *globalEntry) age() time.Duration {
	switch {
	case g.spec.APICall == nil:
		return resourceAge
	case g.spec.APICall.RefreshInterval == nil:
		return defaultRefresh
	}
	return g.spec.APICall.RefreshInterval.Duration
}

func (g *globalEntry) fetch() error {
	ctx, cancel := context.WithTimeout(context.Background(), serviceTimeout)
	defer cancel()
	value, err := g.value(ctx)
	if err != nil {
		return err
	}
	values := map[string]any{"": value}
	for _, each := range g.spec.Projections {
		query, err := jmes.Query(each.JMESPath)
		if err != nil {
			return err
		}
		if values[each.Name], err = query.Search(value); err != nil {
			return err
		}
	}
	g.read, g.values = time.Now(), values
	return nil
}

func (g *globalEntry) value(ctx context.Context) (any, error) {
	path := ""
	switch resource, call := g.spec.KubernetesResource, g.spec.APICall; {
	case resource != nil:
		path = "/apis/" + resource.Group + "/" + resource.Version
		if resource.Group == "" {
			path = "/api/" + resource.Version
		}
		if resource.Namespace != "" {
			path += "/namespaces/" + resource.Namespace
		}
		path += "/" + resource.Resource
	case call == nil || call.URLPath == "" || call.Method != "" && call.Method != "GET":
		return nil, errors.New("a GlobalContextEntry needs kubernetesResource, or apiCall with urlPath and the method GET")
	default:
		path = call.URLPath
	}
	text, err := g.from.RawAbsPath(ctx, path, "GET", nil)
	if err != nil {
		return nil, err
	}
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		return nil, err
	}
	if g.spec.KubernetesResource == nil {
		return value, nil
	}
	members, _ := value.(map[string]any)
	items, _ := members["items"].([]any)
	if items == nil {
		items = []any{}
	}
	return items, nil
}
