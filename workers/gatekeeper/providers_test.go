package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/open-policy-agent/frameworks/constraint/pkg/externaldata"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/controller/config/process"
	"github.com/open-policy-agent/opa/v1/rego"
)

// registry is a provider on loopback, over HTTPS. It answers KEY with KEY@sha256, and notes what it is asked.
type registry struct {
	*httptest.Server
	mu    sync.Mutex
	asked [][]string
	// answer replaces the answer.
	answer http.HandlerFunc
	// users has the names of the certificates that clients have shown.
	users []string
}

func newRegistry(t testing.TB) *registry {
	t.Helper()
	made := &registry{}
	made.Server = httptest.NewUnstartedServer(http.HandlerFunc(made.serve))
	made.Config.ErrorLog = nil
	made.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	made.StartTLS()
	t.Cleanup(made.Close)
	return made
}

func (r *registry) serve(response http.ResponseWriter, request *http.Request) {
	text, _ := io.ReadAll(request.Body)
	var read struct {
		APIVersion, Kind string
		Request          struct{ Keys []string }
	}
	if err := json.Unmarshal(text, &read); err != nil || read.APIVersion != "externaldata.gatekeeper.sh/v1beta1" || read.Kind != "ProviderRequest" {
		http.Error(response, string(text), http.StatusBadRequest)
		return
	}
	slices.Sort(read.Request.Keys)
	r.mu.Lock()
	r.asked = append(r.asked, read.Request.Keys)
	user := ""
	if shown := request.TLS.PeerCertificates; len(shown) > 0 {
		user = shown[0].Subject.CommonName
	}
	r.users = append(r.users, user)
	r.mu.Unlock()
	if r.answer != nil {
		r.answer(response, request)
		return
	}
	items := []map[string]any{}
	for _, key := range read.Request.Keys {
		if strings.Contains(key, "unknown") {
			items = append(items, map[string]any{"key": key, "error": "not found"})
		} else {
			items = append(items, map[string]any{"key": key, "value": key + "@sha256"})
		}
	}
	_ = json.NewEncoder(response).Encode(map[string]any{"response": map[string]any{"idempotent": true, "items": items}})
}

// caBundle returns the certificate that verifies the provider.
func (r *registry) caBundle() string {
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw}))
}

// document returns the YAML of a Provider.
func (r *registry) document(name, url string, timeout int) string {
	return fmt.Sprintf("---\napiVersion: externaldata.gatekeeper.sh/v1beta1\nkind: Provider\nmetadata: {name: %s}\n"+
		"spec: {url: %s, timeout: %d, caBundle: %s}\n", name, url, timeout, r.caBundle())
}

func providersOf(t testing.TB, text string, data *externalData) *providerSet {
	t.Helper()
	set, problems := newProviderSet(documentsOf(t, text), data, nil)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return set
}

// askedByRego returns the JSON of external_data's result.
func askedByRego(t testing.TB, ctx context.Context, named *providerSet, provider string, keys ...string) map[string]any {
	t.Helper()
	registerExternalData()
	list, _ := json.Marshal(keys)
	query := rego.New(rego.Query(fmt.Sprintf("result := external_data({\"provider\": %q, \"keys\": %s})", provider, list)))
	found, err := query.Eval(withProviders(ctx, named))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	return found[0].Bindings["result"].(map[string]any)
}

func TestProvidersThatAreNotValid(t *testing.T) {
	provider := newRegistry(t)
	text := provider.document("good", provider.URL, 1) + provider.document("good", provider.URL, 2) +
		provider.document("plain", "http://127.0.0.1", 1) + provider.document("slow", provider.URL, -1) +
		strings.Replace(provider.document("bare", provider.URL, 1), provider.caBundle(), `""`, 1) +
		strings.Replace(provider.document("garbage", provider.URL, 1), provider.caBundle(), "eA==", 1) +
		strings.Replace(provider.document("typo", provider.URL, 1), "timeout:", "time:", 1) +
		strings.Replace(provider.document("version", provider.URL, 1), "/v1beta1", "/v2", 1) +
		strings.Replace(provider.document("stable", provider.URL, 1), "/v1beta1", "/v1", 1)
	set, problems := newProviderSet(documentsOf(t, text), &externalData{}, nil)
	want := []string{
		"text:2: Provider good: the same Provider stands in text:1",
		"text:3: Provider plain: only HTTPS scheme is supported for Providers",
		"text:4: Provider slow: provider timeout should be a positive integer. value: -1",
		"text:5: Provider bare: caBundle should be set for HTTPS scheme",
		"text:6: Provider garbage: bad caBundle",
		`text:7: Provider typo: strict decoding error: unknown field "spec.time"`,
		"text:8: Provider version: externaldata.gatekeeper.sh/v2 Provider is not known",
	}
	if !slices.Equal(texts(problems), want) || len(set.byName) != 2 || set.byName["stable"] == nil {
		t.Errorf("got %q, %v", texts(problems), set.byName)
	}
}

