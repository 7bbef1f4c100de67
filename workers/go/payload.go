package worker

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"admission-gateway.io/worker/internal/tree"
)

// payload is a request as one version of its object, for calls that one goroutine makes one after another. It is
// parsed once for all of them: to an index for those that only read, and to maps for the others.
type payload struct {
	requestJSON, namespaceJSON []byte
	// patches lead from the object of requestJSON to the version; nil: it is that object.
	patches *patches
	// of is the client, and limits are those of its worker; nil in a unit test.
	of     *client
	limits *limits
	// stepped is the time that steps have taken, and progress counts their begins and ends.
	stepped  time.Duration
	progress atomic.Int32

	// request is nil before the first use.
	request map[string]any
	err     error
	// index is that of the version; nil before the first use. Another goroutine may copy it.
	index atomic.Pointer[indexed]
	// shared is set if several calls use the payload.
	shared bool
	// lent is set when a policy has got a part of request. If the payload is shared, the record has its content.
	lent   bool
	record *tree.Record
	// hasVersions is set if versions of the payload share parts of request.
	hasVersions bool
	// made has the values of Review.Shared.
	made map[any]any
}

// indexed is an index, or one without members and why.
type indexed struct {
	index *tree.Index
	err   error
}

// patches are the last one, and those before it. A version of a chain shares them with the versions before.
type patches struct {
	before *patches
	last   []byte
	// bytes is the length of all.
	bytes int
}

// bytes is the length of the JSON of the version, roughly.
func (p *payload) bytes() int {
	if p.patches == nil {
		return len(p.requestJSON) + len(p.namespaceJSON)
	}
	return len(p.requestJSON) + len(p.namespaceJSON) + p.patches.bytes
}

// step does work on the whole document, when it is the turn of its client.
func (p *payload) step(work func()) {
	if p.bytes() < stepBytes {
		work()
		return
	}
	start := time.Now()
	p.progress.Add(1)
	defer func() {
		p.progress.Add(1)
		p.stepped += time.Since(start)
	}()
	p.limits.step(p.of, p.bytes(), work)
}

// parse returns the request, or an empty object and an error.
func (p *payload) parse() (map[string]any, error) {
	if p.request == nil {
		p.step(p.parseNow)
	}
	return p.request, p.err
}

func (p *payload) parseNow() {
	if p.shared && p.patches == nil {
		p.record = &tree.Record{}
	}
	p.request, p.err = parseObject("admission_request", p.requestJSON, p.record)
	if p.err != nil {
		p.request = map[string]any{}
	}
	var inOrder [][]byte
	for each := p.patches; each != nil; each = each.before {
		inOrder = append(inOrder, each.last)
	}
	for _, patch := range slices.Backward(inOrder) {
		p.patch(patch)
	}
}

// lend returns the request for a policy that may keep and change parts of it.
func (p *payload) lend() map[string]any {
	request, _ := p.parse()
	if p.shared && p.record == nil {
		p.step(func() { p.record = tree.NewRecord(request) })
	}
	p.lent = true
	return request
}

// isIntact reports whether no policy has changed the request.
func (p *payload) isIntact() (isIntact bool) {
	if !p.lent || p.record == nil {
		return true
	}
	p.step(func() { isIntact = p.record.Unchanged() })
	return isIntact
}

// forget drops the parsed form; the next use parses again.
func (p *payload) forget() { p.request, p.err, p.lent, p.record = nil, nil, false, nil }

func (p *payload) keep(key, value any) {
	if p.made == nil {
		p.made = make(map[any]any)
	}
	p.made[key] = value
}

// after returns the version of the payload after a patch, for other calls of the same goroutine.
func (p *payload) after(patch []byte) *payload {
	changed := p.fresh()
	changed.index.Store(nil)
	changed.patches = &patches{before: p.patches, last: patch, bytes: len(patch)}
	if p.patches != nil {
		changed.patches.bytes += p.patches.bytes
	}
	if p.request != nil {
		p.hasVersions = true
		changed.request, changed.err = maps.Clone(p.request), p.err
		p.step(func() { changed.patch(patch) })
	}
	return changed
}

// fresh returns the same version for another goroutine, which parses it again to maps.
func (p *payload) fresh() *payload {
	same := &payload{
		requestJSON: p.requestJSON, namespaceJSON: p.namespaceJSON, patches: p.patches, of: p.of, limits: p.limits,
	}
	same.index.Store(p.index.Load())
	return same
}

// patch changes the object. A patch that does not apply is a failure of its webhook, and changes nothing.
func (p *payload) patch(patch []byte) {
	operations, err := tree.Parse(patch, nil)
	if err != nil {
		return
	}
	if object, err := tree.Apply(p.request["object"], operations); err == nil {
		p.request["object"] = object
	}
}

// parseObject returns the members of the JSON object text, and adds its containers to a record that is not nil.
func parseObject(what string, text []byte, record *tree.Record) (map[string]any, error) {
	value, err := tree.Parse(text, record)
	if err != nil {
		return nil, &malformed{fmt.Sprintf("%s is not JSON: %v", what, err)}
	}
	found := "null"
	switch value := value.(type) {
	case map[string]any:
		return value, nil
	case []any:
		found = "array"
	case string:
		found = "string"
	case json.Number:
		found = "number"
	case bool:
		found = "bool"
	}
	return nil, &malformed{fmt.Sprintf("%s is to be a JSON object, found %s", what, found)}
}
