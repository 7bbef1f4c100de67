package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	documents "admission-gateway.io/engines"
	"github.com/kyverno/kyverno/api/kyverno"
	kyvernov1 "github.com/kyverno/kyverno/api/kyverno/v1"
	autogen "github.com/kyverno/kyverno/pkg/autogen/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	apivalidation "k8s.io/apimachinery/pkg/util/validation"
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
	// misnamed is why it has no name of its own: only the policies of all rules have it.
	misnamed error
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
	if err := checkMetadata(object); err != nil {
		return nil, err
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

// inPlace returns the document of a ClusterPolicy or Policy with the namespace that the API server gives it.
func inPlace(object documents.Object) documents.Object {
	namespace := ""
	if object.GetKind() == "Policy" {
		namespace = cmp.Or(object.GetNamespace(), "default")
	}
	if namespace != object.GetNamespace() {
		object.Unstructured = object.DeepCopy()
		object.SetNamespace(namespace)
	}
	return object
}

// checkMetadata returns why the API server would refuse the name or the namespace of the document.
func checkMetadata(object documents.Object) error {
	if problems := apivalidation.IsDNS1123Subdomain(object.GetName()); len(problems) > 0 {
		return fmt.Errorf("metadata.name: found %q, expected a name of Kubernetes: %s", object.GetName(), problems[0])
	}
	namespace := object.GetNamespace()
	if problems := apivalidation.IsDNS1123Label(namespace); namespace != "" && len(problems) > 0 {
		return fmt.Errorf("metadata.namespace: found %q, expected a name of Kubernetes: %s", namespace, problems[0])
	}
	return nil
}

// maxRuleName is how long the name of a rule is, in characters: that of Kyverno's CRDs.
const maxRuleName = 63

// checkRuleName returns why no policy of the worker can have the name of the rule. A slash would make names of two policies one.
func checkRuleName(name string) error {
	isUnfit := func(r rune) bool { return r == '/' || !unicode.IsPrint(r) }
	if length := utf8.RuneCountInString(name); length > maxRuleName {
		return fmt.Errorf("name of a rule: found %d characters, expected at most %d", length, maxRuleName)
	}
	if strings.TrimSpace(name) == "" || !utf8.ValidString(name) || strings.ContainsFunc(name, isUnfit) {
		return fmt.Errorf("name of a rule: found %q, expected printable text without a slash", name)
	}
	return nil
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
		one := served{
			name: name + "/" + rule.Name, description: describe(policy, rule), mutating: rule.HasMutate(),
			misnamed: checkRuleName(rule.Name),
		}
		if one.err = unserved(rule); one.err == nil {
			one.policy = withRules(policy, []kyvernov1.Rule{*rule})
		}
		all = append(all, one)
	}
	return all
}

// bound returns a policy whose first rule that applies is the last: one policy for its validate rules, and one for its mutate
// rules. A rule of a ClusterPolicy can have the name NAMESPACE/POLICY, so that those of a Policy have a further part.
func bound(policy kyvernov1.PolicyInterface, name string) (all []served) {
	var validating, mutating []kyvernov1.Rule
	var others []served
	for _, rule := range policy.GetSpec().Rules {
		switch err := unserved(&rule); {
		case err != nil:
			others = append(others, served{
				name: name + "/" + rule.Name, description: describe(policy, &rule), err: err, misnamed: checkRuleName(rule.Name),
			})
		case rule.HasMutate():
			mutating = append(mutating, rule)
		default:
			validating = append(validating, rule)
		}
	}
	var misnamed error
	if name == validationName || name == mutationName {
		misnamed = fmt.Errorf("a ClusterPolicy with applyRules: One: found the name %s, expected another one, because the worker's own policy "+
			"of all rules has it", name)
	}
	validation, mutation := name, name
	if policy.IsNamespaced() {
		validation, mutation = name+"/"+validationName, name+"/"+mutationName
	} else if len(validating) > 0 {
		mutation = name + "/" + mutationName
	}
	if len(validating) > 0 {
		all = append(all, served{name: validation, description: describe(policy, nil), policy: withRules(policy, validating)})
	}
	if len(mutating) > 0 {
		all = append(all, served{name: mutation, description: describe(policy, nil), mutating: true, policy: withRules(policy, mutating)})
	}
	for index := range all {
		if all[index].name == name {
			all[index].misnamed = misnamed
		}
	}
	return append(all, others...)
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
func namedRules(object documents.Object) (names []string) {
	if checkMetadata(object) != nil {
		return nil
	}
	rules, _, _ := unstructured.NestedSlice(object.Object, "spec", "rules")
	known := make(map[string]bool)
	for _, rule := range rules {
		members, _ := rule.(map[string]any)
		name, _ := members["name"].(string)
		if checkRuleName(name) == nil && !known[name] {
			known[name] = true
			names = append(names, key(object.GetNamespace(), object.GetName())+"/"+name)
		}
	}
	return names
}

// line is the text as one line.
func line(text string) string { return cut(strings.Join(strings.Fields(text), " "), maxMessageBytes) }
