// Program oracle answers with Kubernetes' own code: one question as JSON a line, one answer a line.
//
//	{"do": "default", "object": {...}}   decode with defaults, convert to the internal version and back
//	{"do": "expand", "object": {...}}    the objects that the controller of a workload creates, last the Pod
//	{"do": "admit", "object": {...}}     the object after the plug-ins before webhooks
//	{"do": "validate", "object": {...}}  nothing, or the error of a plug-in after the mutating webhooks
//
// Plug-ins read the objects in "others". An answer has "objects" or "error". Functions that their packages keep for themselves are linked by name.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"
	_ "unsafe"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	crds "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/install"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	feature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	apiservices "k8s.io/kube-aggregator/pkg/apis/apiregistration/install"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/authentication/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	internalbatch "k8s.io/kubernetes/pkg/apis/batch"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	internalcore "k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/flowcontrol/install"
	"k8s.io/kubernetes/pkg/apis/networking"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	"k8s.io/kubernetes/pkg/controller"
	_ "k8s.io/kubernetes/pkg/controller/cronjob"
	daemon "k8s.io/kubernetes/pkg/controller/daemon/util"
	deployment "k8s.io/kubernetes/pkg/controller/deployment/util"
	_ "k8s.io/kubernetes/pkg/controller/job"
	_ "k8s.io/kubernetes/pkg/controller/statefulset"
	jobs "k8s.io/kubernetes/pkg/registry/batch/job"
	labels "k8s.io/kubernetes/pkg/util/labels"
	"k8s.io/kubernetes/plugin/pkg/admission/defaulttolerationseconds"
	"k8s.io/kubernetes/plugin/pkg/admission/limitranger"
	"k8s.io/kubernetes/plugin/pkg/admission/network/defaultingressclass"
	"k8s.io/kubernetes/plugin/pkg/admission/priority"
	"k8s.io/kubernetes/plugin/pkg/admission/runtimeclass"
	"k8s.io/kubernetes/plugin/pkg/admission/serviceaccount"
	"k8s.io/kubernetes/plugin/pkg/admission/storage/storageclass/setdefault"
	"k8s.io/kubernetes/plugin/pkg/admission/storage/storageobjectinuseprotection"
)

//go:linkname newStatefulSetPod k8s.io/kubernetes/pkg/controller/statefulset.newStatefulSetPod
func newStatefulSetPod(set *apps.StatefulSet, ordinal int) *core.Pod

//go:linkname getPersistentVolumeClaims k8s.io/kubernetes/pkg/controller/statefulset.getPersistentVolumeClaims
func getPersistentVolumeClaims(set *apps.StatefulSet, pod *core.Pod) map[string]core.PersistentVolumeClaim

//go:linkname setPodRevision k8s.io/kubernetes/pkg/controller/statefulset.setPodRevision
func setPodRevision(pod *core.Pod, revision string)

//go:linkname getJobFromTemplate2 k8s.io/kubernetes/pkg/controller/cronjob.getJobFromTemplate2
func getJobFromTemplate2(job *batch.CronJob, at time.Time) (*batch.Job, error)

//go:linkname appendJobCompletionFinalizerIfNotFound k8s.io/kubernetes/pkg/controller/job.appendJobCompletionFinalizerIfNotFound
func appendJobCompletionFinalizerIfNotFound(finalizers []string) []string

//go:linkname addCompletionIndexEnvVariables k8s.io/kubernetes/pkg/controller/job.addCompletionIndexEnvVariables
func addCompletionIndexEnvVariables(template *core.PodTemplateSpec)

//go:linkname addCompletionIndexAnnotation k8s.io/kubernetes/pkg/controller/job.addCompletionIndexAnnotation
func addCompletionIndexAnnotation(template *core.PodTemplateSpec, index int)

//go:linkname addCompletionIndexLabel k8s.io/kubernetes/pkg/controller/job.addCompletionIndexLabel
func addCompletionIndexLabel(template *core.PodTemplateSpec, index int)

