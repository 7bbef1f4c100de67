package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"sync"
	"time"

	"github.com/open-policy-agent/frameworks/constraint/pkg/apis/externaldata/unversioned"
	"github.com/open-policy-agent/frameworks/constraint/pkg/externaldata"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

const (
	// defaultResponseCacheTTL is Gatekeeper's (gatekeeper:main.go).
	defaultResponseCacheTTL = 3 * time.Minute
	// maxCachedBytes bounds the answers that are kept, whose keys come from users.
	maxCachedBytes = 32 << 20
)

// externalDataUsage describes the flags of externalData.
const externalDataUsage = `  --external-data-provider-response-cache-ttl TIME
                      how long Rego may use an answer of a Provider again; default 3m, 0 for not at all
  --external-data-client-cert FILE
                      PEM certificate to show to Providers; off by default
  --external-data-client-key FILE
                      its private key; both are read again when they change
`

// externalData is what the program says about external data, for all sets of documents.
type externalData struct {
	ttl               time.Duration
	certFile, keyFile string
	// watcher has the current client certificate; nil: none.
	watcher *certwatcher.CertWatcher
	// log has the failures of providers; nil: they are not logged.
	log     *log.Logger
	answers answerCache
}

// define adds the flags of externalDataUsage.
func (d *externalData) define(flags *flag.FlagSet) {
	flags.DurationVar(&d.ttl, "external-data-provider-response-cache-ttl", defaultResponseCacheTTL, "")
	flags.StringVar(&d.certFile, "external-data-client-cert", "", "")
	flags.StringVar(&d.keyFile, "external-data-client-key", "", "")
}

// begin checks the flags and follows the client certificate until ctx ends. An error says which flag is wrong.
func (d *externalData) begin(ctx context.Context) error {
	if d.ttl < 0 {
		return fmt.Errorf("--external-data-provider-response-cache-ttl: found %s, expected 0 or more", d.ttl)
	}
	if (d.certFile == "") != (d.keyFile == "") {
		return errors.New("--external-data-client-cert and --external-data-client-key: expected both or none")
	}
	if d.certFile == "" {
		return nil
	}
	watcher, err := certwatcher.New(d.certFile, d.keyFile)
	if err != nil {
		return fmt.Errorf("--external-data-client-cert: %w", err)
	}
	d.watcher = watcher
	go func() { _ = watcher.Start(ctx) }()
	return nil
}

// clientCertificate returns the certificate for a TLS handshake with a provider, empty if there is none.
func (d *externalData) clientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if d.watcher == nil {
		return &tls.Certificate{}, nil
	}
	return d.watcher.GetCertificate(nil)
}

// providersKey is the key of the providers in a context.
type providersKey struct{}

// withProviders returns a context in which Rego calls these providers.
func withProviders(ctx context.Context, named *providerSet) context.Context {
	return context.WithValue(ctx, providersKey{}, named)
}

// registerExternalData registers Rego's external_data, which has to be done before the first compilation. The driver's
// own function (frameworks:pkg/client/drivers/rego/builtin.go) is bound to one driver for the whole program, and registering
// it for the next one writes to maps that evaluations read; this one finds the providers of a call in its context.
var registerExternalData = sync.OnceFunc(func() {
	rego.RegisterBuiltin1(&rego.Function{
		Name: "external_data", Decl: types.NewFunction(types.Args(types.A), types.A), Memoize: true,
	}, func(call rego.BuiltinContext, asked *ast.Term) (*ast.Term, error) {
		var request externaldata.RegoRequest
		if err := ast.As(asked.Value, &request); err != nil {
			return nil, err
		}
		named, _ := call.Context.Value(providersKey{}).(*providerSet)
		if named == nil {
			named = &providerSet{}
		}
		answer, status, err := named.answers(call.Context, request)
		if err != nil {
			return externaldata.HandleError(status, err)
		}
		return externaldata.PrepareRegoResponse(externaldata.NewRegoResponse(status, answer))
	})
})

// answers asks the provider for the keys of which no fresh answer is kept. The status is 0 if it was not asked.
func (s *providerSet) answers(
	ctx context.Context, request externaldata.RegoRequest,
) (*externaldata.ProviderResponse, int, error) {
	made := &externaldata.ProviderResponse{}
	found := s.byName[request.ProviderName]
	missing := request.Keys
	if found != nil && s.data.ttl > 0 {
		missing = nil
		for _, key := range request.Keys {
			if item, ok := s.data.answers.get(answerKey{request.ProviderName, found.spec, key}, s.data.ttl); ok {
				made.Response.Items = append(made.Response.Items, item)
			} else {
				missing = append(missing, key)
			}
		}
	}
	if len(missing) == 0 {
		return made, 0, nil
	}
	if found == nil {
		// The text is the engine's.
		return nil, http.StatusBadRequest, errors.New("key is not found in provider cache")
	}
	provider := &unversioned.Provider{ObjectMeta: metav1.ObjectMeta{Name: request.ProviderName}}
	answer, status, err := s.send(ctx, provider, missing, nil)
	if err != nil {
		return nil, status, err
	}
	if s.data.ttl > 0 {
		for _, item := range answer.Response.Items {
			s.data.answers.put(answerKey{request.ProviderName, found.spec, item.Key}, item)
		}
	}
	made.Response.Items = append(made.Response.Items, answer.Response.Items...)
	made.Response.SystemError = answer.Response.SystemError
	return made, status, nil
}

// answerCache keeps items of answers, at most maxCachedBytes of them. Its zero value is empty.
type answerCache struct {
	mu    sync.Mutex
	items map[answerKey]keptItem
	bytes int
}

// answerKey has the whole spec, so that a changed Provider is asked anew.
type answerKey struct {
	provider string
	spec     unversioned.ProviderSpec
	key      string
}

type keptItem struct {
	item     externaldata.Item
	received time.Time
	bytes    int
}

func (c *answerCache) get(key answerKey, ttl time.Duration) (externaldata.Item, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept, ok := c.items[key]
	if !ok || time.Since(kept.received) > ttl {
		return externaldata.Item{}, false
	}
	return kept.item, true
}

// put keeps an item; if there is no room, those before it are forgotten.
func (c *answerCache) put(key answerKey, item externaldata.Item) {
	text, err := json.Marshal(item)
	if err != nil {
		return
	}
	bytes := len(text) + len(key.key) + len(key.provider)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes += bytes - c.items[key].bytes
	if c.items == nil || c.bytes > maxCachedBytes {
		c.items, c.bytes = make(map[answerKey]keptItem), bytes
	}
	c.items[key] = keptItem{item: item, received: time.Now(), bytes: bytes}
}
