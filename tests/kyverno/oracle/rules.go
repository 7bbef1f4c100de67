package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	kyvernov1 "github.com/kyverno/kyverno/api/kyverno/v1"
	kyvernov2 "github.com/kyverno/kyverno/api/kyverno/v2"
	"github.com/kyverno/kyverno/ext/wildcard"
	fakekyverno "github.com/kyverno/kyverno/pkg/client/clientset/versioned/fake"
	kyvernoinformers "github.com/kyverno/kyverno/pkg/client/informers/externalversions"
	"github.com/kyverno/kyverno/pkg/clients/dclient"
	"github.com/kyverno/kyverno/pkg/config"
	"github.com/kyverno/kyverno/pkg/engine"
	"github.com/kyverno/kyverno/pkg/engine/adapters"
	"github.com/kyverno/kyverno/pkg/engine/factories"
	"github.com/kyverno/kyverno/pkg/engine/jmespath"
	"github.com/kyverno/kyverno/pkg/event"
	"github.com/kyverno/kyverno/pkg/exceptions"
	imageverifycache "github.com/kyverno/kyverno/pkg/image/verification/cache"
	"github.com/kyverno/kyverno/pkg/metrics"
	"github.com/kyverno/kyverno/pkg/policycache"
	"github.com/kyverno/kyverno/pkg/webhooks/resource"
	"github.com/kyverno/kyverno/pkg/webhooks/updaterequest"
	webhookutils "github.com/kyverno/kyverno/pkg/webhooks/utils"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubefake "k8s.io/client-go/kubernetes/fake"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

var (
	configuration = config.NewDefaultConfiguration(false)
	jmes          = jmespath.New(configuration)
	informers     = kyvernoinformers.NewSharedInformerFactory(fakekyverno.NewSimpleClientset(), 0)
)

// served are the resources of the API server, as group/version/resource[/subresource] and kind.
var served = map[string]string{
	"/v1/pods": "Pod", "/v1/pods/ephemeralcontainers": "Pod", "/v1/pods/exec": "PodExecOptions",
	"/v1/pods/status": "Pod", "/v1/pods/eviction": "Eviction", "/v1/namespaces": "Namespace",
	"/v1/configmaps": "ConfigMap", "/v1/secrets": "Secret", "/v1/services": "Service",
	"/v1/serviceaccounts": "ServiceAccount", "/v1/nodes": "Node", "/v1/replicationcontrollers": "ReplicationController",
	"/v1/persistentvolumeclaims": "PersistentVolumeClaim",
	"apps/v1/deployments":        "Deployment", "apps/v1/deployments/scale": "Scale", "apps/v1/statefulsets": "StatefulSet",
	"apps/v1/statefulsets/scale": "Scale", "apps/v1/daemonsets": "DaemonSet", "apps/v1/replicasets": "ReplicaSet",
	"batch/v1/jobs": "Job", "batch/v1/cronjobs": "CronJob",
	"networking.k8s.io/v1/ingresses": "Ingress", "networking.k8s.io/v1/networkpolicies": "NetworkPolicy",
	"rbac.authorization.k8s.io/v1/roles": "Role", "rbac.authorization.k8s.io/v1/rolebindings": "RoleBinding",
	"rbac.authorization.k8s.io/v1/clusterroles": "ClusterRole",
	"example.io/v1/widgets":                     "Widget", "example.io/v2/widgets": "Widget",
}

// discovery finds resources as Kyverno does in what an API server says (pkg/clients/dclient/discovery.go).
type discovery struct{ dclient.IDiscovery }