//go:linkname podGenerateNameWithIndex k8s.io/kubernetes/pkg/controller/job.podGenerateNameWithIndex
func podGenerateNameWithIndex(job string, index int) string

type question struct {
	Do     string          `json:"do"`
	Object json.RawMessage `json:"object"`
	// Hash and Node stand for what a cluster makes up, Minutes for the time of a CronJob's Job.
	Hash    string `json:"hash"`
	Node    string `json:"node"`
	Minutes int64  `json:"minutes"`
	// Gates are feature gates of the question, such as Name=false.
	Gates string `json:"gates"`
	// Others are the objects in the cluster.
	Others []json.RawMessage `json:"others"`
}

type answer struct {
	Objects []json.RawMessage `json:"objects,omitempty"`
	Error   string            `json:"error,omitempty"`
}

func main() {
	crds.Install(legacyscheme.Scheme)
	apiservices.Install(legacyscheme.Scheme)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var asked question
		var found answer
		err := json.Unmarshal(lines.Bytes(), &asked)
		if err == nil {
			found.Objects, err = reply(asked)
		}
		if err != nil {
			found = answer{Error: err.Error()}
		}
		if err := out.Encode(found); err != nil {
			panic(err)
		}
	}
	if err := lines.Err(); err != nil {
		panic(err)
	}
}

func reply(asked question) ([]json.RawMessage, error) {
	if asked.Gates != "" {
		if err := feature.DefaultMutableFeatureGate.Set(asked.Gates); err != nil {
			return nil, err
		}
	}
	internal, gvk, err := legacyscheme.Codecs.UniversalDecoder().Decode(asked.Object, nil, nil)
	if err != nil {
		return nil, err
	}
	switch asked.Do {
	case "default":
		return encoded(gvk.GroupVersion(), internal)
	case "admit", "validate":
		if err := admit(asked, internal); err != nil {
			return nil, err
		}
		return encoded(gvk.GroupVersion(), internal)
	}
	versioned, err := legacyscheme.Scheme.ConvertToVersion(internal, gvk.GroupVersion())
	if err != nil {
		return nil, err
	}
	made, err := expand(asked, versioned)
	if err != nil {
		return nil, err
	}
	var all []json.RawMessage
	for _, object := range made {
		// Decoded again, as the API server does with what a controller sends: with defaults.
		kinds, _, err := legacyscheme.Scheme.ObjectKinds(object)
		if err != nil {
			return nil, err
		}
		object.GetObjectKind().SetGroupVersionKind(kinds[0])
		text, err := json.Marshal(object)
		if err != nil {
			return nil, err
		}
		again, err := reply(question{Do: "default", Object: text})
		if err != nil {
			return nil, err
		}
		all = append(all, again...)
	}
	return all, nil
}

func encoded(version schema.GroupVersion, object runtime.Object) ([]json.RawMessage, error) {
	text, err := runtime.Encode(legacyscheme.Codecs.LegacyCodec(version), object)
	return []json.RawMessage{text}, err
}

