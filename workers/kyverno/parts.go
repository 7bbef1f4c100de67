package main

import (
	"crypto/rand"
	"fmt"
	"maps"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	kyvernov1 "github.com/kyverno/kyverno/api/kyverno/v1"
	autogen "github.com/kyverno/kyverno/pkg/autogen"
	"github.com/kyverno/kyverno/pkg/engine/anchor"
	"sigs.k8s.io/kustomize/kyaml/openapi"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// Kyverno writes an object as YAML, and has kustomize walk through all of it, for each patchStrategicMerge. Here it gets a part of the
// object: all that the patch names, all single values, and `metadata`. A subtree that the patch does not name is left out if kustomize
// would leave it as it is, and is put back into what Kyverno returns.

// mergePatches are the strategic merge patches of a policy.
type mergePatches []any

// mergePatchesOf returns the patches of a policy whose rules need a part of the object only; nil if they need all of it. That is so
// if it has other patches, or if its rules are applied one after another: variables of a later one see the object.
func mergePatchesOf(policy kyvernov1.PolicyInterface) mergePatches {
	spec := policy.GetSpec()
	if len(spec.Rules) != 1 || len(spec.GetMatchConditions()) > 0 {
		return nil
	}
	var all mergePatches
	for _, rule := range autogen.Default.ComputeRules(policy, "") {
		if rule.Mutation == nil {
			return nil
		}
		patch := rule.Mutation.GetPatchStrategicMerge()
		if each := rule.Mutation.ForEachMutation; each != nil {
			if len(each) != 1 || len(each[0].GetForEachMutation()) > 0 {
				return nil
			}
			patch = each[0].GetPatchStrategicMerge()
		}
		members, isObject := patch.(map[string]any)
		if !isObject || !hasPlainKeys(members) {
			return nil
		}
		all = append(all, members)
	}
	return all
}

// mergePatchesIn returns the patches of the policies of a state that need a part of an object only.
func mergePatchesIn(s *state) map[kyvernov1.PolicyInterface]mergePatches {
	made := make(map[kyvernov1.PolicyInterface]mergePatches)
	add := func(policy kyvernov1.PolicyInterface) {
		if policy == nil || !policy.GetSpec().HasMutate() {
			return
		}
		// kustomize reads its schemas when it needs them first, which takes too long for a review.
		shapes.of("v1", "Pod")
		if found := mergePatchesOf(policy); found != nil {
			made[policy] = found
		}
	}
	for _, policy := range s.policies {
		add(policy)
	}
	for index := range s.served {
		add(s.served[index].policy)
	}
	return made
}

// hasPlainKeys reports whether no key has variables or wildcards.
func hasPlainKeys(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		for key, member := range value {
			if strings.ContainsAny(key, "{$*?") || !hasPlainKeys(member) {
				return false
			}
		}
	case []any:
		for _, element := range value {
			if !hasPlainKeys(element) {
				return false
			}
		}
	}
	return true
}

// named returns what the patches have for a field, and whether it is needed as a whole.
func (p mergePatches) named(field string) (found mergePatches, isWhole bool) {
	for _, each := range p {
		for key, value := range each.(map[string]any) {
			if key == field {
				found = append(found, value)
			} else if parsed := anchor.Parse(key); parsed != nil && parsed.Key() == field {
				return nil, true
			}
		}
	}
	return found, false
}

// leftOut are the members that objects of a part lack. Such an object has its index as the member with the name indexMember.
type leftOut []map[string]any

// indexMember is a name that no object has: nobody knows it.
var indexMember = "part-" + rand.Text()

// partOf returns the part of an object that patches need.
func (p mergePatches) partOf(object map[string]any) (map[string]any, *leftOut) {
	lacks := &leftOut{}
	version, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	of := shapes.of(version, kind)
	made := lacks.object(p, object, of, true)
	return made, lacks
}

func (l *leftOut) object(patches mergePatches, object map[string]any, of *shape, isRoot bool) map[string]any {
	var made, lacks map[string]any
	for field, value := range object {
		part := value
		switch found, isWhole := patches.named(field); {
		case isWhole:
			continue
		case isRoot && field == "metadata":
			part = l.metadata(found, value, of.field(field))
		case len(found) > 0:
			part = l.value(found, value, of.field(field))
		case isSingle(value) || !of.field(field).isKept(value):
			continue
		default:
			if lacks == nil {
				lacks = make(map[string]any)
			}
			lacks[field] = value
		}
		if made == nil {
			made = maps.Clone(object)
		}
		made[field] = part
	}
	if lacks != nil {
		for field := range lacks {
			delete(made, field)
		}
		made[indexMember] = l.add(lacks)
	}
	if made == nil {
		return object
	}
	return made
}

// metadata returns all of the metadata but managedFields: whether a rule is for the object depends on the rest.
func (l *leftOut) metadata(patches mergePatches, value any, of *shape) any {
	const name = "managedFields"
	members, _ := value.(map[string]any)
	managed := members[name]
	if managed == nil || !areObjects(patches) || !of.field(name).isKept(managed) {
		return value
	}
	if found, isWhole := patches.named(name); isWhole || len(found) > 0 {
		return value
	}
	members = maps.Clone(members)
	delete(members, name)
	members[indexMember] = l.add(map[string]any{name: managed})
	return members
}

func (l *leftOut) add(lacks map[string]any) int64 {
	*l = append(*l, lacks)
	return int64(len(*l) - 1)
}

