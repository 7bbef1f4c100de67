package main

import (
	"errors"
	"fmt"
	"strings"

	documents "admission-gateway.io/engines"
	"github.com/kyverno/kyverno/api/kyverno"
	kyvernov1 "github.com/kyverno/kyverno/api/kyverno/v1"
	autogen "github.com/kyverno/kyverno/pkg/autogen/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/json"
)

// served is a policy of the worker: a rule of a Kyverno policy with its variants for pod controllers, or all rules of a policy that are
// bound together.
type served struct {
	name        string
	description string
	version     string
	mutating    bool
	// policy has only the rules that are evaluated; nil with err.
	policy kyvernov1.PolicyInterface
	// err is why calls fail.
	err error
}

// sentences say why a kind of rule is not served, and what to use instead.
const (
	generateSentence = "generate writes other objects, which an admission answer cannot: leave the rule to Kyverno's background controller"
	existingSentence = "mutate.targets changes other objects, which an admission answer cannot: leave the rule to Kyverno's background controller"
	imagesSentence   = "verifyImages is not served, because it needs registries and Sigstore: leave the rule to Kyverno, " +
		"or use a worker that verifies images"
	manifestSentence = "validate.manifests is not served, because it needs Sigstore: leave the rule to Kyverno"
	assertSentence   = "validate.assert is not served: Kyverno's engine ignores it since 1.19, so that everything passes. Write it as validate.cel"
	cleanupSentence  = "deletes objects on a schedule and has nothing to do with admission: leave it to Kyverno's cleanup controller"
	imagePolicy      = "verifies images, which is not served: leave it to Kyverno"
	generatePolicy   = "writes other objects, which an admission answer cannot: leave it to Kyverno's background controller"
)

// unserved returns why the rule is not served; nil if it is.
func unserved(rule *kyvernov1.Rule) error {
	switch {
	case rule.HasGenerate():
		return errors.New(generateSentence)
	case rule.HasVerifyImages():
		return errors.New(imagesSentence)
	case rule.HasMutateExisting():
		return errors.New(existingSentence)
	case rule.HasVerifyManifests():
		return errors.New(manifestSentence)
	case rule.HasValidate() && rule.Validation.DeprecatedAssert != nil:
		return errors.New(assertSentence)
	case !rule.HasValidate() && !rule.HasMutate():
		return errors.New("the rule has neither validate nor mutate")
	}
	return nil
}

// decodePolicy returns a ClusterPolicy or Policy. Version v2beta1 has a part of the fields of v1.
func decodePolicy(object documents.Object) (kyvernov1.PolicyInterface, error) {
	var made kyvernov1.PolicyInterface = &kyvernov1.ClusterPolicy{}
	if object.GetKind() == "Policy" {
		made = &kyvernov1.Policy{}
	}
	if err := decode(object.Unstructured, made); err != nil {
		return nil, err
	}
	if made.IsNamespaced() && made.GetNamespace() == "" {
		made.SetNamespace("default")
	}
	if _, problems := made.Validate(sets.New[string]()); len(problems) > 0 {
		return nil, problems.ToAggregate()
	}
	return made, nil
}

// decode decodes an object; a field that its type does not have is an error, because it would be ignored.
func decode(object *unstructured.Unstructured, into any) error {
	content := object.Object
	if _, hasStatus := content["status"]; hasStatus {
		content = make(map[string]any, len(object.Object))
		for key, value := range object.Object {
			if key != "status" {
				content[key] = value
			}
		}
	}
	text, err := (&unstructured.Unstructured{Object: content}).MarshalJSON()
	if err != nil {
		return err
	}
	wrong, err := json.UnmarshalStrict(text, into)
	return errors.Join(append(wrong, err)...)
}

// key is the name of a policy: POLICY, or NAMESPACE/POLICY.
func key(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// split returns what is served of a policy.
func split(policy kyvernov1.PolicyInterface) []served {
	spec := policy.GetSpec()
	name := key(policy.GetNamespace(), policy.GetName())
	if spec.GetApplyRules() == kyvernov1.ApplyOne {
		return bound(policy, name)
	}
	var all []served
	for index := range spec.Rules {
		rule := &spec.Rules[index]
		one := served{name: name + "/" + rule.Name, description: describe(policy, rule), mutating: rule.HasMutate()}
		if one.err = unserved(rule); one.err == nil {
			one.policy = withRules(policy, []kyvernov1.Rule{*rule})
		}
		all = append(all, one)
	}
	return all
}

// bound returns a policy whose first rule that applies is the last: one policy for its validate rules, and one for its mutate
// rules, with the name POLICY/mutation if it has both.
func bound(policy kyvernov1.PolicyInterface, name string) (all []served) {
	var validating, mutating []kyvernov1.Rule
	for _, rule := range policy.GetSpec().Rules {
		switch err := unserved(&rule); {
		case err != nil:
			all = append(all, served{name: name + "/" + rule.Name, description: describe(policy, &rule), err: err})
		case rule.HasMutate():
			mutating = append(mutating, rule)
		default:
			validating = append(validating, rule)
		}
	}
	if len(validating) > 0 {
		all = append(all, served{name: name, description: describe(policy, nil), policy: withRules(policy, validating)})
		name += "/mutation"
	}
	if len(mutating) > 0 {
		all = append(all, served{name: name, description: describe(policy, nil), mutating: true, policy: withRules(policy, mutating)})
	}
	return all
}

// withRules returns the policy with some of its rules. Whether variants for pod controllers are generated depends on all rules
// (kyverno:pkg/autogen/v1/autogen.go), and stays as it is.
func withRules(policy kyvernov1.PolicyInterface, rules []kyvernov1.Rule) kyvernov1.PolicyInterface {
	generates, _ := autogen.CanAutoGen(policy.GetSpec())
	made := policy.CreateDeepCopy()
	made.GetSpec().SetRules(rules)
	if !generates {
		annotations := made.GetAnnotations()
		if annotations == nil {
			annotations = make(map[string]string, 1)
		}
		annotations[kyverno.AnnotationAutogenControllers] = "none"
		made.SetAnnotations(annotations)
	}
	return made
}

// describe is the description of a rule, or of a policy.
func describe(policy kyvernov1.PolicyInterface, rule *kyvernov1.Rule) string {
	annotations := policy.GetAnnotations()
	text := annotations["policies.kyverno.io/description"]
	if text == "" {
		text = annotations["policies.kyverno.io/title"]
	}
	if text == "" && rule != nil && rule.Validation != nil {
		text = rule.Validation.Message
	}
	if text == "" {
		text = fmt.Sprintf("%s %s of Kyverno", policy.GetKind(), policy.GetName())
	}
	return text
}

// namedRules returns the names of rules of a document that cannot be decoded.
func namedRules(object *unstructured.Unstructured) (names []string) {
	rules, _, _ := unstructured.NestedSlice(object.Object, "spec", "rules")
	known := make(map[string]bool)
	for _, rule := range rules {
		members, _ := rule.(map[string]any)
		name, _ := members["name"].(string)
		if name != "" && !known[name] {
			known[name] = true
			names = append(names, key(object.GetNamespace(), object.GetName())+"/"+name)
		}
	}
	return names
}

// line is the text as one line.
func line(text string) string { return cut(strings.Join(strings.Fields(text), " "), maxMessageBytes) }