func (discovery) FindResources(
	group, version, kind, subresource string,
) (map[dclient.TopLevelApiDescription]metav1.APIResource, error) {
	parents, children := map[dclient.TopLevelApiDescription]metav1.APIResource{}, map[dclient.TopLevelApiDescription]metav1.APIResource{}
	for path, itsKind := range served {
		parts := strings.Split(path, "/")
		if len(parts) == 3 && wildcard.Match(group, parts[0]) && wildcard.Match(version, parts[1]) && wildcard.Match(kind, itsKind) {
			found := dclient.TopLevelApiDescription{
				GroupVersion: schema.GroupVersion{Group: parts[0], Version: parts[1]}, Kind: itsKind, Resource: parts[2],
			}
			parents[found] = metav1.APIResource{Name: parts[2], Kind: itsKind}
		}
	}
	for path, itsKind := range served {
		parts := strings.Split(path, "/")
		for parent := range parents {
			if len(parts) == 4 && subresource != "" && wildcard.Match(parent.Resource+"/"+subresource, parts[2]+"/"+parts[3]) {
				children[parent.WithSubResource(parts[3])] = metav1.APIResource{Name: parts[2] + "/" + parts[3], Kind: itsKind}
			}
		}
	}
	if subresource != "" && !(kind == "*" && subresource == "*") {
		parents = children
	} else {
		for key, value := range children {
			parents[key] = value
		}
	}
	if len(parents) == 0 {
		return nil, dclient.ErrResourceNotFound
	}
	return parents, nil
}

func (asked *question) oldExceptions() exceptions.Lister {
	return listed(parsed(asked.Exceptions, func(string) *kyvernov2.PolicyException {
		return &kyvernov2.PolicyException{}
	}))
}

type listed []*kyvernov2.PolicyException

func (l listed) List(labels.Selector) ([]*kyvernov2.PolicyException, error) { return l, nil }

// validatedByRules answers for ClusterPolicy and Policy.
func validatedByRules(asked *question) (answer, error) {
	policies := parsed(asked.Policies, func(kind string) kyvernov1.PolicyInterface {
		if kind == "Policy" {
			return &kyvernov1.Policy{}
		}
		return &kyvernov1.ClusterPolicy{}
	})
	var objects []runtime.Object
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, each := range asked.Namespaces {
		objects = append(objects, each)
		if err := indexer.Add(each); err != nil {
			return answer{}, err
		}
	}
	namespaces := corev1listers.NewNamespaceLister(indexer)
	client := dclient.NewFakeClientWithDisco(nil, kubefake.NewSimpleClientset(objects...), discovery{})
	evaluator := engine.NewEngine(
		configuration, jmes, adapters.Client(client), nil, imageverifycache.DisabledImageVerifyCache(),
		factories.DefaultContextLoaderFactory(nil), exceptions.New(asked.oldExceptions()), nil)
	known := policycache.NewCache()
	for _, each := range policies {
		key, err := cache.MetaNamespaceKeyFunc(each)
		if err != nil {
			return answer{}, err
		}
		if err := known.Set(key, each, client.Discovery()); err != nil {
			return answer{}, err
		}
	}
	var got answer
	received := asked.received(asked.Request)
	policyContext, err := webhookutils.NewPolicyContextBuilder(configuration, jmes).Build(
		received.AdmissionRequest, received.Roles, received.ClusterRoles, received.GroupVersionKind)
	if err != nil {
		return answer{}, err
	}
	if found := asked.namespace(asked.Request.Namespace); found != nil && asked.Request.Kind.Kind != "Namespace" {
		policyContext = policyContext.WithNamespaceLabels(found.Labels)
	}
	for _, each := range policies {
		response := evaluator.Validate(context.Background(), policyContext.WithPolicy(each))
		if found := response.PolicyResponse.Rules; len(found) != 0 {
			got.Policies = append(got.Policies, outcome{Policy: each.GetName(), Rules: rules(found)})
		}
	}
	handler := resource.NewHandlers(
		evaluator, client, nil, configuration, metrics.NewFakeMetricsConfig(), known, namespaces, nil,
		informers.Kyverno().V1().ClusterPolicies(), informers.Kyverno().V1().Policies(),
		updaterequest.NewFake(), event.NewFake(), false, "", "", jmes, 1, 1)
	for _, failure := range []kyvernov1.FailurePolicyType{kyvernov1.Fail, kyvernov1.Ignore} {
		if !slices.ContainsFunc(policies, func(each kyvernov1.PolicyInterface) bool {
			return each.GetSpec().GetFailurePolicy(context.Background()) == failure
		}) {
			continue
		}
		name := strings.ToLower(string(failure))
		given := handler.Validate(context.Background(), logr.Discard(), received, name, time.Now())
		got.Webhooks = append(got.Webhooks, answerOf("validate.kyverno.svc-"+name, given))
	}
	return got, nil
}
