package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"strings"

	jsoniter "github.com/json-iterator/go"
	kyvernov1 "github.com/kyverno/kyverno/api/kyverno/v1"
	kyvernov2 "github.com/kyverno/kyverno/api/kyverno/v2"
	"github.com/kyverno/kyverno/pkg/config"
	enginecontext "github.com/kyverno/kyverno/pkg/engine/context"
	"github.com/kyverno/kyverno/pkg/engine/jsonutils"
	imageutils "github.com/kyverno/kyverno/pkg/utils/api"
	datautils "github.com/kyverno/kyverno/pkg/utils/data"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// jsonContext has the variables of an evaluation, as Kyverno's own (kyverno:pkg/engine/context/context.go), which copies all of them for
// each rule and each element of a list. Here values never change: a change replaces the maps on its path, so that a checkpoint is a
// reference. What is added is not changed either, and must not be changed by others.
type jsonContext struct {
	// Interface is nil. Its method that only Kyverno's packages can name is for attestations of images, which are not served.
	enginecontext.Interface
	members     map[string]any
	checkpoints []map[string]any
	operation   kyvernov1.AdmissionOperation
	deferred    enginecontext.DeferredLoaders
	images      map[string]map[string]imageutils.ImageInfo
	// until ends with the call that is evaluated: the engine itself does not look at it between the elements of a list.
	until context.Context
	// size is that of the context entries, which has a limit.
	size int64
}

var _ enginecontext.Interface = &jsonContext{}

// anyJSON decodes as Kyverno does.
var anyJSON = jsoniter.ConfigCompatibleWithStandardLibrary

func newJSONContext(members map[string]any) *jsonContext {
	return &jsonContext{members: members, deferred: enginecontext.NewDeferredLoaders(), until: context.Background()}
}

// merge replaces the members on the path by those with the value, which is merged if it is an object.
func (c *jsonContext) merge(value any, overwrites bool, path ...string) error {
	if of := reflect.ValueOf(value); of.Kind() == reflect.Struct || of.Kind() == reflect.Pointer && of.Elem().Kind() == reflect.Struct {
		members, err := runtime.DefaultUnstructuredConverter.ToUnstructured(value)
		if err != nil {
			return err
		}
		value = members
	}
	for index := len(path) - 1; index >= 0; index-- {
		value = map[string]any{path[index]: value}
	}
	c.members = merged(value.(map[string]any), c.members, overwrites)
	return nil
}

// merged returns an object with the members of from and into.
func merged(from, into map[string]any, overwrites bool) map[string]any {
	made := maps.Clone(into)
	if made == nil {
		made = make(map[string]any, len(from))
	}
	for key, value := range from {
		if of, isObject := value.(map[string]any); isObject && !overwrites {
			if into, isObject := made[key].(map[string]any); isObject {
				value = merged(of, into, false)
			}
		}
		made[key] = value
	}
	return made
}

// replace sets a member of the request.
func (c *jsonContext) replace(key string, value map[string]any) error {
	if request, isObject := c.members["request"].(map[string]any); isObject {
		request = maps.Clone(request)
		delete(request, key)
		c.members = maps.Clone(c.members)
		c.members["request"] = request
	}
	return c.merge(value, false, "request", key)
}

// AddRequest adds a request.
func (c *jsonContext) AddRequest(request admissionv1.AdmissionRequest) error {
	members, err := jsonutils.DocumentToUntyped(request)
	if err != nil {
		return err
	}
	c.operation = kyvernov1.AdmissionOperation(request.Operation)
	return c.merge(members, false, "request")
}

// AddVariable adds a variable; the name may be a path.
func (c *jsonContext) AddVariable(name string, value any) error {
	reader := csv.NewReader(strings.NewReader(name))
	reader.Comma = '.'
	path, err := reader.Read()
	if err != nil {
		return err
	}
	return c.merge(value, false, path...)
}

// AddContextEntry adds the value of a context entry.
func (c *jsonContext) AddContextEntry(name string, text []byte) error {
	return c.addEntry(name, text, false)
}

// ReplaceContextEntry adds the value of a context entry, and drops the last one.
func (c *jsonContext) ReplaceContextEntry(name string, text []byte) error {
	return c.addEntry(name, text, true)
}

