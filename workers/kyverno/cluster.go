package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	documents "admission-gateway.io/engines"
	"github.com/kyverno/kyverno/pkg/clients/dclient"
	"github.com/kyverno/kyverno/pkg/engine/adapters"
	engineapi "github.com/kyverno/kyverno/pkg/engine/api"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

const (
	// discoveryInterval is how often the kinds of the cluster are read anew: Kyverno's default.
	discoveryInterval = 15 * time.Minute
	// callsPerSecond and callsAtOnce bound the calls of the API server: Kyverno's defaults.
	callsPerSecond = 300
	callsAtOnce    = 300
)

// cluster asks the API server with the worker's own account.
type cluster struct {
	engineapi.Client
	kube      kubernetes.Interface
	discovery dclient.IDiscovery
}

func newCluster(ctx context.Context, source *documents.Source) (*cluster, error) {
	settings, err := source.RESTConfig()
	if err != nil {
		return nil, fmt.Errorf("the cluster: %w", err)
	}
	settings.QPS, settings.Burst = callsPerSecond, callsAtOnce
	kube, err := kubernetes.NewForConfig(settings)
	if err != nil {
		return nil, fmt.Errorf("the cluster: %w", err)
	}
	objects, err := dynamic.NewForConfig(settings)
	if err != nil {
		return nil, fmt.Errorf("the cluster: %w", err)
	}
	client, err := dclient.NewClient(ctx, objects, kube, discoveryInterval, false, nil)
	if err != nil {
		return nil, fmt.Errorf("the cluster: %w", err)
	}
	return &cluster{Client: adapters.Client(client), kube: kube, discovery: client.Discovery()}, nil
}

func (c *cluster) known(string) *corev1.Namespace { return nil }

// Get returns a ConfigMap.
func (c *cluster) Get(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	return c.kube.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
}

// RawAbsPath answers a call of a context entry. If the API server refuses, the error has its words, such as which right the account
// lacks: the client's own error says "unknown".
func (c *cluster) RawAbsPath(ctx context.Context, path, method string, body io.Reader) ([]byte, error) {
	text, err := c.Client.RawAbsPath(ctx, path, method, body)
	var refused *apierrors.StatusError
	if err == nil || !errors.As(err, &refused) {
		return text, err
	}
	var status metav1.Status
	if json.Unmarshal(text, &status) == nil && status.Message != "" {
		refused = &apierrors.StatusError{ErrStatus: status}
	}
	return nil, refused
}

// GetNamespace returns the Namespace of the request, or asks for another one.
func (c *cluster) GetNamespace(ctx context.Context, name string, options metav1.GetOptions) (*corev1.Namespace, error) {
	if found := namespaceOf(ctx, name); found != nil {
		return found, nil
	}
	return c.Client.GetNamespace(ctx, name, options)
}
