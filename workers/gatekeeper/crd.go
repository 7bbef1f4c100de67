package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"

	mutationsunversioned "github.com/open-policy-agent/gatekeeper/v3/apis/mutations/unversioned"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/match"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/path/tester"
	mutationtypes "github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/types"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/wildcard"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What the CRDs of mutators say (gatekeeper:config/crd/bases), the API server has not checked nor completed for the documents of
// a folder. The engine takes some of it as it is: an external failurePolicy of another spelling would set empty values, and
// a match that is not valid would refuse every object.

// namePattern is that of names in match.
var namePattern = regexp.MustCompile(`^\*?[-:a-z0-9]*\*?$`)

// checkMatch returns an error if spec.match is not valid. The API server leaves selectors to the engine, for which one that
// is not valid is an error of each review.
func checkMatch(found *match.Match) error {
	return cmp.Or(
		checkNames("spec.match.name", found.Name),
		checkNames("spec.match.namespaces", found.Namespaces...),
		checkNames("spec.match.excludedNamespaces", found.ExcludedNamespaces...),
		checkSelector("spec.match.labelSelector", found.LabelSelector),
		checkSelector("spec.match.namespaceSelector", found.NamespaceSelector),
		oneOf("spec.match.source", mutationtypes.SourceType(cmp.Or(found.Source, string(mutationtypes.SourceTypeDefault))),
			mutationtypes.SourceTypeAll, mutationtypes.SourceTypeGenerated, mutationtypes.SourceTypeOriginal),
	)
}

func checkNames(field string, names ...wildcard.Wildcard) error {
	for _, name := range names {
		if !namePattern.MatchString(string(name)) {
			return fmt.Errorf("%s: found %q, expected a name with * at its beginning or end", field, name)
		}
	}
	return nil
}

func checkSelector(field string, selector *metav1.LabelSelector) error {
	if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	return nil
}

// checkPathTests returns an error if a condition is neither of the two.
func checkPathTests(tests []mutationsunversioned.PathTest) error {
	for index, test := range tests {
		field := fmt.Sprintf("spec.parameters.pathTests[%d].condition", index)
		if err := oneOf(field, test.Condition, tester.MustExist, tester.MustNotExist); err != nil {
			return err
		}
	}
	return nil
}

// completeExternalData sets the defaults of spec.parameters.assign.externalData, which may be nil, and checks its values.
func completeExternalData(data *mutationsunversioned.ExternalData) error {
	if data == nil {
		return nil
	}
	const field = "spec.parameters.assign.externalData"
	data.DataSource = cmp.Or(data.DataSource, mutationtypes.DataSourceValueAtLocation)
	data.FailurePolicy = cmp.Or(data.FailurePolicy, mutationtypes.FailurePolicyFail)
	if data.Provider == "" {
		return fmt.Errorf("%s.provider: expected the name of a Provider", field)
	}
	return cmp.Or(
		oneOf(field+".dataSource", data.DataSource,
			mutationtypes.DataSourceValueAtLocation, mutationtypes.DataSourceUsername),
		oneOf(field+".failurePolicy", data.FailurePolicy,
			mutationtypes.FailurePolicyUseDefault, mutationtypes.FailurePolicyIgnore, mutationtypes.FailurePolicyFail),
	)
}

func oneOf[T ~string](field string, found T, expected ...T) error {
	if slices.Contains(expected, found) {
		return nil
	}
	return fmt.Errorf("%s: found %q, expected one of %q", field, found, expected)
}
