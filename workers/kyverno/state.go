package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"slices"
	"strings"

	documents "admission-gateway.io/engines"
	"admission-gateway.io/worker"
	kyvernov1 "github.com/kyverno/kyverno/api/kyverno/v1"
	kyvernov2 "github.com/kyverno/kyverno/api/kyverno/v2"
	"github.com/kyverno/kyverno/pkg/config"
	"github.com/kyverno/kyverno/pkg/engine"
	engineapi "github.com/kyverno/kyverno/pkg/engine/api"
	"github.com/kyverno/kyverno/pkg/engine/jmespath"
	"github.com/kyverno/kyverno/pkg/exceptions"
	imageverifycache "github.com/kyverno/kyverno/pkg/image/verification/cache"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// API groups of documents.
const (
	kyvernoGroup  = "kyverno.io"
	policiesGroup = "policies.kyverno.io"
	cliGroup      = "cli.kyverno.io"
	rbacGroup     = "rbac.authorization.k8s.io"
)

// Names of the policies of all rules, and of a part of such with applyRules One.
const (
	validationName = "validation"
	mutationName   = "mutation"
)

var (
	configuration = config.NewDefaultConfiguration(false)
	jmes          = jmespath.New(configuration)
)

// list is a lister of what does not change.
type list[T any] []T

func (l list[T]) List(labels.Selector) ([]T, error) { return l, nil }

// state is all that one set of documents says. It does not change: a call in flight keeps the state that it began with.
type state struct {
	served []served
	// policies are those with rules that are evaluated, complete but for rules that are not served.
	policies []kyvernov1.PolicyInterface
	// named are kinds that rules name with a subresource, by their plural name.
	named map[string]string
	// mergePatches are those of policies that need a part of the object only.
	mergePatches        map[kyvernov1.PolicyInterface]mergePatches
	exceptions          list[*kyvernov2.PolicyException]
	roleBindings        list[*rbacv1.RoleBinding]
	clusterRoleBindings list[*rbacv1.ClusterRoleBinding]
	contexts            *contextLoaders
	data                data
	mocks               mocks
	turns               turns
	engine              engineapi.Engine
}

// identity is what makes two documents versions of one object.
type identity struct{ group, kind, namespace, name string }

func identityOf(object documents.Object) identity {
	kind := object.GroupVersionKind()
	return identity{kind.Group, kind.Kind, object.GetNamespace(), object.GetName()}
}

// program serves the policies of the documents that it was given last.
type program struct {
	server *worker.Server
	log    *log.Logger
	source *documents.Source
	access *access
	// allowed are where exceptions apply.
	allowed exceptionNamespaces
	// cluster is nil without --cluster.
	cluster *cluster
	turns   turns
	// good has the last version of each policy that could be decoded.
	good map[identity]kyvernov1.PolicyInterface
	// said are the lines of the log about the last documents.
	said map[string]bool
}

func newProgram(server *worker.Server, logger *log.Logger) *program {
	return &program{
		server: server, log: logger, source: &documents.Source{Log: logger}, access: &access{},
		turns: newTurns(), good: make(map[identity]kyvernov1.PolicyInterface),
	}
}

// begin serves the documents, and follows them until ctx ends.
func (p *program) begin(ctx context.Context) error {
	if err := p.access.begin(); err != nil {
		return err
	}
	if err := p.allowed.check(); err != nil {
		return err
	}
	if p.source.Cluster {
		made, err := newCluster(ctx, p.source)
		if err != nil {
			return err
		}
		p.cluster = made
	}
	return p.source.Follow(ctx, func([]documents.Object) []schema.GroupVersionKind { return followed }, p.apply)
}

// followed are the kinds of a cluster that are followed. What context entries read is asked for when it is needed.
var followed = []schema.GroupVersionKind{
	{Group: kyvernoGroup, Version: "v1", Kind: "ClusterPolicy"},
	{Group: kyvernoGroup, Version: "v1", Kind: "Policy"},
	{Group: kyvernoGroup, Version: "v2", Kind: "PolicyException"},
	{Group: kyvernoGroup, Version: "v2", Kind: "GlobalContextEntry"},
	{Group: rbacGroup, Version: "v1", Kind: "RoleBinding"},
	{Group: rbacGroup, Version: "v1", Kind: "ClusterRoleBinding"},
}

