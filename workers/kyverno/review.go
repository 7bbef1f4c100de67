package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"admission-gateway.io/worker"
	kyvernov1 "github.com/kyverno/kyverno/api/kyverno/v1"
	"github.com/kyverno/kyverno/ext/wildcard"
	engineapi "github.com/kyverno/kyverno/pkg/engine/api"
	engineutils "github.com/kyverno/kyverno/pkg/utils/engine"
	kubeutils "github.com/kyverno/kyverno/pkg/utils/kube"
	webhookutils "github.com/kyverno/kyverno/pkg/webhooks/utils"
	"gomodules.xyz/jsonpatch/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// validate returns the function of a policy of validate rules.
func (s *state) validate(one *served) worker.PolicyFunc {
	return s.evaluation(one, func(ctx context.Context, review *worker.Review, asked *request) error {
		made, err := asked.shared(ctx, s, one.policy)
		if err != nil {
			return err
		}
		response := s.engine.Validate(asked.withNamespace(ctx), made.with(one.policy))
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if s.mocks.isUsed {
			record(review, response)
		}
		return answerRules(review, response, review.Parameters().(string))
	})
}

// answerRules answers for validate rules of one policy. An error of a rule that would deny is a failure of the webhook.
func answerRules(review *worker.Review, response engineapi.EngineResponse, action string) error {
	found := violations(response)
	ownAction := action == ""
	if ownAction {
		action = audit
		if response.HasEnforcedFailure() || response.IsError() && response.GetValidationFailureAction().Enforce() {
			action = deny
		}
	}
	switch {
	case action == deny && response.IsFailed():
		return blocked([]engineapi.EngineResponse{response})
	case action == deny && response.IsError():
		return fmt.Errorf("%s", cut(strings.Join(found, "; "), maxDenialBytes))
	case action == warn:
		tell(review, found)
		return nil
	}
	if ownAction && emitsWarnings(response) {
		tell(review, webhookutils.GetWarningMessages([]engineapi.EngineResponse{response}))
	}
	note(review, found)
	return nil
}

func emitsWarnings(response engineapi.EngineResponse) bool {
	emits := response.Policy().AsKyvernoPolicy().GetSpec().EmitWarning
	return emits != nil && *emits
}

// warned marks the responses of mutate rules of policies that emit warnings: rules that pass warn as well.
func warned(responses ...engineapi.EngineResponse) []engineapi.EngineResponse {
	for index, each := range responses {
		if emitsWarnings(each) {
			responses[index] = each.WithWarning()
		}
	}
	return responses
}

// evaluation returns the function of a policy: evaluate is called for one call at its turn.
func (s *state) evaluation(one *served, evaluate func(context.Context, *worker.Review, *request) error) worker.PolicyFunc {
	own := s.turns.share()
	return func(ctx context.Context, review *worker.Review) error {
		if one != nil && one.err != nil {
			return one.err
		}
		asked := s.derive(review)
		if asked.err != nil {
			return asked.err
		}
		if webhookutils.ExcludeKyvernoResources(asked.admission.Kind.Kind) {
			return nil
		}
		for _, each := range []turns{own, s.turns} {
			leave, err := each.enter(ctx)
			if err != nil {
				return err
			}
			defer leave()
		}
		return evaluate(ctx, review, asked)
	}
}

// failurePolicies are those of Kyverno's webhooks, in the order in which it registers them (kyverno:pkg/controllers/webhook): each has the
// policies with this failurePolicy.
var failurePolicies = []kyvernov1.FailurePolicyType{kyvernov1.Ignore, kyvernov1.Fail}

