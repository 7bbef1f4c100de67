package main

import (
	"maps"

	kyvernov2 "github.com/kyverno/kyverno/api/kyverno/v2"
	enginecontext "github.com/kyverno/kyverno/pkg/engine/context"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// values are a document of kind Values, as `kyverno test` reads it (kyverno:cmd/cli/kubectl-kyverno/apis/v1alpha1).
type values struct {
	metav1.TypeMeta    `json:",inline"`
	metav1.ObjectMeta  `json:"metadata"`
	GlobalValues       map[string]any      `json:"globalValues"`
	Policies           []policyValues      `json:"policies"`
	NamespaceSelectors []namespaceSelector `json:"namespaceSelector"`
	Namespaces         []corev1.Namespace  `json:"namespaces"`
	// Subresources are not needed: the request says which subresource it is for.
	Subresources []any `json:"subresources"`
}

type policyValues struct {
	Name      string         `json:"name"`
	Resources []namedValues  `json:"resources"`
	Rules     []ruleOfPolicy `json:"rules"`
}

type namedValues struct {
	Name   string         `json:"name"`
	Values map[string]any `json:"values"`
}

type ruleOfPolicy struct {
	Name          string           `json:"name"`
	Values        map[string]any   `json:"values"`
	ForeachValues map[string][]any `json:"foreachValues"`
}

type namespaceSelector struct {
	Name   string            `json:"name"`
	Labels map[string]string `json:"labels"`
}

// userInfo is a document of kind UserInfo.
type userInfo struct {
	metav1.TypeMeta       `json:",inline"`
	metav1.ObjectMeta     `json:"metadata"`
	kyvernov2.RequestInfo `json:",inline"`
}

// mocks are the documents of a test.
type mocks struct {
	isUsed   bool
	given    []*values
	user     *kyvernov2.RequestInfo
	byRule   map[[2]string]ruleOfPolicy
	selected map[string]*corev1.Namespace
}

func (m *mocks) addValues(object *unstructured.Unstructured) error {
	read := &values{}
	if err := decode(object, read); err != nil {
		return err
	}
	m.isUsed = true
	m.given = append(m.given, read)
	if m.byRule == nil {
		m.byRule, m.selected = make(map[[2]string]ruleOfPolicy), make(map[string]*corev1.Namespace)
	}
	for _, policy := range read.Policies {
		for _, rule := range policy.Rules {
			m.byRule[[2]string{policy.Name, rule.Name}] = rule
			m.byRule[[2]string{policy.Name, "autogen-" + rule.Name}] = rule
			m.byRule[[2]string{policy.Name, "autogen-cronjob-" + rule.Name}] = rule
		}
	}
	for _, each := range read.NamespaceSelectors {
		found := &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
		found.Name, found.Labels = each.Name, each.Labels
		m.selected[each.Name] = found
	}
	for index := range read.Namespaces {
		m.selected[read.Namespaces[index].Name] = &read.Namespaces[index]
	}
	return nil
}

func (m *mocks) addUser(object *unstructured.Unstructured) error {
	read := &userInfo{}
	if err := decode(object, read); err != nil {
		return err
	}
	m.user = &read.RequestInfo
	return nil
}

// namespace returns a Namespace that the values have; nil if there is none.
func (m *mocks) namespace(name string) *corev1.Namespace { return m.selected[name] }

// inject sets the values for a policy and an object in the context of an evaluation.
func (m *mocks) inject(made *policyContext, policy, object string) error {
	all := make(map[string]any)
	for _, each := range m.given {
		maps.Copy(all, each.GlobalValues)
	}
	for _, each := range m.given {
		for _, of := range each.Policies {
			if of.Name != policy {
				continue
			}
			for _, resource := range of.Resources {
				if resource.Name == object {
					maps.Copy(all, resource.Values)
				}
			}
		}
	}
	// The request has its own.
	delete(all, "request.operation")
	if len(all) == 0 {
		return nil
	}
	for name, value := range all {
		if err := made.JSONContext().AddVariable(name, value); err != nil {
			return err
		}
	}
	// Values may be of the object.
	var err error
	if made.newResource, err = objectIn(made, "request.object"); err != nil {
		return err
	}
	made.oldResource, err = objectIn(made, "request.oldObject")
	return err
}

// initialize sets the values for a rule.
func (m *mocks) initialize(policy, rule string) func(enginecontext.Interface) error {
	found := m.byRule[[2]string{policy, rule}]
	return func(context enginecontext.Interface) error {
		for name, value := range found.Values {
			if err := context.AddVariable(name, value); err != nil {
				return err
			}
		}
		for name, value := range found.ForeachValues {
			if len(value) == 0 {
				continue
			}
			if err := context.AddVariable(name, value[0]); err != nil {
				return err
			}
		}
		return nil
	}
}
