package tree

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
)

// The vectors that the libraries of all languages share.
func TestDiffVectors(t *testing.T) {
	text, err := os.ReadFile("../../../conformance/admission_gateway_conformance/diff.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Name                 string
		Before, After, Patch json.RawMessage
		Text                 string
	}
	if err := json.Unmarshal(text, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) == 0 {
		t.Fatal("there are no vectors")
	}
	for _, vector := range vectors {
		t.Run(vector.Name, func(t *testing.T) {
			before, after := parsed(t, string(vector.Before)), parsed(t, string(vector.After))
			written := string(AppendPatch(nil, Diff(before, after)))
			if !Same(parsed(t, written), parsed(t, string(vector.Patch))) {
				t.Errorf("the patch is %s, expected %s", written, vector.Patch)
			}
			if written != vector.Text {
				t.Errorf("the text is %s, expected %s", written, vector.Text)
			}
		})
	}
}

func TestDiffReplacesMembersWhereNamingEachChangeIsTooMuch(t *testing.T) {
	before, after := map[string]any{"same": true}, map[string]any{"same": true}
	old, made := make([]any, maxOperations+1), make([]any, maxOperations+1)
	for index := range old {
		old[index], made[index] = json.Number("1"), json.Number("2")
	}
	before["list"], after["list"] = old, made
	operations := Diff(before, after)
	if len(operations) != 1 || operations[0].Path != "/list" || operations[0].Op != "replace" {
		t.Errorf("%d operations, the first of them %.80s", len(operations), fmt.Sprint(operations[0]))
	}
	before["list"], after["list"] = old[1:], made[1:]
	if operations := Diff(before, after); len(operations) != maxOperations {
		t.Errorf("%d operations, expected %d", len(operations), maxOperations)
	}
}

func TestDiffBoundsWhatListsMove(t *testing.T) {
	tail := make([]any, 20_000)
	for index := range tail {
		tail[index] = json.Number("0")
	}
	head := make([]any, maxShifted/len(tail)+1)
	for index := range head {
		head[index] = json.Number("1")
	}
	operations := Diff(map[string]any{"list": tail}, map[string]any{"list": append(head, tail...)})
	if len(operations) != 1 || operations[0].Path != "/list" {
		t.Errorf("%d operations", len(operations))
	}
}

func parsed(t *testing.T, text string) any {
	t.Helper()
	value, err := Parse([]byte(text), nil)
	if err != nil {
		t.Fatalf("%v in %.200s", err, text)
	}
	return value
}
