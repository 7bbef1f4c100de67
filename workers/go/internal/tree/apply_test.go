package tree

import (
	"encoding/json"
	"strings"
	"testing"
)

func applied(t *testing.T, document any, patch string) (string, error) {
	t.Helper()
	before := string(Append(nil, document))
	result, err := Apply(document, parsed(t, patch))
	if after := string(Append(nil, document)); after != before {
		t.Errorf("%s has changed the document to %s", patch, after)
	}
	if err != nil {
		return "", err
	}
	return string(Append(nil, result)), nil
}

func TestApplyReadsPatchesLikeTheGateway(t *testing.T) {
	const document = `{"a":{"b":[1,2,3]},"e":{}}`
	for patch, want := range map[string]string{
		`[]`:   document,
		`null`: document,
		`[{"op":"add","path":"/a/b/-","value":4}]`:                                              `{"a":{"b":[1,2,3,4]},"e":{}}`,
		`[{"op":"add","path":"/a/b/1","value":4},{"op":"remove","path":"/a/b/0"}]`:              `{"a":{"b":[4,2,3]},"e":{}}`,
		`[{"op":"add","path":"/a/b/-1","value":4}]`:                                             `{"a":{"b":[1,2,3,4]},"e":{}}`,
		`[{"op":"replace","path":"/a/b/-1","value":4}]`:                                         `{"a":{"b":[1,2,4]},"e":{}}`,
		`[{"op":"replace","path":"x/new","value":{"y":1}},{"op":"add","path":"/new/z"}]`:        `{"a":{"b":[1,2,3]},"e":{},"new":{"y":1,"z":null}}`,
		`[{"op":"replace","path":"","value":[1]}]`:                                              `[1]`,
		`[{"op":"move","from":"/a/b","path":"/e/c"}]`:                                           `{"a":{},"e":{"c":[1,2,3]}}`,
		`[{"op":"copy","from":"/a","path":"/e/c"},{"op":"add","path":"/e/c/b/0","value":0}]`:    `{"a":{"b":[1,2,3]},"e":{"c":{"b":[0,1,2,3]}}}`,
		`[{"op":"copy","from":"/none","path":"/e/c"},{"op":"test","path":"/no"}]`:               `{"a":{"b":[1,2,3]},"e":{"c":null}}`,
		`[{"op":"test","path":"/a/b/+1","value":2},{"op":"add","path":"/e/x~1~01","value":""}]`: `{"a":{"b":[1,2,3]},"e":{"x/~1":""}}`,
	} {
		if got, err := applied(t, parsed(t, document), patch); err != nil || got != want {
			t.Errorf("%s makes %s, %v; expected %s", patch, got, err, want)
		}
	}
	for _, patch := range []string{
		`{}`, `[1]`, `[{"op":"add","path":"","value":{}}]`, `[{"op":"add","path":"a","value":1}]`, `[{"op":"remove","path":"/x"}]`,
		`[{"op":"remove","path":"/a/b/3"}]`, `[{"op":"add","path":"/a/b/5","value":1}]`, `[{"op":"add","path":"/a/b/x","value":1}]`,
		`[{"op":"add","path":"/x/y","value":1}]`, `[{"op":"add","path":"/a/b/0/y","value":1}]`, `[{"op":"replace","path":"","value":1}]`,
		`[{"op":"test","path":"/a/b/0","value":2}]`, `[{"op":"move","path":"/x"}]`, `[{"op":"move","from":"/a","path":"/a/x"}]`,
		`[{"op":"set","path":"/x"}]`, `[{"op":"add","path":1}]`, `[{"op":"add","path":"` + strings.Repeat("/a", maxLevels+1) + `"}]`,
		`[` + strings.Repeat(`{"op":"test","path":"/x"},`, maxOperations) + `{"op":"test","path":"/x"}]`,
	} {
		if got, err := applied(t, parsed(t, document), patch); err == nil {
			t.Errorf("%.200s makes %s", patch, got)
		}
	}
}

func TestApplyBoundsItsWork(t *testing.T) {
	large := map[string]any{"x": strings.Repeat("x", maxCopyBytes/2)}
	const once = `{"op":"copy","from":"/x","path":"/y"}`
	if _, err := applied(t, large, `[`+once+`]`); err != nil {
		t.Error(err)
	}
	if _, err := applied(t, large, `[`+once+`,`+once+`]`); err == nil {
		t.Error("copies are not bounded")
	}
	long := make([]any, 2*maxShifted/maxOperations)
	for index := range long {
		long[index] = json.Number("1")
	}
	inserts := strings.Repeat(`,{"op":"add","path":"/0","value":1}`, maxOperations)
	if _, err := Apply(long, parsed(t, `[`+inserts[1:]+`]`)); err == nil {
		t.Error("shifted items are not bounded")
	}
}