// validateAll evaluates all validate rules, as Kyverno's webhooks do (kyverno:pkg/webhooks/resource/validation/validation.go):
// those that enforce in this Namespace may deny, and those that do not may warn.
func (s *state) validateAll(ctx context.Context, review *worker.Review) error {
	return s.evaluation(nil, func(ctx context.Context, review *worker.Review, asked *request) error {
		made, err := asked.context(ctx, s, s.policies...)
		if err != nil {
			return refused(fmt.Sprintf("failed to create policy context: %v", err))
		}
		ctx = asked.withNamespace(ctx)
		enforced := make(map[kyvernov1.FailurePolicyType][]engineapi.EngineResponse)
		warns := make(map[kyvernov1.FailurePolicyType][]engineapi.EngineResponse)
		var found []string
		for _, policy := range s.policies {
			if !isOf(policy, asked) || !policy.GetSpec().HasValidate() {
				continue
			}
			of := policy.GetSpec().GetFailurePolicy(ctx)
			denies, reports := divide(policy, asked)
			if denies != nil {
				response := s.engine.Validate(ctx, made.with(denies))
				enforced[of] = append(enforced[of], response)
				found = append(found, violations(response)...)
			}
			if reports != nil {
				response := s.engine.Validate(ctx, made.with(reports))
				if emitsWarnings(response) {
					warns[of] = append(warns[of], response)
				}
				found = append(found, violations(response)...)
			}
			if err := context.Cause(ctx); err != nil {
				return err
			}
		}
		var denied []engineapi.EngineResponse
		for _, of := range failurePolicies {
			if slices.ContainsFunc(enforced[of], func(each engineapi.EngineResponse) bool { return engineutils.BlockRequest(each, of) }) {
				denied = append(denied, enforced[of]...)
			} else {
				tell(review, webhookutils.GetWarningMessages(slices.Concat(enforced[of], warns[of])))
			}
		}
		if denied != nil {
			return blocked(denied)
		}
		note(review, found)
		return nil
	})(ctx, review)
}

// isOf reports whether Kyverno's webhooks evaluate a policy for the request: one of its Namespace. The engine takes
// ephemeral containers for each rule about Pods, and the webhooks only for those without a subresource (kyverno:pkg/policycache/store.go).
func isOf(policy kyvernov1.PolicyInterface, asked *request) bool {
	if policy.IsNamespaced() && policy.GetNamespace() != asked.admission.Namespace {
		return false
	}
	if asked.admission.SubResource != "ephemeralcontainers" {
		return true
	}
	for _, rule := range policy.GetSpec().Rules {
		for _, text := range rule.MatchResources.GetKinds() {
			_, _, kind, subresource := kubeutils.ParseKindSelector(text)
			isPod := subresource == "" && wildcard.Match(kind, "Pod")
			if isPod || wildcard.Match(subresource, asked.admission.SubResource) {
				return true
			}
		}
	}
	return false
}

// divide returns the policy with its rules that enforce in the Namespace of the request, and with those that do not
// (kyverno:pkg/policycache/cache.go); nil for none.
func divide(policy kyvernov1.PolicyInterface, asked *request) (denies, reports kyvernov1.PolicyInterface) {
	var enforcing, auditing []kyvernov1.Rule
	for _, rule := range policy.GetSpec().Rules {
		switch {
		case !rule.HasValidate():
		case enforces(policy, &rule, asked):
			enforcing = append(enforcing, rule)
		default:
			auditing = append(auditing, rule)
		}
	}
	if len(auditing) == 0 && len(enforcing) > 0 {
		return policy, nil
	}
	if len(enforcing) == 0 && len(auditing) > 0 {
		return nil, policy
	}
	if len(enforcing) > 0 {
		denies, reports = withRules(policy, enforcing), withRules(policy, auditing)
	}
	return denies, reports
}

// enforces reports whether the rule denies in the Namespace of the request.
func enforces(policy kyvernov1.PolicyInterface, rule *kyvernov1.Rule, asked *request) bool {
	overrides := rule.Validation.FailureActionOverrides
	if len(overrides) == 0 {
		overrides = policy.GetSpec().ValidationFailureActionOverrides
	}
	for _, override := range overrides {
		if len(override.Namespaces) == 0 && override.NamespaceSelector == nil {
			return override.Action.Enforce()
		}
		if asked.admission.Namespace == "" {
			continue
		}
		if wildcard.CheckPatterns(override.Namespaces, asked.admission.Namespace) {
			return override.Action.Enforce()
		}
		if override.NamespaceSelector != nil && asked.namespace != nil {
			selector, err := metav1.LabelSelectorAsSelector(override.NamespaceSelector)
			if err == nil && selector.Matches(labels.Set(asked.namespace.Labels)) {
				return override.Action.Enforce()
			}
		}
	}
	if rule.Validation.FailureAction != nil {
		return rule.Validation.FailureAction.Enforce()
	}
	return policy.GetSpec().ValidationFailureAction.Enforce()
}

