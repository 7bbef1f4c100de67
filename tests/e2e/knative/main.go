// Command knative is what a project on knative.dev/pkg runs beside its webhooks: the library's own reconcilers
// for a defaulting, a validating and a binding webhook and for their certificate, and the webhook server.
//
// The objects MutatingWebhookConfiguration NAME-default and NAME-bind, ValidatingWebhookConfiguration
// NAME-validate and the Secret NAME have to be there, as a release makes them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"knative.dev/pkg/apis"
	"knative.dev/pkg/configmap"
	"knative.dev/pkg/controller"
	"knative.dev/pkg/injection"
	"knative.dev/pkg/signals"
	"knative.dev/pkg/system"
	"knative.dev/pkg/webhook"
	"knative.dev/pkg/webhook/certificates"
	"knative.dev/pkg/webhook/psbinding"
	"knative.dev/pkg/webhook/resourcesemantics"
	"knative.dev/pkg/webhook/resourcesemantics/defaulting"
	"knative.dev/pkg/webhook/resourcesemantics/validation"
)

// Item is an object of any kind: one without the label "stamp" gets it, and one labelled "refuse" is refused.
type Item struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Data              map[string]string `json:"data,omitempty"`
	Spec              json.RawMessage   `json:"spec,omitempty"`
}

func (item *Item) SetDefaults(context.Context) {
	if item.Labels == nil {
		item.Labels = map[string]string{}
	}
	item.Labels["stamp"] = "knative"
}

func (item *Item) Validate(context.Context) *apis.FieldError {
	if _, has := item.Labels["refuse"]; has {
		return apis.ErrDisallowedFields("metadata.labels.refuse")
	}
	return nil
}

func (item *Item) DeepCopyObject() runtime.Object {
	written, err := json.Marshal(item)
	if err != nil {
		panic(err)
	}
	copied := &Item{}
	if err := json.Unmarshal(written, copied); err != nil {
		panic(err)
	}
	return copied
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "of the cluster")
	name := flag.String("name", "", "of the Secret and the Service, and how the other objects' names begin")
	port := flag.Int("port", 0, "of 127.0.0.1, for the webhooks")
	kinds := flag.String("kinds", "ConfigMap", "kinds of the core group that are defaulted and validated")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	handlers := map[schema.GroupVersionKind]resourcesemantics.GenericCRD{}
	for _, kind := range strings.Split(*kinds, ",") {
		handlers[schema.GroupVersionKind{Version: "v1", Kind: kind}] = &Item{}
	}
	options := webhook.Options{ServiceName: *name, SecretName: *name, Port: *port}
	ctx := webhook.WithOptions(signals.NewContext(), options)
	ctx, startInformers := injection.EnableInjectionOrDie(ctx, config)

	noBindings := func(context.Context, cache.ResourceEventHandler) psbinding.ListAll {
		return func() ([]psbinding.Bindable, error) { return nil, nil }
	}
	watcher := configmap.NewStaticWatcher()
	defaulter := defaulting.NewAdmissionController(ctx, *name+"-default.knative.test", "/default", handlers, nil, false)
	validator := validation.NewAdmissionController(ctx, *name+"-validate.knative.test", "/validate", handlers, nil, false)
	binder := psbinding.NewAdmissionController(ctx, *name+"-bind.knative.test", "/bind", noBindings, nil)
	controllers := []*controller.Impl{certificates.NewController(ctx, watcher), defaulter, validator, binder}

	server, err := webhook.New(ctx, []any{defaulter.Reconciler, validator.Reconciler, binder.Reconciler})
	if err != nil {
		log.Fatal(err)
	}
	startInformers()
	server.InformersHaveSynced()
	go func() {
		if err := controller.StartAll(ctx, controllers...); err != nil {
			log.Fatal(err)
		}
	}()
	log.Printf("reconciling in namespace %s", system.Namespace())
	if err := server.Run(ctx.Done()); err != nil && !errors.Is(err, context.Canceled) {
		log.Print(err)
		os.Exit(1)
	}
}
