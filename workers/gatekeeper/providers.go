package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/open-policy-agent/frameworks/constraint/pkg/apis/externaldata/unversioned"
	"github.com/open-policy-agent/frameworks/constraint/pkg/externaldata"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// defaultProviderTimeout is that of a Provider without timeout. Gatekeeper's mutators have the same default
	// (gatekeeper:pkg/mutation/system_external_data.go), but the request itself then has no time.
	defaultProviderTimeout = 5 * time.Second
	// maxProviderAnswerBytes bounds an answer, which Gatekeeper does not: 1 MiB is more than a review's object may have.
	maxProviderAnswerBytes = 1 << 20
)

// providerVersions are the versions of Provider that are read; all have the same fields.
var providerVersions = []string{"v1alpha1", "v1beta1", "v1"}

// providerSet has the Providers of one set of documents; it does not change.
type providerSet struct {
	byName map[string]*provider
	// engine is the engine's own list of them, by which it checks them.
	engine *externaldata.ProviderCache
	data   *externalData
}

// provider is a Provider with its client.
type provider struct {
	name   string
	spec   unversioned.ProviderSpec
	client *http.Client
	log    *log.Logger

	mu         sync.Mutex
	quietUntil time.Time
	unlogged   int
}

// newProviderSet returns the Providers of the documents, and a problem for each one that is not valid. Providers that
// have not changed since before keep their connections; before may be nil. Other documents are passed over.
func newProviderSet(objects []document, data *externalData, before *providerSet) (*providerSet, []error) {
	made := &providerSet{byName: make(map[string]*provider), engine: externaldata.NewCache(), data: data}
	var problems []error
	places := make(map[string]string)
	for _, object := range objects {
		if object.GroupVersionKind().Group != externalDataGroup {
			continue
		}
		read, err := providerOf(object)
		if err == nil && places[object.GetName()] != "" {
			err = fmt.Errorf("the same Provider stands in %s", places[object.GetName()])
		}
		if err == nil {
			err = made.engine.Upsert(read)
		}
		if err != nil {
			problems = append(problems, problem(object, err))
			continue
		}
		places[read.Name] = object.Place
		made.byName[read.Name] = before.like(read)
		if made.byName[read.Name] == nil {
			made.byName[read.Name] = newProvider(read, data)
		}
	}
	return made, problems
}

func providerOf(object document) (*unversioned.Provider, error) {
	kind := object.GroupVersionKind()
	if kind.Kind != "Provider" || !slices.Contains(providerVersions, kind.Version) {
		return nil, fmt.Errorf("%s %s is not known", object.GetAPIVersion(), kind.Kind)
	}
	read := &unversioned.Provider{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, read, true); err != nil {
		return nil, err
	}
	return read, nil
}

// like returns the provider of the same name and spec; nil if there is none.
func (s *providerSet) like(wanted *unversioned.Provider) *provider {
	if s == nil {
		return nil
	}
	if found := s.byName[wanted.Name]; found != nil && found.spec == wanted.Spec {
		return found
	}
	return nil
}

// closeOthers closes the idle connections of providers that the next set does not have. The set may be nil.
func (s *providerSet) closeOthers(next *providerSet) {
	if s == nil {
		return
	}
	for name, old := range s.byName {
		if next.byName[name] != old {
			old.client.CloseIdleConnections()
		}
	}
}

// newProvider returns a provider with the TLS rules of Gatekeeper (frameworks:pkg/externaldata/request.go): TLS 1.3, only
// the CAs of its caBundle, and no proxy of the environment.
func newProvider(read *unversioned.Provider, data *externalData) *provider {
	authorities := x509.NewCertPool()
	if decoded, err := base64.StdEncoding.DecodeString(read.Spec.CABundle); err == nil {
		authorities.AppendCertsFromPEM(decoded)
	}
	return &provider{name: read.Name, spec: read.Spec, log: data.log, client: &http.Client{
		CheckRedirect: func(next *http.Request, before []*http.Request) error {
			if next.URL.Scheme != externaldata.HTTPSScheme {
				return fmt.Errorf("the provider redirects to %s, expected https", next.URL.Scheme)
			}
			if len(before) >= 10 {
				return errors.New("the provider redirects more than 10 times")
			}
			return nil
		},
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{
				MinVersion: tls.VersionTLS13, RootCAs: authorities, GetClientCertificate: data.clientCertificate,
			},
			IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 10,
		},
	}}
}

// send asks a provider for keys. It is Gatekeeper's DefaultSendRequestToProvider, but reads no more than
// maxProviderAnswerBytes. The certificate of the arguments is not used: the client has it.
func (s *providerSet) send(
	ctx context.Context, asked *unversioned.Provider, keys []string, _ *tls.Certificate,
) (*externaldata.ProviderResponse, int, error) {
	found := s.byName[asked.Name]
	if found == nil {
		return nil, http.StatusBadRequest, fmt.Errorf("provider %s is not known", asked.Name)
	}
	answer, status, err := found.ask(ctx, keys)
	if err != nil {
		found.logFailure(err)
		return nil, http.StatusInternalServerError, err
	}
	return answer, status, nil
}

// logFailure logs why the provider has given no answer: a mutator, or the Rego, may ignore it. It writes a line a second
// for each provider, and counts the others in the next one.
func (p *provider) logFailure(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.log == nil || now.Before(p.quietUntil) {
		p.unlogged++
		return
	}
	p.log.Printf("gatekeeper: Provider %s: %q; %d failures before it were not logged", p.name, line(err.Error()), p.unlogged)
	p.quietUntil, p.unlogged = now.Add(time.Second), 0
}

func (p *provider) ask(ctx context.Context, keys []string) (*externaldata.ProviderResponse, int, error) {
	body, err := json.Marshal(externaldata.NewProviderRequest(keys))
	if err != nil {
		return nil, 0, fmt.Errorf("failed to marshal external data request: %w", err)
	}
	timeout := time.Duration(p.spec.Timeout) * time.Second
	if timeout <= 0 {
		timeout = defaultProviderTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.spec.URL, bytes.NewReader(body))
	if err != nil {
		return nil, 0, fmt.Errorf("failed to create external data request: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := p.client.Do(request)
	if err != nil {
		return nil, 0, fmt.Errorf("failed to send external data request: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxProviderAnswerBytes+1))
	if err != nil {
		return nil, 0, fmt.Errorf("failed to read external data response: %w", err)
	}
	if len(text) > maxProviderAnswerBytes {
		return nil, 0, fmt.Errorf("the external data response has more than %d bytes", maxProviderAnswerBytes)
	}
	answer := &externaldata.ProviderResponse{}
	if err := json.Unmarshal(text, answer); err != nil {
		return nil, 0, fmt.Errorf("failed to unmarshal external data response: %w", err)
	}
	return answer, response.StatusCode, nil
}
