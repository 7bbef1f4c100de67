package main

import (
	"flag"
	"fmt"
	"slices"
	"strings"

	apivalidation "k8s.io/apimachinery/pkg/util/validation"
)

// exceptionsUsage describes the flag of exceptionNamespaces in the output of --help.
const exceptionsUsage = `  --exception-namespaces NAMES   let PolicyExceptions of these namespaces apply, separated by commas, repeatable; *: of all.
                      Default: with --cluster none, with --policies all
`

// everyNamespace stands for all namespaces.
const everyNamespace = "*"

// exceptionNamespaces are where PolicyExceptions apply. In a cluster, whoever may write one in some namespace could exempt himself, so
// that Kyverno too needs a flag (kyverno:cmd/internal/engine.go).
type exceptionNamespaces []string

func (e *exceptionNamespaces) define(flags *flag.FlagSet) {
	flags.Func("exception-namespaces", "", func(text string) error {
		*e = append(*e, strings.Split(text, ",")...)
		return nil
	})
}

// check returns what is wrong with the flag.
func (e exceptionNamespaces) check() error {
	for _, each := range e {
		if each != "" && each != everyNamespace && len(apivalidation.IsDNS1123Label(each)) > 0 {
			return fmt.Errorf("--exception-namespaces: found %q, expected names of namespaces, or *", each)
		}
	}
	return nil
}

// of returns why an exception of a namespace does not apply.
func (e exceptionNamespaces) of(namespace string, isCluster bool) error {
	if e == nil && !isCluster || slices.Contains(e, everyNamespace) || slices.Contains(e, namespace) {
		return nil
	}
	return fmt.Errorf("does not apply, because --exception-namespaces does not have the namespace %s", namespace)
}
