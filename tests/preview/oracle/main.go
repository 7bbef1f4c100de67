// Command oracle answers, for each line of standard input, whether Argo CD sees a difference.
//
// A line is {"desired": OBJECT, "live": OBJECT, "ignoreDifferences": [...]}. The answer has "modified", the
// two sides "live" and "predicted" of the comparison, or "error".
package main

import (
	"bufio"
	"encoding/json"
	"os"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/argo/diff"
	"github.com/argoproj/argo-cd/v3/util/argo/normalizers"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

type question struct {
	Desired map[string]any                       `json:"desired"`
	Live    map[string]any                       `json:"live"`
	Ignores []v1alpha1.ResourceIgnoreDifferences `json:"ignoreDifferences"`
}

type answer struct {
	Modified  bool            `json:"modified"`
	Live      json.RawMessage `json:"live,omitempty"`
	Predicted json.RawMessage `json:"predicted,omitempty"`
	Error     string          `json:"error,omitempty"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		if err := out.Encode(compare(lines.Bytes())); err != nil {
			panic(err)
		}
	}
	if err := lines.Err(); err != nil {
		panic(err)
	}
}

func compare(line []byte) answer {
	var asked question
	if err := json.Unmarshal(line, &asked); err != nil {
		return answer{Error: err.Error()}
	}
	ignores := append([]v1alpha1.ResourceIgnoreDifferences{}, asked.Ignores...)
	config, err := diff.NewDiffConfigBuilder().
		WithDiffSettings(ignores, map[string]v1alpha1.ResourceOverride{}, false, normalizers.IgnoreNormalizerOpts{}).
		WithTracking("", "annotation").
		WithNoCache().
		Build()
	if err != nil {
		return answer{Error: err.Error()}
	}
	found, err := diff.StateDiff(
		&unstructured.Unstructured{Object: asked.Live}, &unstructured.Unstructured{Object: asked.Desired}, config)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Modified: found.Modified, Live: found.NormalizedLive, Predicted: found.PredictedLive}
}