// mutate returns the function of a policy of mutate rules.
func (s *state) mutate(one *served) worker.PolicyFunc {
	return s.evaluation(one, func(ctx context.Context, review *worker.Review, asked *request) error {
		made, err := asked.context(ctx, s, one.policy)
		if err != nil {
			return err
		}
		response := s.mutated(asked.withNamespace(ctx), made.with(one.policy))
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if s.mocks.isUsed {
			record(review, response)
		}
		action := review.Parameters().(string)
		switch found := violations(response); {
		case response.IsSuccessful():
			if action == "" {
				tell(review, webhookutils.GetWarningMessages(warned(response)))
			}
			return patch(review, response.GetPatches())
		case action == warn:
			tell(review, found)
		case action == audit:
			note(review, found)
		default:
			return fmt.Errorf("%s", cut(strings.Join(found, "; "), maxDenialBytes))
		}
		return nil
	})
}

// mutated has the engine mutate the object, or the part of it that the patches of the policy need.
func (s *state) mutated(ctx context.Context, made *policyContext) engineapi.EngineResponse {
	object := made.newResource
	patches := s.mergePatches[made.policy]
	if patches == nil || object.Object == nil {
		return s.engine.Mutate(ctx, made)
	}
	part, lacks := patches.partOf(object.Object)
	of := *made
	of.newResource.Object = part
	response := s.engine.Mutate(ctx, &of)
	response.Resource = object
	if patched := response.PatchedResource.Object; patched != nil {
		response.PatchedResource.Object = lacks.complete(patched).(map[string]any)
	}
	return response
}

// mutateAll applies all mutate rules, as Kyverno's webhooks do (kyverno:pkg/webhooks/resource/mutation/mutation.go): each policy
// sees the object as those before have left it.
func (s *state) mutateAll(ctx context.Context, review *worker.Review) error {
	return s.evaluation(nil, func(ctx context.Context, review *worker.Review, asked *request) error {
		made, err := asked.context(ctx, s, s.policies...)
		if err != nil {
			return refused(err.Error())
		}
		ctx = asked.withNamespace(ctx)
		var patches []jsonpatch.JsonPatchOperation
		var responses []engineapi.EngineResponse
		for _, of := range failurePolicies {
			for _, policy := range s.policies {
				if !isOf(policy, asked) || !policy.GetSpec().HasMutateStandard() || policy.GetSpec().GetFailurePolicy(ctx) != of {
					continue
				}
				current := made.with(policy)
				response := s.mutated(ctx, current)
				if err := context.Cause(ctx); err != nil {
					return err
				}
				responses = append(responses, response)
				switch {
				case response.IsSuccessful():
					patches = append(patches, response.GetPatches()...)
				case engineutils.BlockRequest(response, of):
					return refused(fmt.Sprintf("mutation policy %s error: failed to apply policy %s rules %v",
						policy.GetName(), policy.GetName(), response.GetFailedRulesWithErrors()))
				default:
					// The object after an error is empty, so that at Kyverno the policies that come later, by chance, have no effect.
					continue
				}
				made.newResource = response.PatchedResource
				if err := made.JSONContext().AddResource(response.PatchedResource.Object); err != nil {
					return err
				}
			}
		}
		tell(review, webhookutils.GetWarningMessages(warned(responses...)))
		return patch(review, patches)
	})(ctx, review)
}

// patch sets the operations that change the object. Without any, there may be no object.
func patch(review *worker.Review, operations []jsonpatch.JsonPatchOperation) error {
	if len(operations) == 0 {
		return nil
	}
	made := make([]worker.Operation, len(operations))
	for index, each := range operations {
		made[index] = worker.Operation{Op: each.Operation, Path: each.Path, Value: each.Value}
	}
	review.SetPatch(made...)
	return nil
}