// apply serves the documents. One that cannot be used costs itself only: the last good version of a policy stays, and without
// one, calls of its rules fail.
func (p *program) apply(objects []documents.Object) error {
	made, said := p.stateOf(objects)
	if err := p.server.Replace(made.register); err != nil {
		return err
	}
	now := make(map[string]bool, len(said))
	for _, each := range said {
		if !p.said[each] && !now[each] {
			p.log.Printf("kyverno: %s", each)
		}
		now[each] = true
	}
	p.said = now
	return nil
}

// stateOf makes the state of documents, with lines for the log.
func (p *program) stateOf(objects []documents.Object) (*state, []string) {
	made := &state{turns: p.turns, named: make(map[string]string)}
	var said []string
	complain := func(object documents.Object, err error) {
		said = append(said, fmt.Sprintf("%s: %s %s: %v", object.Place, object.GetKind(), object.GetName(), err))
	}
	entries := make(map[string]*kyvernov2.GlobalContextEntry)
	good := make(map[identity]kyvernov1.PolicyInterface)
	names := make(map[string]bool)
	for _, object := range slices.SortedStableFunc(slices.Values(objects), byKey) {
		var err error
		switch kind := object.GroupVersionKind(); kind.Group + "/" + kind.Kind {
		case kyvernoGroup + "/ClusterPolicy", kyvernoGroup + "/Policy":
			object = inPlace(object)
			var policy kyvernov1.PolicyInterface
			if policy, err = decodePolicy(object); err != nil {
				if policy = p.good[identityOf(object)]; policy != nil {
					err = fmt.Errorf("%w; its last good version stays", err)
				}
			}
			if policy == nil {
				made.fail(object, err, names)
				break
			}
			good[identityOf(object)] = policy
			said = append(said, made.add(policy, object, names)...)
		case kyvernoGroup + "/PolicyException":
			exception := &kyvernov2.PolicyException{}
			if err = decode(object.Unstructured, exception); err == nil {
				err = cmp.Or(error(exception.Validate().ToAggregate()), p.allowed.of(exception.GetNamespace(), p.source.Cluster))
			}
			if err == nil {
				made.exceptions = append(made.exceptions, exception)
			}
		case kyvernoGroup + "/GlobalContextEntry":
			entry := &kyvernov2.GlobalContextEntry{}
			if err = decode(object.Unstructured, entry); err == nil {
				entries[entry.GetName()] = entry
			}
		case kyvernoGroup + "/CleanupPolicy", kyvernoGroup + "/ClusterCleanupPolicy":
			err = errors.New(cleanupSentence)
		case policiesGroup + "/ImageValidatingPolicy", policiesGroup + "/NamespacedImageValidatingPolicy":
			err = errors.New(imagePolicy)
		case policiesGroup + "/GeneratingPolicy", policiesGroup + "/NamespacedGeneratingPolicy":
			err = errors.New(generatePolicy)
		case policiesGroup + "/DeletingPolicy", policiesGroup + "/NamespacedDeletingPolicy":
			err = errors.New(cleanupSentence)
		case policiesGroup + "/ValidatingPolicy", policiesGroup + "/NamespacedValidatingPolicy",
			policiesGroup + "/MutatingPolicy", policiesGroup + "/NamespacedMutatingPolicy":
			err = errors.New("is not served, because the gateway evaluates it itself: give it to the gateway")
		case cliGroup + "/Values":
			err = made.mocks.addValues(object.Unstructured)
		case cliGroup + "/UserInfo":
			err = made.mocks.addUser(object.Unstructured)
		case rbacGroup + "/RoleBinding":
			binding := &rbacv1.RoleBinding{}
			if err = decode(object.Unstructured, binding); err == nil {
				made.roleBindings = append(made.roleBindings, binding)
			}
		case rbacGroup + "/ClusterRoleBinding":
			binding := &rbacv1.ClusterRoleBinding{}
			if err = decode(object.Unstructured, binding); err == nil {
				made.clusterRoleBindings = append(made.clusterRoleBindings, binding)
			}
		}
		if err != nil {
			complain(object, err)
		}
	}
	p.good = good
	made.mergePatches = mergePatchesIn(made)
	if p.cluster != nil {
		made.data = p.cluster
	} else {
		made.data = newFolder(objects)
	}
	made.contexts = &contextLoaders{access: p.access, data: made.data, mocks: &made.mocks, entries: newGlobalEntries(entries, made.data)}
	// Namespaces are those of the request, for exceptions and CEL as well.
	isCluster := true
	made.engine = engine.NewEngine(
		configuration, jmes, made.data, p.access.registries(), imageverifycache.DisabledImageVerifyCache(),
		made.contexts.of, exceptions.New(made.exceptions), &isCluster,
	)
	return made, said
}