func TestRegoAsksAProvider(t *testing.T) {
	provider := newRegistry(t)
	set := providersOf(t, provider.document("registry", provider.URL, 60), &externalData{})
	found := askedByRego(t, t.Context(), set, "registry", "a", "unknown")
	want := `{"errors": [["unknown", "not found"]], "responses": [["a", "a@sha256"]], "status_code": 200, "system_error": ""}`
	if !same(t, found, json.RawMessage(want)) || !slices.Equal(provider.users, []string{""}) {
		t.Errorf("got %v, %q", found, provider.users)
	}
	found = askedByRego(t, t.Context(), set, "nobody", "a")
	if !same(t, found["status_code"], 400) || found["system_error"] != "key is not found in provider cache" {
		t.Errorf("got %v", found)
	}
	// Without providers in the context there are none.
	if found = askedByRego(t, t.Context(), nil, "registry", "a"); !same(t, found["status_code"], 400) || len(provider.asked) != 1 {
		t.Errorf("got %v", found)
	}
}

func TestAnswersAreKeptForATime(t *testing.T) {
	provider := newRegistry(t)
	data := &externalData{ttl: time.Hour}
	set := providersOf(t, provider.document("registry", provider.URL, 60), data)
	askedByRego(t, t.Context(), set, "registry", "a")
	found := askedByRego(t, t.Context(), set, "registry", "a", "b")
	want := `[["a", "a@sha256"], ["b", "b@sha256"]]`
	if !same(t, found["responses"], json.RawMessage(want)) || !same(t, provider.asked, [][]string{{"a"}, {"b"}}) {
		t.Errorf("got %v, asked %v", found, provider.asked)
	}
	// All are kept: it is not asked, and the status is 0, as in Gatekeeper.
	if found = askedByRego(t, t.Context(), set, "registry", "b"); !same(t, found["status_code"], 0) || len(provider.asked) != 2 {
		t.Errorf("got %v, asked %v", found, provider.asked)
	}
	// A changed Provider is asked anew, as is one whose answers are too old.
	changed := providersOf(t, provider.document("registry", provider.URL+"/changed", 60), data)
	askedByRego(t, t.Context(), changed, "registry", "a")
	data.ttl = 1
	askedByRego(t, t.Context(), set, "registry", "b")
	if len(provider.asked) != 4 {
		t.Errorf("asked %v", provider.asked)
	}
}

func TestTheKeptAnswersAreBounded(t *testing.T) {
	kept := &answerCache{}
	large := strings.Repeat("x", maxProviderAnswerBytes)
	for index := range 100 {
		kept.put(answerKey{key: fmt.Sprint(index)}, externaldata.Item{Value: large})
		if _, isKept := kept.get(answerKey{key: fmt.Sprint(index)}, time.Hour); !isKept || kept.bytes > maxCachedBytes {
			t.Fatalf("%d bytes in %d items", kept.bytes, len(kept.items))
		}
	}
}