func (c *jsonContext) addEntry(name string, text []byte, replaces bool) error {
	size, limit := c.size+int64(len(text)), configuration.GetMaxContextSize()
	if limit > 0 && size > limit {
		return enginecontext.ContextSizeLimitExceededError{Size: size, Limit: limit}
	}
	var value any
	if err := anyJSON.Unmarshal(text, &value); err != nil {
		return err
	}
	if replaces {
		if err := c.merge(nil, false, name); err != nil {
			return err
		}
	}
	c.size = size
	return c.merge(value, false, name)
}

// AddResource sets the object of the request.
func (c *jsonContext) AddResource(object map[string]any) error { return c.replace("object", object) }

// AddOldResource sets the stored object.
func (c *jsonContext) AddOldResource(object map[string]any) error {
	return c.replace("oldObject", object)
}

// SetTargetResource sets the object that a rule mutates instead of that of the request.
func (c *jsonContext) SetTargetResource(object map[string]any) error {
	c.members = maps.Clone(c.members)
	delete(c.members, "target")
	return c.merge(object, false, "target")
}

// AddOperation sets the operation of the request.
func (c *jsonContext) AddOperation(operation string) error {
	c.operation = kyvernov1.AdmissionOperation(operation)
	return c.merge(operation, false, "request", "operation")
}

// AddUserInfo adds the user of the request, with roles.
func (c *jsonContext) AddUserInfo(info kyvernov2.RequestInfo) error {
	return c.merge(&info, false, "request")
}

// AddServiceAccount adds the name of the ServiceAccount and its Namespace, which are empty for other users.
func (c *jsonContext) AddServiceAccount(user string) error {
	const prefix = "system:serviceaccount:"
	namespace, name := "", ""
	if len(user) > len(prefix) {
		if parts := strings.Split(user[len(prefix):], ":"); len(parts) > 1 {
			namespace, name = parts[0], parts[1]
		}
	}
	return c.merge(map[string]any{"serviceAccountName": name, "serviceAccountNamespace": namespace}, false)
}

// AddNamespace sets the Namespace of the request.
func (c *jsonContext) AddNamespace(namespace string) error {
	return c.merge(namespace, false, "request", "namespace")
}

// AddElement sets the element of a list. The error of a call that is over ends the list.
func (c *jsonContext) AddElement(element any, index, nesting int) error {
	if err := c.until.Err(); err != nil {
		return err
	}
	return c.merge(map[string]any{
		"element": element, fmt.Sprintf("element%d", nesting): element,
		"elementIndex": int64(index), fmt.Sprintf("elementIndex%d", nesting): int64(index),
	}, true)
}

// AddImageInfo sets the parts of one image.
func (c *jsonContext) AddImageInfo(info imageutils.ImageInfo, _ config.Configuration) error {
	return c.merge(map[string]any{
		"reference": info.Reference, "referenceWithTag": info.ReferenceWithTag, "registry": info.Registry, "path": info.Path,
		"name": info.Name, "tag": info.Tag, "digest": info.Digest,
	}, false, "image")
}

// imagesLoader finds the images of an object when a variable needs them.
type imagesLoader struct {
	of     *jsonContext
	object unstructured.Unstructured
}

// imagesMatcher is that of Kyverno's own loaders (kyverno:pkg/engine/context/deferred.go).
var imagesMatcher = regexp.MustCompile(`(?:\A|\z|\s|[^.0-9A-Za-z])images\b`)

// Name is that of the variable.
func (l *imagesLoader) Name() string { return "images" }

// Matches reports whether a query needs the images.
func (l *imagesLoader) Matches(query string) bool { return imagesMatcher.MatchString(query) }

// HasLoaded is false, as in Kyverno: they are found anew after a reset.
func (l *imagesLoader) HasLoaded() bool { return false }

// LoadData adds the images.
func (l *imagesLoader) LoadData() error {
	_, err := l.of.addImages(&l.object, nil, configuration)
	return err
}

// AddImageInfos has the images of an object found when they are needed.
func (c *jsonContext) AddImageInfos(object *unstructured.Unstructured, _ config.Configuration) error {
	return c.AddDeferredLoader(&imagesLoader{c, *object})
}

// GenerateCustomImageInfo adds and returns the images of an object.
func (c *jsonContext) GenerateCustomImageInfo(
	object *unstructured.Unstructured, extractors kyvernov1.ImageExtractorConfigs, cfg config.Configuration,
) (map[string]map[string]imageutils.ImageInfo, error) {
	found, err := c.addImages(object, extractors, cfg)
	if err != nil {
		return nil, fmt.Errorf("failed to extract images: %w", err)
	}
	return found, nil
}

