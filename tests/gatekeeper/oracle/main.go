// Gatekeeper's own client of constraints and its webhook, with its engine of CEL, as a filter: a JSON object a line.
//
// In: a case. Out: the results of the constraints, in the order in which Gatekeeper has them, and the webhook's answer.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"

	"github.com/go-logr/logr"
	"github.com/open-policy-agent/frameworks/constraint/pkg/apis"
	templatesv1 "github.com/open-policy-agent/frameworks/constraint/pkg/apis/templates/v1"
	constraintclient "github.com/open-policy-agent/frameworks/constraint/pkg/client"
	"github.com/open-policy-agent/frameworks/constraint/pkg/client/reviews"
	"github.com/open-policy-agent/frameworks/constraint/pkg/core/templates"
	rtypes "github.com/open-policy-agent/frameworks/constraint/pkg/types"
	configv1alpha1 "github.com/open-policy-agent/gatekeeper/v3/apis/config/v1alpha1"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/controller/config/process"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/drivers/k8scel"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/expansion"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/mutation"
	mutationtypes "github.com/open-policy-agent/gatekeeper/v3/pkg/mutation/types"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/target"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/util"
	gkwebhook "github.com/open-policy-agent/gatekeeper/v3/pkg/webhook"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

type question struct {
	Templates   []json.RawMessage            `json:"templates"`
	Constraints []unstructured.Unstructured  `json:"constraints"`
	Config      *configv1alpha1.Config       `json:"config"`
	Namespaces  []*corev1.Namespace          `json:"namespaces"`
	Request     admissionv1.AdmissionRequest `json:"request"`
}

type answer struct {
	// Refused is why a template or a constraint is not taken.
	Refused  string   `json:"refused,omitempty"`
	Results  []result `json:"results,omitempty"`
	Error    string   `json:"error,omitempty"`
	Allowed  bool     `json:"allowed"`
	Code     int32    `json:"code,omitempty"`
	Reason   string   `json:"reason,omitempty"`
	Message  string   `json:"message,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

type result struct {
	Constraint string   `json:"constraint"`
	Message    string   `json:"message"`
	Action     string   `json:"action"`
	Scoped     []string `json:"scoped,omitempty"`
}

func main() {
	ctrl.SetLogger(logr.Discard())
	in, out := bufio.NewReaderSize(os.Stdin, 1<<20), bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked question
		if err := json.Unmarshal(line, &asked); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if err := encoder.Encode(answered(&asked)); err != nil {
			os.Exit(1)
		}
		out.Flush()
	}
}

func answered(asked *question) answer {
	engine, err := loaded(asked)
	if err != nil {
		return answer{Refused: err.Error()}
	}
	var got answer
	responses, err := reviewed(engine, asked)
	if err != nil {
		got.Error = err.Error()
	} else {
		for _, each := range responses.Results() {
			// Gatekeeper has them in a random order.
			scoped := slices.Sorted(slices.Values(each.ScopedEnforcementActions))
			got.Results = append(got.Results, result{each.Constraint.GetName(), each.Msg, each.EnforcementAction, scoped})
		}
	}
	given := handled(engine, asked)
	got.Allowed, got.Warnings = given.Allowed, given.Warnings
	if given.Result != nil {
		got.Code, got.Reason, got.Message = given.Result.Code, string(given.Result.Reason), given.Result.Message
	}
	return got
}

func loaded(asked *question) (*constraintclient.Client, error) {
	driver, err := k8scel.New()
	if err != nil {
		return nil, err
	}
	engine, err := constraintclient.NewClient(
		constraintclient.Targets(&target.K8sValidationTarget{}), constraintclient.Driver(driver),
		constraintclient.EnforcementPoints(util.WebhookEnforcementPoint))
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := apis.AddToScheme(scheme); err != nil {
		return nil, err
	}
	for _, each := range asked.Templates {
		var versioned templatesv1.ConstraintTemplate
		if err := json.Unmarshal(each, &versioned); err != nil {
			return nil, err
		}
		template := &templates.ConstraintTemplate{}
		if err := scheme.Convert(&versioned, template, nil); err != nil {
			return nil, err
		}
		if _, err := engine.AddTemplate(context.Background(), template); err != nil {
			return nil, err
		}
	}
	for index := range asked.Constraints {
		if _, err := engine.AddConstraint(context.Background(), &asked.Constraints[index]); err != nil {
			return nil, err
		}
	}
	return engine, nil
}

// reviewed asks the engine itself, as the webhook does.
func reviewed(engine *constraintclient.Client, asked *question) (*rtypes.Responses, error) {
	request := *asked.Request.DeepCopy()
	if request.Kind.Kind == "Namespace" && request.Kind.Group == "" {
		request.Namespace = ""
	}
	review := &target.AugmentedReview{
		AdmissionRequest: &request, Source: mutationtypes.SourceTypeOriginal, IsAdmission: true,
		Namespace: asked.namespace(request.Namespace),
	}
	options := []reviews.ReviewOpt{reviews.EnforcementPoint(util.WebhookEnforcementPoint)}
	if given := util.NamespaceReviewOpt(review.Namespace, logr.Discard()); given != nil {
		options = append(options, given)
	}
	return engine.Review(context.Background(), review, options...)
}

func (asked *question) namespace(name string) *corev1.Namespace {
	for _, each := range asked.Namespaces {
		if each.Name == name {
			return each
		}
	}
	return nil
}

// handled asks the webhook: its handler is what it registers.
func handled(engine *constraintclient.Client, asked *question) admission.Response {
	excluder := process.New()
	if asked.Config != nil {
		excluder.Add(asked.Config.Spec.Match)
	}
	mutators := mutation.NewSystem(mutation.SystemOpts{})
	server := &server{handlers: map[string]http.Handler{}}
	err := gkwebhook.AddPolicyWebhook(&fakeManager{server: server, reader: &cluster{asked: asked}}, gkwebhook.Dependencies{
		OpaClient: engine, ProcessExcluder: excluder, MutationSystem: mutators, ExpansionSystem: expansion.NewSystem(mutators),
	})
	if err != nil {
		panic(err)
	}
	registered := server.handlers["/v1/admit"].(*admission.Webhook)
	return registered.Handler.Handle(context.Background(), admission.Request{AdmissionRequest: *asked.Request.DeepCopy()})
}

// fakeManager has what the registration of the webhook asks of a manager.
type fakeManager struct {
	manager.Manager
	server *server
	reader *cluster
}

func (m *fakeManager) GetConfig() *rest.Config          { return &rest.Config{Host: "http://127.0.0.1:1"} }
func (m *fakeManager) GetClient() client.Client         { return m.reader }
func (m *fakeManager) GetAPIReader() client.Reader      { return m.reader }
func (m *fakeManager) GetWebhookServer() webhook.Server { return m.server }

type server struct {
	webhook.Server
	handlers map[string]http.Handler
}

func (s *server) Register(path string, handler http.Handler) { s.handlers[path] = handler }

// cluster has the namespaces of a case, and nothing else.
type cluster struct {
	client.Client
	asked *question
}

func (c *cluster) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	if wanted, ok := object.(*corev1.Namespace); ok {
		if found := c.asked.namespace(key.Name); found != nil {
			found.DeepCopyInto(wanted)
			return nil
		}
	}
	return errors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, key.Name)
}
