package tree

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// patched checks that the patch of two objects leads from one to the other, and returns it.
func patched(t *testing.T, before, after any) []Operation {
	t.Helper()
	operations := Diff(before, after)
	written := AppendPatch(nil, operations)
	if got, err := Apply(before, parsed(t, string(written))); err != nil || !Same(got, after) {
		t.Fatalf("%.300s leads from %.300s to %.300s, %v; expected %.300s", written, Append(nil, before), Append(nil, got), err, Append(nil, after))
	}
	return operations
}

// The vectors that the libraries of all languages share.
func TestDiffVectors(t *testing.T) {
	text, err := os.ReadFile("../../../conformance/admission_gateway_conformance/diff.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Name          string
		Before, After json.RawMessage
	}
	if err := json.Unmarshal(text, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) == 0 {
		t.Fatal("there are no vectors")
	}
	for _, vector := range vectors {
		t.Run(vector.Name, func(t *testing.T) {
			patched(t, parsed(t, string(vector.Before)), parsed(t, string(vector.After)))
		})
	}
}

func TestDiffOfReviews(t *testing.T) {
	texts := reviews(t)
	for index, text := range texts {
		patched(t, parsed(t, text), parsed(t, texts[(index+1)%len(texts)]))
	}
}

func TestDiffOfRandomDocuments(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	texts := []string{"", "a", "b", "~", "/", "~1", "a/b", "é", "__proto__", "0", "-"}
	numbers := []json.Number{"1", "1.0", "1e2", "9007199254740993", "123456789012345678901234567890"}
	var document func(levels int) any
	document = func(levels int) any {
		switch kind := random.IntN(9); {
		case kind < 2 && levels > 0:
			object := map[string]any{}
			for range random.IntN(5) {
				object[texts[random.IntN(len(texts))]] = document(levels - 1)
			}
			return object
		case kind < 5 && levels > 0:
			list := make([]any, random.IntN(6))
			for index := range list {
				list[index] = document(levels - 1)
			}
			return list
		case kind < 6:
			return nil
		case kind < 7:
			return random.IntN(2) == 0
		case kind < 8:
			return numbers[random.IntN(len(numbers))]
		}
		return texts[random.IntN(len(texts))]
	}
	for range 5000 {
		patched(t, map[string]any{"x": document(3), "y": true}, map[string]any{"x": document(3), "z": true})
	}
}

func TestDiffAlignsLists(t *testing.T) {
	list := `[{"name":"a","image":"x"},{"name":"b"},{"name":"c"}]`
	before := parsed(t, `{"list":`+list+`}`)
	for _, items := range []string{`{"name":"first"},%`, `%,{"name":"last"}`} {
		after := parsed(t, `{"list":[`+strings.ReplaceAll(items, "%", list[1:len(list)-1])+`]}`)
		if operations := patched(t, before, after); len(operations) != 1 {
			t.Errorf("%d operations: %v", len(operations), operations)
		}
	}
}

func TestDiffReplacesMembersWhereNamingEachChangeIsTooMuch(t *testing.T) {
	items := func(text string, count int) string { return "[" + strings.Repeat(text+",", count) + "0]" }
	nested := func(name, inner string, levels int) string {
		return strings.Repeat(`{"`+name+`":`, levels) + inner + strings.Repeat("}", levels)
	}
	shifted := strings.Repeat("0,", 20_000)
	for name, texts := range map[string][2]string{
		"many changes":  {items("1", maxOperations+1), items("2", maxOperations+1)},
		"deep":          {nested("a", "1", maxLevels), nested("a", "2", maxLevels)},
		"very deep":     {nested("a", "1", 9000), nested("a", "2", 9000)},
		"long paths":    {nested(strings.Repeat("k", 1<<20), items("1", 10), 1), nested(strings.Repeat("k", 1<<20), items("2", 10), 1)},
		"many parts":    {nested("a", items("1", 1000), 600), nested("a", items("2", 1000), 600)},
		"shifted items": {"[" + shifted + "0]", "[" + strings.Repeat("1,", maxShifted/20_000+1) + shifted + "0]"},
	} {
		before, after := parsed(t, `{"same":1,"member":`+texts[0]+`}`), parsed(t, `{"same":1,"member":`+texts[1]+`}`)
		operations := patched(t, before, after)
		if len(operations) != 1 || operations[0].Path != "/member" || operations[0].Op != "replace" {
			t.Errorf("%s: %d operations, the first at %.80s", name, len(operations), operations[0].Path)
		}
	}
	before, after := parsed(t, `{"list":`+items("1", maxOperations)+`}`), parsed(t, `{"list":`+items("2", maxOperations)+`}`)
	if operations := patched(t, before, after); len(operations) != maxOperations {
		t.Errorf("%d operations, expected %d", len(operations), maxOperations)
	}
}

func TestDiffReplacesTheObjectOfTooManyMembers(t *testing.T) {
	many := func(name string) any {
		object := map[string]any{}
		for index := range maxOperations {
			object[name+string(rune('a'+index%26))+strings.Repeat("x", index/26)] = nil
		}
		return object
	}
	if operations := patched(t, many("a"), many("b")); len(operations) != 1 || operations[0].Path != "" {
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
