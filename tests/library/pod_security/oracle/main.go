// Kubernetes' own PodSecurity, as a filter: a JSON object a line.
//
// In: {"pod": Pod, "policies": [LEVEL:VERSION]}. Out: a list of results, one for each policy.
// With the argument "admission" it decides about whole requests instead: see question and decision.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	componentmetrics "k8s.io/component-base/metrics"
	"k8s.io/pod-security-admission/admission"
	"k8s.io/pod-security-admission/admission/api/load"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/metrics"
	"k8s.io/pod-security-admission/policy"
)

type pod struct {
	Pod      corev1.Pod `json:"pod"`
	Policies []string   `json:"policies"`
}

type result struct {
	Reason string `json:"reason"`
	Detail string `json:"detail"`
}

// question is an AdmissionRequest with what else PodSecurity knows.
type question struct {
	Request   admissionv1.AdmissionRequest `json:"request"`
	Namespace *corev1.Namespace            `json:"namespace"`
	// Configuration is a PodSecurityConfiguration.
	Configuration json.RawMessage `json:"configuration"`
	// Pods are those of the namespace.
	Pods []*corev1.Pod `json:"pods"`
}

type decision struct {
	Response *admissionv1.AdmissionResponse `json:"response"`
	Counted  map[string]float64             `json:"counted"`
}

var (
	codecs   = runtime.NewScheme()
	registry = componentmetrics.NewKubeRegistry()
	recorder = metrics.NewPrometheusRecorder(api.MajorMinorVersion(1, 37))
)

func main() {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	must(err)
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme} {
		must(add(codecs))
	}
	recorder.MustRegister(registry.MustRegister)
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<26)
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	whole := len(os.Args) > 1 && os.Args[1] == "admission"
	for in.Scan() {
		if whole {
			must(out.Encode(decide(evaluator, in.Bytes())))
		} else {
			must(out.Encode(evaluate(evaluator, in.Bytes())))
		}
	}
	must(in.Err())
}

func evaluate(evaluator policy.Evaluator, line []byte) []result {
	var asked pod
	must(json.Unmarshal(line, &asked))
	results := []result{}
	for _, each := range asked.Policies {
		level, version, _ := strings.Cut(each, ":")
		parsed, err := api.ParseVersion(version)
		must(err)
		found := policy.AggregateCheckResults(evaluator.EvaluatePod(
			api.LevelVersion{Level: api.Level(level), Version: parsed}, &asked.Pod.ObjectMeta, &asked.Pod.Spec,
		))
		results = append(results, result{found.ForbiddenReason(), found.ForbiddenDetail()})
	}
	return results
}

func decide(evaluator policy.Evaluator, line []byte) decision {
	var asked question
	must(json.Unmarshal(line, &asked))
	configuration, err := load.LoadFromData(asked.Configuration)
	must(err)
	recorder.Reset()
	plugin := &admission.Admission{
		Configuration:   configuration,
		Evaluator:       evaluator,
		Metrics:         recorder,
		NamespaceGetter: asked,
		PodLister:       asked,
	}
	must(plugin.CompleteConfiguration())
	must(plugin.ValidateConfiguration())
	attributes := &request{asked.Request}
	return decision{plugin.Validate(context.Background(), attributes), counters(registry)}
}

func (q question) GetNamespace(_ context.Context, name string) (*corev1.Namespace, error) {
	if q.Namespace == nil {
		return nil, fmt.Errorf("namespaces %q not found", name)
	}
	return q.Namespace, nil
}

func (q question) ListPods(context.Context, string) ([]*corev1.Pod, error) { return q.Pods, nil }

// request reads its objects as the API server's webhook of PodSecurity does.
type request struct{ admissionv1.AdmissionRequest }

func (r *request) GetName() string                     { return r.Name }
func (r *request) GetNamespace() string                { return r.Namespace }
func (r *request) GetSubresource() string              { return r.SubResource }
func (r *request) GetOperation() admissionv1.Operation { return r.Operation }
func (r *request) GetUserName() string                 { return r.UserInfo.Username }
func (r *request) GetResource() schema.GroupVersionResource {
	return schema.GroupVersionResource(r.Resource)
}
func (r *request) GetKind() schema.GroupVersionKind      { return schema.GroupVersionKind(r.Kind) }
func (r *request) GetObject() (runtime.Object, error)    { return decode(r.Object.Raw) }
func (r *request) GetOldObject() (runtime.Object, error) { return decode(r.OldObject.Raw) }

func decode(raw []byte) (runtime.Object, error) {
	var kind metav1.TypeMeta
	if err := json.Unmarshal(raw, &kind); err != nil {
		return nil, err
	}
	object, err := codecs.New(kind.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	return object, json.Unmarshal(raw, object)
}

// counters are the metrics that are not 0.
func counters(registry componentmetrics.KubeRegistry) map[string]float64 {
	families, err := registry.Gather()
	must(err)
	found := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.Metric {
			labels := []string{}
			for _, label := range metric.Label {
				labels = append(labels, label.GetName()+"="+label.GetValue())
			}
			if value := metric.Counter.GetValue(); value != 0 {
				found[family.GetName()+" "+strings.Join(labels, " ")] = value
			}
		}
	}
	return found
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