// expand returns what the controller of a workload creates.
func expand(asked question, object runtime.Object) ([]runtime.Object, error) {
	switch owner := object.(type) {
	case *apps.Deployment:
		template := *owner.Spec.Template.DeepCopy()
		key := apps.DefaultDeploymentUniqueLabelKey
		template.Labels = labels.CloneAndAddLabel(owner.Spec.Template.Labels, key, asked.Hash)
		set := &apps.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{
				Name:            owner.Name + "-" + asked.Hash,
				Namespace:       owner.Namespace,
				OwnerReferences: []metav1.OwnerReference{*reference(owner, "Deployment")},
				Labels:          template.Labels,
			},
			Spec: apps.ReplicaSetSpec{
				Replicas:        owner.Spec.Replicas,
				MinReadySeconds: owner.Spec.MinReadySeconds,
				Selector:        labels.CloneSelectorAndAddLabel(owner.Spec.Selector, key, asked.Hash),
				Template:        template,
			},
		}
		deployment.SetNewReplicaSetAnnotations(context.TODO(), owner, set, "1", false, 2000)
		pod, err := controller.GetPodFromTemplate(&set.Spec.Template, set, reference(set, "ReplicaSet"))
		return []runtime.Object{set, pod}, err
	case *apps.ReplicaSet:
		pod, err := controller.GetPodFromTemplate(&owner.Spec.Template, owner, reference(owner, "ReplicaSet"))
		return []runtime.Object{pod}, err
	case *core.ReplicationController:
		gvk := core.SchemeGroupVersion.WithKind("ReplicationController")
		pod, err := controller.GetPodFromTemplate(owner.Spec.Template, owner, metav1.NewControllerRef(owner, gvk))
		return []runtime.Object{pod}, err
	case *apps.DaemonSet:
		generation := int64(1)
		template := daemon.CreatePodTemplate(owner.Spec.Template, &generation, asked.Hash)
		template.Spec.Affinity = daemon.ReplaceDaemonSetPodNodeNameNodeAffinity(template.Spec.Affinity, asked.Node)
		pod, err := controller.GetPodFromTemplate(&template, owner, reference(owner, "DaemonSet"))
		return []runtime.Object{pod}, err
	case *apps.StatefulSet:
		ordinal := 0
		if owner.Spec.Ordinals != nil {
			ordinal = int(owner.Spec.Ordinals.Start)
		}
		pod := newStatefulSetPod(owner, ordinal)
		setPodRevision(pod, owner.Name+"-"+asked.Hash)
		claims := getPersistentVolumeClaims(owner, pod)
		var all []runtime.Object
		for _, template := range owner.Spec.VolumeClaimTemplates {
			claim := claims[template.Name]
			all = append(all, &claim)
		}
		return append(all, pod), nil
	case *batch.CronJob:
		job, err := getJobFromTemplate2(owner, time.Unix(asked.Minutes*60, 0))
		if err != nil {
			return nil, err
		}
		job.Namespace = owner.Namespace
		job.CreationTimestamp = metav1.Time{}
		pod, err := jobPod(job)
		return []runtime.Object{job, pod}, err
	case *batch.Job:
		pod, err := jobPod(owner)
		return []runtime.Object{pod}, err
	}
	return nil, fmt.Errorf("nothing is created from a %T", object)
}

// jobPod returns the first Pod of a Job, after the API server has labelled the template.
func jobPod(found *batch.Job) (*core.Pod, error) {
	job := found.DeepCopy()
	legacyscheme.Scheme.Default(job)
	internal := &internalbatch.Job{}
	if err := legacyscheme.Scheme.Convert(job, internal, nil); err != nil {
		return nil, err
	}
	jobs.Strategy.PrepareForCreate(context.TODO(), internal)
	job = &batch.Job{}
	if err := legacyscheme.Scheme.Convert(internal, job, nil); err != nil {
		return nil, err
	}
	template := job.Spec.Template.DeepCopy()
	name := ""
	indexed := *job.Spec.CompletionMode == batch.IndexedCompletion
	if indexed {
		addCompletionIndexEnvVariables(template)
	}
	template.Finalizers = appendJobCompletionFinalizerIfNotFound(template.Finalizers)
	if indexed {
		addCompletionIndexAnnotation(template, 0)
		addCompletionIndexLabel(template, 0)
		template.Spec.Hostname = fmt.Sprintf("%s-%d", job.Name, 0)
		name = podGenerateNameWithIndex(job.Name, 0)
	}
	owner := metav1.NewControllerRef(job, batch.SchemeGroupVersion.WithKind("Job"))
	pod, err := controller.GetPodFromTemplate(template, job, owner)
	if err == nil && name != "" {
		pod.GenerateName = name
	}
	return pod, err
}

