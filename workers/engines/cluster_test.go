package documents

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// cluster is as much of an API server as the source uses: kinds of the group example.com that come and go.
type cluster struct {
	mu      sync.Mutex
	version int
	// objects are by resource and name; a resource without objects is a kind, too.
	objects map[string]map[string]string
	// forbidden are resources that cannot be listed, hidden those that discovery lacks, and older those of the version
	// v1alpha1.
	forbidden, hidden, older map[string]bool
	changed                  *sync.Cond
	// events are all changes, with the version that they made.
	events []event
	closed bool
}

type event struct {
	version        int
	resource, text string
}

func newCluster(t *testing.T) (*cluster, string) {
	t.Helper()
	made := &cluster{
		objects:   make(map[string]map[string]string),
		forbidden: make(map[string]bool), hidden: make(map[string]bool), older: make(map[string]bool),
	}
	made.changed = sync.NewCond(&made.mu)
	server := httptest.NewServer(made)
	t.Cleanup(func() {
		made.mu.Lock()
		made.closed = true
		made.changed.Broadcast()
		made.mu.Unlock()
		server.CloseClientConnections()
		server.Close()
	})
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
		"clusters": [{"name": "c", "cluster": {"server": %q}}], "users": [{"name": "u", "user": {}}]}`, server.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return made, path
}

func (c *cluster) set(resource string, names ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.objects[resource] == nil {
		c.objects[resource] = make(map[string]string)
	}
	for _, name := range names {
		c.version++
		text := fmt.Sprintf(`{"apiVersion": "example.com/v1", "kind": %q, "metadata": {"name": %q, "resourceVersion": "%d"}}`,
			kindOf(resource), name, c.version)
		c.objects[resource][name] = text
		c.events = append(c.events, event{c.version, resource, fmt.Sprintf(`{"type": "ADDED", "object": %s}`, text)})
	}
	c.changed.Broadcast()
}

func (c *cluster) remove(resource, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version++
	text := fmt.Sprintf(`{"apiVersion": "example.com/v1", "kind": %q, "metadata": {"name": %q, "resourceVersion": "%d"}}`,
		kindOf(resource), name, c.version)
	delete(c.objects[resource], name)
	c.events = append(c.events, event{c.version, resource, fmt.Sprintf(`{"type": "DELETED", "object": %s}`, text)})
	c.changed.Broadcast()
}

func kindOf(resource string) string { return strings.ToUpper(strings.TrimSuffix(resource, "s")) }

// ServeHTTP answers discovery, lists and watches.
func (c *cluster) ServeHTTP(answer http.ResponseWriter, asked *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	answer.Header().Set("Content-Type", "application/json")
	version, resource, _ := strings.Cut(strings.TrimPrefix(asked.URL.Path, "/apis/example.com/"), "/")
	switch {
	case asked.URL.Path == "/api":
		fmt.Fprint(answer, `{"kind": "APIVersions", "versions": ["v1"]}`)
	case asked.URL.Path == "/apis":
		fmt.Fprint(answer, `{"kind": "APIGroupList", "apiVersion": "v1", "groups": [{"name": "example.com",
			"versions": [{"groupVersion": "example.com/v1", "version": "v1"}, {"groupVersion": "example.com/v1alpha1", "version": "v1alpha1"}],
			"preferredVersion": {"groupVersion": "example.com/v1", "version": "v1"}}]}`)
	case resource == "":
		var kinds []map[string]any
		for name := range c.objects {
			if !c.hidden[name] && c.older[name] == (version == "v1alpha1") {
				kinds = append(kinds, map[string]any{"name": name, "kind": kindOf(name), "verbs": []string{"list", "watch"}})
			}
		}
		_ = json.NewEncoder(answer).Encode(map[string]any{"kind": "APIResourceList", "groupVersion": "example.com/" + version, "resources": kinds})
	case c.forbidden[resource]:
		answer.WriteHeader(http.StatusForbidden)
		fmt.Fprint(answer, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403, "message": "no right"}`)
	case asked.URL.Query().Get("sendInitialEvents") != "":
		// As an API server without lists by watches.
		answer.WriteHeader(http.StatusUnprocessableEntity)
		fmt.Fprint(answer, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422}`)
	case asked.URL.Query().Get("watch") != "":
		c.watch(answer, asked, resource)
	default:
		var items []json.RawMessage
		for _, text := range c.objects[resource] {
			items = append(items, json.RawMessage(text))
		}
		_ = json.NewEncoder(answer).Encode(map[string]any{
			"kind": kindOf(resource) + "List", "apiVersion": "example.com/v1", "items": items,
			"metadata": map[string]any{"resourceVersion": fmt.Sprint(c.version)},
		})
	}
}

func (c *cluster) watch(answer http.ResponseWriter, asked *http.Request, resource string) {
	var from int
	_, _ = fmt.Sscan(asked.URL.Query().Get("resourceVersion"), &from)
	answer.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(answer).Flush()
	for !c.closed && asked.Context().Err() == nil {
		for _, each := range c.events {
			if each.version > from && each.resource == resource {
				from = each.version
				fmt.Fprintln(answer, each.text)
			}
		}
		_ = http.NewResponseController(answer).Flush()
		c.changed.Wait()
	}
}

// lines is a log that a test reads while it is written.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestKindsOfAClusterAreFollowed(t *testing.T) {
	served, kubeconfig := newCluster(t)
	served.set("as", "one")
	served.set("bs", "two", "three")
	served.set("cs", "hidden")
	applied := make(chan string, 100)
	logged := &lines{}
	source := &Source{Cluster: true, Kubeconfig: kubeconfig, Log: log.New(logged, "", 0)}
	// The second kind is wanted once there is an object of the first.
	wanted := func(current []Object) []schema.GroupVersionKind {
		kinds := []schema.GroupVersionKind{{Group: "example.com", Kind: "A"}}
		if len(current) > 0 {
			kinds = append(kinds, schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "B"})
		}
		return kinds
	}
	err := source.Follow(t.Context(), wanted, func(objects []Object) error {
		applied <- namesOf(objects)
		return nil
	})
	if names := next(t, applied); err != nil || names != "A/one B/three B/two" {
		t.Fatal(names, err)
	}
	served.set("bs", "four")
	if names := next(t, applied); names != "A/one B/four B/three B/two" {
		t.Error(names)
	}
}

func TestAllKindsOfAGroupAreFollowed(t *testing.T) {
	served, kubeconfig := newCluster(t)
	served.set("as", "one")
	served.set("bs", "two")
	served.set("cs", "hidden")
	served.forbidden["cs"] = true
	applied := make(chan string, 100)
	logged := &lines{}
	source := &Source{Cluster: true, Kubeconfig: kubeconfig, Log: log.New(logged, "", 0)}
	all := func([]Object) []schema.GroupVersionKind {
		return []schema.GroupVersionKind{{Group: "example.com", Kind: "*"}, {Group: "absent.example.com", Kind: "*"}}
	}
	err := source.Follow(t.Context(), all, func(objects []Object) error {
		applied <- namesOf(objects)
		return nil
	})
	if names := next(t, applied); err != nil || names != "A/one B/two" {
		t.Fatal(names, err)
	}
	if text := logged.String(); strings.Count(text, "cs.example.com cannot be listed") != 1 {
		t.Error(text)
	}
	// A kind that comes is found within an interval of discovery.
	served.set("ds", "new")
	for next(t, applied) != "A/one B/two D/new" {
	}
}

// followKinds returns a follower of all kinds, of which each is complete.
func followKinds(t *testing.T, kubeconfig string) *follower {
	t.Helper()
	source := &Source{Cluster: true, Kubeconfig: kubeconfig, Log: log.New(&lines{}, "", 0)}
	all := func([]Object) []schema.GroupVersionKind {
		return []schema.GroupVersionKind{{Group: "example.com", Kind: "*"}}
	}
	f, err := source.newFollower(t.Context(), all, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.untilComplete(t)
	return f
}

func (f *follower) untilComplete(t *testing.T) {
	t.Helper()
	for !f.isComplete() {
		if err := f.pause(quietTime / 10); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAKindThatHasNoPreferredVersionIsFollowed(t *testing.T) {
	served, kubeconfig := newCluster(t)
	served.older["bs"] = true
	served.set("as", "one")
	served.set("bs", "two")
	if names := namesOf(followKinds(t, kubeconfig).objects()); names != "A/one B/two" {
		t.Error(names)
	}
}

// An API server that starts can lack kinds in its answers, and those that it had must not be forgotten for that.
func TestAKindWithObjectsStaysWhenDiscoveryLacksIt(t *testing.T) {
	served, kubeconfig := newCluster(t)
	served.set("as", "one")
	served.set("bs", "two")
	f := followKinds(t, kubeconfig)
	served.mu.Lock()
	served.hidden["bs"] = true
	served.mu.Unlock()
	if f.refresh() {
		t.Error("the kinds have changed")
	}
	f.untilComplete(t)
	if names := namesOf(f.objects()); names != "A/one B/two" {
		t.Error(names)
	}
	served.remove("bs", "two")
	for namesOf(f.objects()) != "A/one" {
		if err := f.pause(quietTime / 10); err != nil {
			t.Fatal(err)
		}
	}
	if !f.refresh() || len(f.kinds) != 1 {
		t.Errorf("got %v", f.kinds)
	}
}