// byKey sorts documents by namespace and name, those without a namespace first: the order of policies.
func byKey(a, b documents.Object) int {
	return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()),
		strings.Compare(a.GetKind(), b.GetKind()))
}

// add adds what is served of a policy, and returns what is not.
func (s *state) add(policy kyvernov1.PolicyInterface, object documents.Object, names map[string]bool) (said []string) {
	if !policy.GetSpec().AdmissionProcessingEnabled() {
		return nil
	}
	text, _ := json.Marshal(policy)
	version := sha256.Sum256(text)
	var rules []kyvernov1.Rule
	for _, rule := range policy.GetSpec().Rules {
		if unserved(&rule) == nil {
			rules = append(rules, rule)
		}
	}
	s.name(policy)
	if len(rules) > 0 {
		s.policies = append(s.policies, withRules(policy, rules))
	}
	for _, one := range split(policy) {
		one.version = hex.EncodeToString(version[:8])
		if one.err != nil {
			one.err = fmt.Errorf("%s: %w", one.name, one.err)
			said = append(said, fmt.Sprintf("%s: left out: %v", object.Place, one.err))
		}
		if one.misnamed != nil {
			said = append(said, fmt.Sprintf("%s: %q has no policy of its own, only those of all rules have it: %v",
				object.Place, one.name, one.misnamed))
			continue
		}
		said = append(said, s.serve(one, object.Place, names)...)
	}
	return said
}

// fail adds the rules of a policy that cannot be decoded.
func (s *state) fail(object documents.Object, err error, names map[string]bool) {
	for _, name := range namedRules(object) {
		s.serve(served{name: name, err: fmt.Errorf("%s: the policy cannot be used: %w", name, err)}, object.Place, names)
	}
}

func (s *state) serve(one served, place string, names map[string]bool) []string {
	if names[one.name] {
		return []string{fmt.Sprintf("%s: %s stands there twice; the first counts", place, one.name)}
	}
	names[one.name] = true
	s.served = append(s.served, one)
	return nil
}

// parametersSchema is the JSON Schema of the parameters of a rule.
const parametersSchema = `{"type": "object", "additionalProperties": false, "properties": {` +
	`"action": {"type": "string", "enum": ["deny", "warn", "audit"]}}}`

// prepareAction makes the action of the parameters; empty: the policy's own.
func prepareAction(text json.RawMessage) (any, error) {
	var given struct {
		Action *string `json:"action"`
	}
	if err := json.Unmarshal(text, &given); err != nil {
		return nil, err
	}
	if given.Action == nil {
		return "", nil
	}
	if !slices.Contains([]string{deny, warn, audit}, *given.Action) {
		return nil, fmt.Errorf(`action: found %q, expected "deny", "warn" or "audit"`, *given.Action)
	}
	return *given.Action, nil
}

// register registers the policies of the state.
func (s *state) register(set *worker.Set) {
	for index := range s.served {
		one := &s.served[index]
		description := line(one.description)
		if one.err != nil {
			description = line("Not served: " + one.err.Error())
		}
		options := []worker.PolicyOption{
			worker.WithVersion(one.version), worker.WithParameters(parametersSchema, prepareAction),
		}
		if one.mutating {
			set.MutatingPolicy(one.name, description, s.mutate(one), options...)
		} else {
			set.Policy(one.name, description, s.validate(one), options...)
		}
	}
	set.Policy(validationName, "All validate rules at once, as Kyverno's webhooks evaluate them.", s.validateAll)
	set.MutatingPolicy(mutationName, "All mutate rules at once, as Kyverno's webhooks evaluate them.", s.mutateAll)
}