// Each of these is the engine's error of a provider that failed, which the Rego sees.
func TestAProviderThatFails(t *testing.T) {
	provider := newRegistry(t)
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	other, _ := writeCertificate(t, t.TempDir(), "other")
	authority, err := os.ReadFile(other)
	if err != nil {
		t.Fatal(err)
	}
	for name, sample := range map[string]struct {
		answer http.HandlerFunc
		url    string
		want   string
	}{
		"large": {func(response http.ResponseWriter, _ *http.Request) {
			for range maxProviderAnswerBytes/1024 + 1 {
				_, _ = response.Write(make([]byte, 1024))
			}
		}, provider.URL, "the external data response has more than 1048576 bytes"},
		"no JSON": {func(response http.ResponseWriter, _ *http.Request) { _, _ = response.Write([]byte("nothing")) },
			provider.URL, "failed to unmarshal external data response: "},
		"redirect": {func(response http.ResponseWriter, request *http.Request) {
			http.Redirect(response, request, plain.URL, http.StatusTemporaryRedirect)
		}, provider.URL, "failed to send external data request: "},
		"another CA": {nil, provider.URL, "failed to send external data request: "},
		"nobody":     {nil, "https://127.0.0.1:1", "failed to send external data request: "},
	} {
		t.Run(name, func(t *testing.T) {
			provider.answer = sample.answer
			text := provider.document("registry", sample.url, 60)
			if name == "another CA" {
				text = strings.Replace(text, provider.caBundle(), base64.StdEncoding.EncodeToString(authority), 1)
			}
			found := askedByRego(t, t.Context(), providersOf(t, text, &externalData{}), "registry", "a")
			if !same(t, found["status_code"], 500) || !strings.HasPrefix(found["system_error"].(string), sample.want) {
				t.Errorf("got %v", found)
			}
		})
	}
}

// imageByProvider returns the YAML of an Assign that asks for the image.
func imageByProvider(more string) string {
	return mutator("v1", "Assign", "digest", onPods+"location: 'spec.containers[name: *].image'\n"+
		"parameters: {assign: {externalData: {provider: registry"+more+"}}}")
}

func TestMutatorsAskAProviderOnceForAllKeys(t *testing.T) {
	provider := newRegistry(t)
	text := imageByProvider("") + mutator("v1", "AssignMetadata", "user",
		"location: metadata.annotations.user\nparameters: {assign: {externalData: {provider: registry, dataSource: Username}}}")
	policy := externalPolicy(t, provider.document("registry", provider.URL, 60)+text, &externalData{ttl: time.Hour})
	for range 2 {
		request := creation(t, webPod)
		review := request.review(t, "")
		if err := policy.review(t.Context(), review); err != nil {
			t.Fatal(err)
		}
		after := patched(t, request, review)
		image := after["spec"].(map[string]any)["containers"].([]any)[1].(map[string]any)["image"]
		user := after["metadata"].(map[string]any)["annotations"].(map[string]any)["user"]
		if image != "registry.example/team/side:1@sha256" || user != "alice@sha256" {
			t.Errorf("got %v, %v", image, user)
		}
	}
	keys := []string{"alice", "registry.example/team/app:1", "registry.example/team/side:1"}
	if !same(t, provider.asked, [][]string{keys, keys}) { // mutators keep no answers, as in Gatekeeper
		t.Errorf("asked %v", provider.asked)
	}
}

// externalPolicy is policyOf with Providers.
func externalPolicy(t testing.TB, text string, data *externalData) *mutationPolicy {
	t.Helper()
	objects := documentsOf(t, text)
	named := providersOf(t, text, data)
	set, problems := newMutatorSet(objects, named)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return &mutationPolicy{mutators: set, excluder: process.New()}
}

