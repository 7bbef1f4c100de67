package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	gcrremote "github.com/google/go-containerregistry/pkg/v1/remote"
	kyvernov1 "github.com/kyverno/kyverno/api/kyverno/v1"
	"github.com/kyverno/kyverno/pkg/engine/adapters"
	engineapi "github.com/kyverno/kyverno/pkg/engine/api"
	"github.com/kyverno/kyverno/pkg/engine/factories"
	"github.com/kyverno/kyverno/pkg/toggle"
	"github.com/kyverno/sdk/extensions/registryclient"
)

// accessUsage describes the flags of access in the output of --help.
const accessUsage = `  --service-url URL   let policies call URLs that begin with this one (apiCall.service), repeatable
  --registry HOST     let policies read images of this registry (imageRegistry), repeatable
`

// metadataServices are addresses of clouds that tell secrets. They are refused even if a named host resolves to one.
const metadataServices = "169.254.0.0/16,fd00:ec2::254/128,metadata.google.internal"

// access is what policies may ask besides the cluster.
type access struct {
	services []string
	hosts    []string
}

func (a *access) define(flags *flag.FlagSet) {
	flags.Func("service-url", "", func(text string) error {
		a.services = append(a.services, text)
		return nil
	})
	flags.Func("registry", "", func(text string) error {
		a.hosts = append(a.hosts, text)
		return nil
	})
}

// begin has the engine refuse other URLs, also after redirects.
func (a *access) begin() error {
	for _, text := range a.services {
		found, err := url.Parse(text)
		if err != nil || found.Host == "" || found.Scheme != "http" && found.Scheme != "https" || strings.Contains(text, ",") {
			return fmt.Errorf("--service-url %s: expected http://HOST[:PORT][/PATH] or https://…", text)
		}
	}
	if len(a.services) == 0 {
		return nil
	}
	// Kyverno's own list has loopback too, where a named service may well be.
	if err := toggle.HTTPBlocklist.Parse(metadataServices); err != nil {
		return err
	}
	return toggle.HTTPAllowlist.Parse(strings.Join(a.services, ","))
}

// registries returns the clients of registries.
func (a *access) registries() engineapi.RegistryClientFactory {
	return &registries{access: a, inner: factories.DefaultRegistryClientFactory(adapters.RegistryClient(registryclient.New()), nil)}
}

// registries makes clients of the registries that policies may ask.
type registries struct {
	*access
	inner engineapi.RegistryClientFactory
}

// GetClient returns a client for the credentials of a context entry.
func (r *registries) GetClient(
	ctx context.Context, credentials *kyvernov1.ImageRegistryCredentials, namespace string, secrets []string,
) (engineapi.RegistryClient, error) {
	made, err := r.inner.GetClient(ctx, credentials, namespace, secrets)
	if err != nil {
		return nil, err
	}
	return &registryClient{RegistryClient: made, access: r.access}, nil
}

// registryClient refuses other registries.
type registryClient struct {
	engineapi.RegistryClient
	*access
}

// ForRef returns what the registry says of an image.
func (c *registryClient) ForRef(ctx context.Context, image string) (*engineapi.ImageData, error) {
	if err := c.check(image); err != nil {
		return nil, err
	}
	return c.RegistryClient.ForRef(ctx, image)
}

// FetchImageDescriptor returns the descriptor of an image.
func (c *registryClient) FetchImageDescriptor(ctx context.Context, image string) (*gcrremote.Descriptor, error) {
	if err := c.check(image); err != nil {
		return nil, err
	}
	return c.RegistryClient.FetchImageDescriptor(ctx, image)
}

func (a *access) check(image string) error {
	found, err := name.ParseReference(image)
	if err != nil {
		return err
	}
	if host := found.Context().RegistryStr(); !slices.Contains(a.hosts, host) {
		return errors.New("the registry " + host + " is not one that the worker may ask: it needs --registry " + host)
	}
	return nil
}
