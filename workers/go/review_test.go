package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"admission-gateway.io/worker/internal/tree"
)

const podRequest = `{"uid":"u1","operation":"CREATE","kind":{"group":"","version":"v1","kind":"Pod"},
	"resource":{"group":"","version":"v1","resource":"pods"},"namespace":"shop","name":"web","dryRun":true,
	"userInfo":{"username":"jo","groups":["dev"]},
	"object":{"metadata":{"name":"web","future":{"x":9007199254740993}},
		"spec":{"containers":[{"name":"app","image":"app:1","later":[1]}]}}}`

func reviewOf(t *testing.T, text string) *Review {
	t.Helper()
	review, err := ParseReview([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return review
}

// patchOf returns the text of the patch that would be sent.
func patchOf(t *testing.T, review *Review) string {
	t.Helper()
	operations, err := review.Changes()
	if err != nil {
		t.Fatal(err)
	}
	return string(tree.AppendPatch(nil, operations))
}

func TestReviewSaysWhatTheRequestSays(t *testing.T) {
	review := reviewOf(t, `{"kind":"AdmissionReview","request":`+podRequest+`}`)
	if review.Operation() != admissionv1.Create || review.UID() != "u1" || review.Name() != "web" ||
		review.Namespace() != "shop" || review.SubResource() != "" || !review.DryRun() ||
		review.Kind() != (metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}) ||
		review.Resource() != (metav1.GroupVersionResource{Version: "v1", Resource: "pods"}) {
		t.Errorf("the request reads as %v", review.Request())
	}
	if user := review.UserInfo(); user.Username != "jo" || len(user.Groups) != 1 {
		t.Errorf("the user is %v", user)
	}
	if review.OldObject() != nil || review.NamespaceObject() != nil || review.Object()["spec"] == nil {
		t.Error("objects are not what they are")
	}
	if got := patchOf(t, review); got != "[]" {
		t.Errorf("looking has changed %s", got)
	}
}

func TestParseReviewRefusesWhatIsNoObject(t *testing.T) {
	for _, text := range []string{"", "{", "[]", "null", "1"} {
		if _, err := ParseReview([]byte(text)); err == nil {
			t.Errorf("%q is taken for a review", text)
		}
	}
}

func TestChangesOfTheObjectMakeThePatch(t *testing.T) {
	review := reviewOf(t, podRequest)
	review.Object()["spec"].(map[string]any)["containers"] = []map[string]any{{"name": "app", "image": "app:2", "later": []int{1}}}
	want := `[{"op":"replace","path":"/spec/containers/0/image","value":"app:2"}]`
	if got := patchOf(t, review); got != want {
		t.Errorf("got %s, expected %s", got, want)
	}
}

func TestUpdateKeepsWhatTheTypeDoesNotKnow(t *testing.T) {
	review := reviewOf(t, podRequest)
	var pod corev1.Pod
	if found, err := review.Decode(&pod); !found || err != nil {
		t.Fatal(found, err)
	}
	pod.Spec.Containers[0].ImagePullPolicy = corev1.PullAlways
	pod.Labels = map[string]string{"team": "shop"}
	if err := review.Update(&pod); err != nil {
		t.Fatal(err)
	}
	want := `[{"op":"add","path":"/metadata/labels","value":{"team":"shop"}},` +
		`{"op":"add","path":"/spec/containers/0/imagePullPolicy","value":"Always"}]`
	if got := patchOf(t, review); got != want {
		t.Errorf("got %s, expected %s", got, want)
	}
	if got := fmt.Sprint(review.Object()["metadata"].(map[string]any)["future"]); got != "map[x:9007199254740993]" {
		t.Errorf("a field that the type does not know became %s", got)
	}
	if err := review.Update(pod); err != nil {
		t.Errorf("a value is as good as a pointer: %v", err)
	}
}

func TestDecodeSeesWhatWasChanged(t *testing.T) {
	review := reviewOf(t, podRequest)
	review.Object()["metadata"].(map[string]any)["name"] = "other"
	var pod metav1.PartialObjectMetadata
	if found, err := review.Decode(&pod); !found || err != nil || pod.Name != "other" {
		t.Error(found, err, pod.Name)
	}
	var wrong corev1.Pod
	review.Object()["spec"] = "text"
	if found, err := review.Decode(&wrong); found || err == nil {
		t.Error("a text is taken for a PodSpec")
	}
}

func TestDecodeOfWhatIsNotThere(t *testing.T) {
	old := `"oldObject":{"metadata":{"name":"web"}}`
	for _, object := range []string{"", `"object":null,`} {
		review := reviewOf(t, `{"operation":"DELETE",`+object+old+`}`)
		var pod corev1.Pod
		if found, err := review.Decode(&pod); found || err != nil {
			t.Error(found, err)
		}
		if review.Update(&pod) == nil {
			t.Error("there was an object to update")
		}
		if found, err := review.DecodeOld(&pod); !found || err != nil || pod.Name != "web" {
			t.Error(found, err, pod.Name)
		}
		if got := patchOf(t, review); got != "[]" {
			t.Errorf("got %s", got)
		}
	}
	review := reviewOf(t, `{"oldObject":null}`)
	if found, err := review.DecodeOld(&corev1.Pod{}); found || err != nil {
		t.Error(found, err)
	}
}

func TestAPatchCountsInsteadOfChanges(t *testing.T) {
	review := reviewOf(t, podRequest)
	review.Object()["spec"] = nil
	review.SetPatch(
		Operation{Op: "add", Path: "/metadata/labels", Value: map[string]string{"b": "<2>", "a": "1"}},
		Operation{Op: "replace", Path: "/spec", Value: nil},
		Operation{Op: "remove", Path: "/a~1b"},
		Operation{Op: "move", From: "/x", Path: "/y"},
	)
	want := `[{"op":"add","path":"/metadata/labels","value":{"a":"1","b":"<2>"}},{"op":"replace","path":"/spec","value":null},` +
		`{"op":"remove","path":"/a~1b"},{"from":"/x","op":"move","path":"/y"}]`
	if got := patchOf(t, review); got != want {
		t.Errorf("got %s, expected %s", got, want)
	}
	review.SetPatch()
	if got := patchOf(t, review); got != "[]" {
		t.Errorf("no operations are %s", got)
	}
}

func TestChangesThatCannotBe(t *testing.T) {
	for name, change := range map[string]func(*Review){
		"nothing to set": func(review *Review) { review.SetObject(map[string]any{"a": 1}) },
		"nothing to patch": func(review *Review) {
			review.SetPatch(Operation{Op: "add", Path: "/a", Value: 1})
		},
	} {
		review := reviewOf(t, `{"operation":"DELETE","object":null}`)
		change(review)
		if operations, err := review.Changes(); err == nil {
			t.Errorf("%s: got %v", name, operations)
		}
	}
	for name, change := range map[string]func(*Review){
		"no object any more": func(review *Review) { review.SetObject(nil) },
		"no JSON":            func(review *Review) { review.Object()["f"] = func() {} },
		"no JSON in a patch": func(review *Review) { review.SetPatch(Operation{Op: "add", Path: "/f", Value: func() {}}) },
	} {
		review := reviewOf(t, podRequest)
		change(review)
		if operations, err := review.Changes(); err == nil {
			t.Errorf("%s: got %v", name, operations)
		}
	}
}

func TestWhatIsMalformedShowsWhenThePolicyLooks(t *testing.T) {
	for text, want := range map[string]string{
		`{"object":`: "admission_request is not JSON: ",
		`[1]`:        "admission_request is to be a JSON object, found array",
		`null`:       "admission_request is to be a JSON object, found null",
		"\xff":       "admission_request is not JSON: ",
	} {
		review := &Review{payload: &payload{requestJSON: []byte(text), namespaceJSON: []byte("7")}, mutating: true}
		if review.Err() != nil {
			t.Errorf("%q was looked at by nobody", text)
		}
		if review.Object() != nil || review.Operation() != "" || review.Err() == nil {
			t.Errorf("%q reads as something", text)
		}
		reading := &Review{payload: &payload{requestJSON: []byte(text)}}
		if reading.Read("object").Exists() || reading.Operation() != "" || fmt.Sprint(reading.Err()) != fmt.Sprint(review.Err()) {
			t.Errorf("%q is read with %v, expected %v", text, reading.Err(), review.Err())
		}
		if err := review.Err(); err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q is %q, expected %q", text, err, want)
		}
	}
	review := &Review{payload: &payload{requestJSON: []byte("{}"), namespaceJSON: []byte("7")}}
	if review.NamespaceObject() != nil || fmt.Sprint(review.Err()) != "namespace_object is to be a JSON object, found number" {
		t.Errorf("the Namespace is %v", review.Err())
	}
	odd := &Review{payload: &payload{requestJSON: []byte(`{"userInfo":{"username":7}}`)}}
	if odd.UserInfo(); odd.Err() == nil {
		t.Error("a number is taken for a name")
	}
}