func (c *jsonContext) addImages(
	object *unstructured.Unstructured, extractors kyvernov1.ImageExtractorConfigs, cfg config.Configuration,
) (map[string]map[string]imageutils.ImageInfo, error) {
	found, err := imageutils.ExtractImagesFromResource(*object, extractors, cfg)
	if err != nil || len(found) == 0 {
		return found, err
	}
	c.images = found
	all := make(map[string]any, len(found))
	for kind, images := range found {
		ofKind := make(map[string]any, len(images))
		for name, image := range images {
			members, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&image.ImageInfo)
			if err != nil {
				return nil, err
			}
			members["jsonPointer"] = image.Pointer
			ofKind[name] = members
		}
		all[kind] = ofKind
	}
	return found, c.merge(all, false, "images")
}

// ImageInfo returns the images.
func (c *jsonContext) ImageInfo() map[string]map[string]imageutils.ImageInfo {
	if len(c.images) == 0 {
		if err := c.deferred.LoadMatching("images", len(c.checkpoints)); err != nil {
			return map[string]map[string]imageutils.ImageInfo{}
		}
	}
	return c.images
}

// AddDeferredLoader adds a loader of a variable.
func (c *jsonContext) AddDeferredLoader(loader enginecontext.DeferredLoader) error {
	c.deferred.Add(loader, len(c.checkpoints))
	return nil
}

// Checkpoint keeps the variables as they are.
func (c *jsonContext) Checkpoint() { c.checkpoints = append(c.checkpoints, c.members) }

// Restore returns to the last checkpoint, and drops it.
func (c *jsonContext) Restore() { c.reset(true) }

// Reset returns to the last checkpoint.
func (c *jsonContext) Reset() { c.reset(false) }

func (c *jsonContext) reset(drops bool) {
	last := len(c.checkpoints) - 1
	if last < 0 {
		return
	}
	c.members = c.checkpoints[last]
	if drops {
		c.checkpoints = c.checkpoints[:last]
	}
	c.deferred.Reset(drops, len(c.checkpoints))
}

// sorter is the function that sorts the list that it gets, instead of a copy.
const sorter = "sort_by"

// Query returns what a JMESPath finds in the variables, which must not be changed, unless the call is over.
func (c *jsonContext) Query(query string) (any, error) {
	if err := c.until.Err(); err != nil {
		return nil, err
	}
	if err := c.deferred.LoadMatching(query, len(c.checkpoints)); err != nil {
		return nil, err
	}
	query = strings.TrimSpace(query)
	if query == "" {
		return nil, errors.New("invalid query (nil)")
	}
	compiled, err := jmes.Query(query)
	if err != nil {
		return nil, fmt.Errorf("incorrect query %s: %v", query, err)
	}
	if strings.Contains(query, sorter) {
		c.members = copied(c.members).(map[string]any)
	}
	found, err := compiled.Search(c.members)
	if err != nil {
		return nil, fmt.Errorf("JMESPath query failed: %w", err)
	}
	return found, nil
}

// copied returns a copy without anything in common.
func copied(value any) any {
	switch value := value.(type) {
	case map[string]any:
		made := make(map[string]any, len(value))
		for key, member := range value {
			made[key] = copied(member)
		}
		return made
	case []any:
		made := make([]any, len(value))
		for index, element := range value {
			made[index] = copied(element)
		}
		return made
	}
	return value
}

// QueryOperation returns the operation of the request.
func (c *jsonContext) QueryOperation() string {
	if c.operation != "" {
		return string(c.operation)
	}
	request, _ := c.members["request"].(map[string]any)
	operation, _ := request["operation"].(string)
	return operation
}

// HasChanged reports whether an update changes what a JMESPath finds in the object.
func (c *jsonContext) HasChanged(query string) (bool, error) {
	var found [2]any
	for index, of := range []string{"request.object.", "request.oldObject."} {
		value, err := c.Query(of + query)
		if err != nil {
			return false, fmt.Errorf("failed to query request.object: %w", err)
		}
		if value == nil {
			return false, fmt.Errorf("%s%s not found", of, query)
		}
		found[index] = value
	}
	return !datautils.DeepEqual(found[0], found[1]), nil
}