func reference(owner metav1.Object, kind string) *metav1.OwnerReference {
	return metav1.NewControllerRef(owner, apps.SchemeGroupVersion.WithKind(kind))
}

var resources = map[string]schema.GroupVersionResource{
	"Pod":                   internalcore.Resource("pods").WithVersion("v1"),
	"PersistentVolumeClaim": internalcore.Resource("persistentvolumeclaims").WithVersion("v1"),
	"PersistentVolume":      internalcore.Resource("persistentvolumes").WithVersion("v1"),
	"Ingress":               networking.Resource("ingresses").WithVersion("v1"),
}

// admit runs the plug-ins in their order; the namespace has a ServiceAccount "default".
func admit(asked question, object runtime.Object) error {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	namespace := accessor.GetNamespace()
	var all []runtime.Object
	hasAccount := false
	for _, text := range asked.Others {
		internal, gvk, err := legacyscheme.Codecs.UniversalDecoder().Decode(text, nil, nil)
		if err != nil {
			return err
		}
		other, err := legacyscheme.Scheme.ConvertToVersion(internal, gvk.GroupVersion())
		if err != nil {
			return err
		}
		account, ok := other.(*core.ServiceAccount)
		hasAccount = hasAccount || ok && account.Name == "default"
		all = append(all, other)
	}
	if !hasAccount {
		all = append(all, &core.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: namespace}})
	}
	client := fake.NewClientset(all...)
	factory := informers.NewSharedInformerFactory(client, 0)
	plugins := admission.NewPlugins()
	register(plugins)
	var made []admission.Interface
	for _, name := range []string{
		limitranger.PluginName, serviceaccount.PluginName, priority.PluginName,
		defaulttolerationseconds.PluginName, setdefault.PluginName, storageobjectinuseprotection.PluginName,
		runtimeclass.PluginName, defaultingressclass.PluginName,
	} {
		plugin, err := plugins.InitPlugin(name, nil, given{client, factory})
		if err != nil {
			return err
		}
		made = append(made, plugin)
	}
	stop := make(chan struct{})
	defer close(stop)
	factory.Start(stop)
	factory.WaitForCacheSync(stop)
	kinds, _, err := legacyscheme.Scheme.ObjectKinds(object)
	if err != nil {
		return err
	}
	kind := kinds[0].GroupKind().WithVersion("v1")
	attributes := admission.NewAttributesRecord(
		object, nil, kind, namespace, accessor.GetName(),
		resources[kind.Kind], "", admission.Create, &metav1.CreateOptions{}, false, nil,
	)
	for _, plugin := range made {
		mutating, isMutating := plugin.(admission.MutationInterface)
		validating, isValidating := plugin.(admission.ValidationInterface)
		if asked.Do == "admit" && isMutating {
			err = mutating.Admit(context.TODO(), attributes, nil)
		} else if asked.Do == "validate" && isValidating {
			err = validating.Validate(context.TODO(), attributes, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func register(plugins *admission.Plugins) {
	limitranger.Register(plugins)
	serviceaccount.Register(plugins)
	priority.Register(plugins)
	defaulttolerationseconds.Register(plugins)
	setdefault.Register(plugins)
	storageobjectinuseprotection.Register(plugins)
	runtimeclass.Register(plugins)
	defaultingressclass.Register(plugins)
}

// given is what plug-ins ask for.
type given struct {
	client  kubernetes.Interface
	factory informers.SharedInformerFactory
}

func (one given) Initialize(plugin admission.Interface) {
	if wants, ok := plugin.(initializer.WantsExternalKubeClientSet); ok {
		wants.SetExternalKubeClientSet(one.client)
	}
	if wants, ok := plugin.(initializer.WantsExternalKubeInformerFactory); ok {
		wants.SetExternalKubeInformerFactory(one.factory)
	}
	if wants, ok := plugin.(initializer.WantsFeatures); ok {
		wants.InspectFeatureGates(feature.DefaultFeatureGate)
	}
}