// value returns the part of a value that the patches have, too.
func (l *leftOut) value(patches mergePatches, value any, of *shape) any {
	switch value := value.(type) {
	case map[string]any:
		if areObjects(patches) {
			return l.object(patches, value, of, false)
		}
	case []any:
		var elements mergePatches
		for _, each := range patches {
			list, isList := each.([]any)
			if !isList || !areObjects(list) {
				return value
			}
			elements = append(elements, list...)
		}
		if !areObjects(value) {
			return value
		}
		made := make([]any, len(value))
		for index, element := range value {
			made[index] = l.object(elements, element.(map[string]any), of.element(), false)
		}
		return made
	}
	return value
}

func areObjects(values []any) bool {
	for _, each := range values {
		if _, isObject := each.(map[string]any); !isObject {
			return false
		}
	}
	return true
}

// complete returns a changed part with what it lacks.
func (l leftOut) complete(value any) any {
	switch value := value.(type) {
	case map[string]any:
		made := make(map[string]any, len(value))
		for field, member := range value {
			if field != indexMember {
				made[field] = l.complete(member)
				continue
			}
			if index, isIndex := member.(int64); isIndex && int(index) < len(l) {
				maps.Copy(made, l[index])
			}
		}
		return made
	case []any:
		made := make([]any, len(value))
		for index, element := range value {
			made[index] = l.complete(element)
		}
		return made
	}
	return value
}

func isSingle(value any) bool {
	switch value.(type) {
	case map[string]any, []any:
		return false
	}
	return true
}

// shape is what kustomize's schemas say of a field. It is nil for fields without a schema.
type shape struct {
	schema *openapi.ResourceSchema
	// isMerged is set for lists that are merged: by keys, or by values if there are none.
	isMerged bool
	keys     []string
	// parts are the shapes of fields and elements by name, as far as they were needed.
	parts sync.Map
}

// kindShapes are the shapes of kinds. They are made when they are needed, and there are only as many as kustomize has schemas of.
type kindShapes struct {
	mu     sync.Mutex
	byKind map[yaml.TypeMeta]*shape
}

var shapes = kindShapes{byKind: make(map[yaml.TypeMeta]*shape)}

func (k *kindShapes) of(version, kind string) *shape {
	key := yaml.TypeMeta{APIVersion: version, Kind: kind}
	k.mu.Lock()
	defer k.mu.Unlock()
	found := k.byKind[key]
	if found == nil {
		if found = newShape(openapi.SchemaForResourceType(key)); found != nil {
			k.byKind[key] = found
		}
	}
	return found
}

func newShape(schema *openapi.ResourceSchema) *shape {
	if schema == nil {
		return nil
	}
	made := &shape{schema: schema}
	strategy, keys := schema.PatchStrategyAndKeyList()
	for each := range strings.SplitSeq(strategy, ",") {
		if each == "merge" {
			made.isMerged, made.keys = true, keys
		}
	}
	return made
}

// field returns the shape of a field. Those of the members of a map are the same, whatever their names.
func (s *shape) field(name string) *shape {
	if s == nil {
		return nil
	}
	if _, isNamed := s.schema.Schema.Properties[name]; !isNamed {
		if s.schema.Schema.AdditionalProperties == nil {
			return nil
		}
		name = ""
	}
	return s.part(name, func() *openapi.ResourceSchema { return s.schema.Field(name) })
}

// element returns the shape of the elements of a list.
func (s *shape) element() *shape {
	if s == nil {
		return nil
	}
	return s.part(openapi.Elements, s.schema.Elements)
}

func (s *shape) part(name string, read func() *openapi.ResourceSchema) *shape {
	found, isKnown := s.parts.Load(name)
	if !isKnown {
		found, _ = s.parts.LoadOrStore(name, newShape(read()))
	}
	return found.(*shape)
}

// isKept reports whether kustomize surely leaves a value as it is that a patch does not name.
func (s *shape) isKept(value any) bool {
	switch value := value.(type) {
	case string:
		return isPlain(value)
	case bool, int64:
		return true
	case map[string]any:
		if value["apiVersion"] != nil && value["kind"] != nil {
			// The schema is that of the kind.
			return false
		}
		for field, member := range value {
			if !isPlainKey(field) || !s.field(field).isKept(member) {
				return false
			}
		}
		return true
	case []any:
		if s != nil && s.isMerged && !isMergedAsIs(value, s.keys) {
			return false
		}
		for _, element := range value {
			if _, isList := element.([]any); isList || !s.element().isKept(element) {
				return false
			}
		}
		return true
	}
	return false
}

// isMergedAsIs reports whether the elements of a list are different ones: by the first key, and have the same keys.
func isMergedAsIs(list []any, keys []string) bool {
	known := make(map[string]bool, len(list))
	for _, element := range list {
		by := element
		if members, isObject := element.(map[string]any); isObject == (len(keys) == 0) {
			return false
		} else if isObject {
			by = members[keys[0]]
			for _, key := range keys[1:] {
				first := list[0].(map[string]any)[key]
				if member := members[key]; (member == nil) != (first == nil) || member == "" || member != nil && !isSingle(member) {
					return false
				}
			}
		}
		text := fmt.Sprint(by)
		if by == nil || text == "" || !isSingle(by) || known[text] {
			return false
		}
		known[text] = true
	}
	return true
}

const maxKey = 256

// isPlainKey reports whether YAML has no other meaning for a key.
func isPlainKey(key string) bool {
	return len(key) <= maxKey && key != "" && key != "<<" && isPlain(key) && !strings.ContainsAny(key, "\n\t")
}

// isPlain reports whether a text surely stays the same in YAML.
func isPlain(text string) bool {
	for _, each := range text {
		if each < ' ' && each != '\n' && each != '\t' || each == utf8.RuneError || each > unicode.MaxLatin1 || each >= 0x7f && each <= 0xa0 {
			return false
		}
	}
	return true
}