func TestPatchesCanNestAnObjectTooDeeply(t *testing.T) {
	nested := func(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }
	first := &patches{last: []byte(`[{"op":"add","path":"/a","value":` + nested(900) + `}]`)}
	last := &patches{before: first, last: []byte(
		`[{"op":"add","path":"/a` + strings.Repeat("/0", 900) + `","value":` + nested(9900) + `}]`,
	)}
	for _, each := range []*patches{first, last} {
		review := &Review{payload: &payload{requestJSON: []byte(`{"object":{"b":"x"}}`), patches: each}}
		want := "the object is nested too deeply"
		if text := review.Read("object", "b").Text(); each == first && text == "x" {
			want = "<nil>"
		}
		if fmt.Sprint(review.Err()) != want {
			t.Errorf("read with %v, expected %s", review.Err(), want)
		}
	}
}

func TestDenyFindsItsPlaces(t *testing.T) {
	err := Deny("no", WithCauses(Cause("c", "f2")), WithField("f1"), WithCode(422), WithReason(metav1.StatusReasonInvalid))
	var denial *Denial
	if !errors.As(fmt.Errorf("wrapped: %w", err), &denial) {
		t.Fatal("the denial is lost")
	}
	if denial.Code != 422 || denial.Reason != "Invalid" || denial.Error() != "no" || len(denial.Causes) != 2 ||
		denial.Causes[0] != Cause("no", "f1") || denial.Causes[1] != Cause("c", "f2") {
		t.Errorf("the denial is %+v", denial)
	}
}

// A policy that is not mutating may scribble on its copy.
func TestOnlyMutatingPoliciesChangeAnything(t *testing.T) {
	for _, mutating := range []bool{true, false} {
		scribble := policyOf(func(_ context.Context, review *Review) error {
			review.Object()["x"] = 1
			return nil
		})
		scribble.mutating = mutating
		result := scribble.run(context.Background(), &Review{payload: &payload{requestJSON: []byte(podRequest)}, mutating: mutating})
		if got := len(result.response.Patch) > 0; got != mutating {
			t.Errorf("mutating %v, patch %s", mutating, result.response.Patch)
		}
	}
}