func TestTheFailurePolicyOfAMutator(t *testing.T) {
	provider := newRegistry(t)
	unknown := strings.ReplaceAll(webPod, "registry.example/team", "unknown.example")
	for more, want := range map[string]string{
		"":                        "failed to retrieve external data item from provider registry: not found",
		", failurePolicy: Ignore": "unknown.example/app:1",
		", failurePolicy: UseDefault, default: safe": "safe",
	} {
		policy := externalPolicy(t, provider.document("registry", provider.URL, 60)+imageByProvider(more), &externalData{})
		request := creation(t, unknown)
		review := request.review(t, "")
		err := policy.review(t.Context(), review)
		if more == "" {
			if denial := denialOf(t, err); denial.Code != 500 || !strings.Contains(denial.Message, want) {
				t.Errorf("got %+v", denial)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		containers := patched(t, request, review)["spec"].(map[string]any)["containers"].([]any)
		if image := containers[0].(map[string]any)["image"]; image != want {
			t.Errorf("%s: got %v", more, image)
		}
	}
	policy := externalPolicy(t, imageByProvider(""), &externalData{})
	denial := denialOf(t, policy.review(t.Context(), creation(t, webPod).review(t, "")))
	if !strings.Contains(denial.Message, "failed to find external data provider registry in responses") {
		t.Errorf("got %+v", denial)
	}
}

// A provider that does not answer takes no longer than the call, and the policy has failed then: it denies nothing.
func TestTheDeadlineOfTheCallEndsARequestToAProvider(t *testing.T) {
	provider := newRegistry(t)
	held := make(chan struct{})
	provider.answer = func(http.ResponseWriter, *http.Request) { <-held }
	defer close(held)
	for _, timeout := range []int{0, 3600} {
		policy := externalPolicy(t, provider.document("registry", provider.URL, timeout)+imageByProvider(", failurePolicy: Ignore"), &externalData{})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := policy.review(ctx, creation(t, webPod).review(t, "")); err != context.DeadlineExceeded {
			t.Errorf("got %v", err)
		}
	}
}

// The timeout of the Provider ends the request too, and is its failure.
func TestTheTimeoutOfAProvider(t *testing.T) {
	provider := newRegistry(t)
	held := make(chan struct{})
	provider.answer = func(http.ResponseWriter, *http.Request) { <-held }
	defer close(held)
	set := providersOf(t, provider.document("registry", provider.URL, 1), &externalData{})
	found := askedByRego(t, t.Context(), set, "registry", "a")
	if text := found["system_error"].(string); !strings.Contains(text, "context deadline exceeded") {
		t.Errorf("got %v", found)
	}
}

func TestProvidersThatDoNotChangeKeepTheirConnections(t *testing.T) {
	provider := newRegistry(t)
	text := provider.document("same", provider.URL, 1) + provider.document("changed", provider.URL, 1)
	data := &externalData{}
	before := providersOf(t, text, data)
	changed := strings.Replace(text, "name: changed}\nspec: {url: "+provider.URL, "name: changed}\nspec: {url: "+provider.URL+"/new", 1)
	after, problems := newProviderSet(documentsOf(t, changed), data, before)
	before.closeOthers(after)
	if len(problems) > 0 || after.byName["same"] != before.byName["same"] || after.byName["changed"] == before.byName["changed"] {
		t.Errorf("got %v, %v", after.byName, problems)
	}
}

// writeCertificate writes a self-signed client certificate and its key.
func writeCertificate(t testing.TB, folder, name string) (cert, key string) {
	t.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	made := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, made, made, &secret.PublicKey, secret)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func TestTheClientCertificateOfTheFlags(t *testing.T) {
	provider := newRegistry(t)
	cert, key := writeCertificate(t, t.TempDir(), "gatekeeper")
	data := &externalData{}
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	data.define(flags)
	if err := flags.Parse([]string{"--external-data-client-cert", cert, "--external-data-client-key", key}); err != nil {
		t.Fatal(err)
	}
	if err := data.begin(t.Context()); err != nil || data.ttl != 3*time.Minute {
		t.Fatal(err, data.ttl)
	}
	text := provider.document("registry", provider.URL, 60)
	askedByRego(t, t.Context(), providersOf(t, text, data), "registry", "a")
	policy := externalPolicy(t, text+imageByProvider(""), data)
	if err := policy.review(t.Context(), creation(t, webPod).review(t, "")); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(provider.users, []string{"gatekeeper", "gatekeeper"}) {
		t.Errorf("got %q", provider.users)
	}
}

func TestFlagsOfExternalDataThatAreWrong(t *testing.T) {
	for want, data := range map[string]*externalData{
		"--external-data-provider-response-cache-ttl: found -1s, expected 0 or more":        {ttl: -time.Second},
		"--external-data-client-cert and --external-data-client-key: expected both or none": {certFile: "tls.crt"},
		"--external-data-client-cert: open nobody.crt: no such file or directory":           {certFile: "nobody.crt", keyFile: "nobody.key"},
	} {
		if err := data.begin(t.Context()); fmt.Sprint(err) != want {
			t.Errorf("got %v, expected %s", err, want)
		}
	}
}
