package tree

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func reviews(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("../../../../tests/reviews/*.json")
	if err != nil || len(paths) == 0 {
		t.Fatal("there are no reviews", err)
	}
	var texts []string
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(text))
	}
	return texts
}

func expectLikeEncodingJSON(t *testing.T, text string) {
	t.Helper()
	var want any
	wantErr := Decode([]byte(text), &want)
	record := &Record{}
	got, err := Parse([]byte(text), record)
	if (err == nil) != (wantErr == nil) || err == nil && !reflect.DeepEqual(got, want) {
		t.Fatalf("%.300q is read as %v, %v; expected %v, %v", text, got, err, want, wantErr)
	}
	if err == nil && !strings.Contains(text, "duplicate") && !record.Unchanged() {
		t.Fatalf("the record of %.300q differs", text)
	}
	index := NewIndex([]byte(text))
	if (index == nil) != (wantErr != nil) {
		t.Fatalf("the index of %.300q is %v, expected %v", text, index, wantErr)
	}
	if index != nil && !reflect.DeepEqual(index.Root().Any(), want) {
		t.Fatalf("the index of %.300q has %v, expected %v", text, index.Root().Any(), want)
	}
	if index != nil && !reflect.DeepEqual(read(index.Root()), want) {
		t.Fatalf("the index of %.300q reads as %v, expected %v", text, read(index.Root()), want)
	}
}

// read returns a value as its methods give it.
func read(value Value) any {
	switch value.kind() {
	case objectKind:
		members := make(map[string]any)
		for key, member := range value.Members() {
			if _, ok := members[key]; ok || member != value.Get(key) {
				return "a key with several values: " + key
			}
			members[key] = read(member)
		}
		return members
	case listKind:
		items := []any{}
		for item := range value.Items() {
			items = append(items, read(item))
		}
		return items
	case plainKind, textKind:
		return value.Text()
	case numberKind:
		return value.Number()
	case trueKind, falseKind:
		return value.Bool()
	}
	return nil
}

func TestDocumentsAreReadLikeByEncodingJSON(t *testing.T) {
	long := strings.Repeat("long ", partBytes)
	for _, text := range append(reviews(t),
		`0`, `-0`, `-`, `01`, `1.`, `1.5e`, `1e+9`, `-1.25E-3`, `.5`, `+1`, `1e5x`, `tru`, `true`, `nul`, `falsey`, `null`,
		`""`, `"`, `"a`, `"\`, `"\"`, `"\u00e9\ud83d"`, `"é"`, "\"\xff\"", "\"\t\"", `"12345678\n"`, `"1234567"`, `"12345678"`,
		`{}`, `{ }`, `[]`, "[ \n]", `{"a"}`, `{"a":}`, `{"a":1,}`, `[1,]`, `[,1]`, `{,}`, `{"a":1 "b":2}`, `{1:2}`, `[1 2]`,
		`{"duplicate":1,"duplicate":[2]}`, `{"a":{"duplicate":1},"a":{"duplicate":2}}`, "{}\x00", "\x00", ` {} `, `{}{}`, `{"a":[1,{}]}]`,
		`{"`+long+`":"`+long+`","x":["y","`+long+`"]}`,
		`{"\u0061duplicate":1,"aduplicate":2}`, `{"aduplicate":2,"\u0061duplicate":1}`, "{\"\xffduplicate\":1,\"\xfeduplicate\":2}", `{"a\`, `["\u12`, `"\x"`, `"\u12g4"`, `"\uABCD\/\b\f"`,
		strings.Repeat("[", maxDepth+5)+strings.Repeat("]", maxDepth+5), strings.Repeat("[", 20_000),
		strings.Repeat("[", deepest)+strings.Repeat("]", deepest), strings.Repeat("[", deepest+1)+strings.Repeat("]", deepest+1),
	) {
		expectLikeEncodingJSON(t, text)
	}
}

func TestDamagedDocumentsAreReadLikeByEncodingJSON(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const signs = `{}[]",:\u0 1-.eE+tfn` + "\t\n\x00\x1f\x7f\x80\xc3\xa9\xff"
	for _, text := range reviews(t) {
		for range 200 {
			damaged := []byte(text)
			for range 1 + random.IntN(3) {
				at := random.IntN(len(damaged))
				sign := signs[random.IntN(len(signs))]
				switch random.IntN(3) {
				case 0:
					damaged[at] = sign
				case 1:
					damaged = append(damaged[:at], damaged[at+1:]...)
				default:
					damaged = append(damaged[:at], append([]byte{sign}, damaged[at:]...)...)
				}
			}
			expectLikeEncodingJSON(t, string(damaged))
		}
	}
}

func TestARecordFindsEachChange(t *testing.T) {
	const text = `{"a":{"b":[1,"x",{"c":null}],"d":{}},"e":[]}`
	inner := func(d map[string]any) map[string]any { return d["a"].(map[string]any) }
	for name, change := range map[string]func(d map[string]any){
		"a member":           func(d map[string]any) { d["e"] = nil },
		"an equal list":      func(d map[string]any) { inner(d)["b"] = append([]any{}, inner(d)["b"].([]any)...) },
		"an equal object":    func(d map[string]any) { inner(d)["d"] = map[string]any{} },
		"an added member":    func(d map[string]any) { inner(d)["d"].(map[string]any)["x"] = true },
		"a removed member":   func(d map[string]any) { delete(inner(d), "d") },
		"a renamed member":   func(d map[string]any) { delete(d, "e"); d["f"] = []any{} },
		"an item":            func(d map[string]any) { inner(d)["b"].([]any)[1] = "y" },
		"items swapped":      func(d map[string]any) { b := inner(d)["b"].([]any); b[0], b[1] = b[1], b[0] },
		"a member of a list": func(d map[string]any) { inner(d)["b"].([]any)[2].(map[string]any)["c"] = []string{} },
		"another Go type":    func(d map[string]any) { inner(d)["b"].([]any)[1] = []int{1} },
	} {
		record := &Record{}
		value, err := Parse([]byte(text), record)
		if err != nil || !record.Unchanged() || !NewRecord(value).Unchanged() {
			t.Fatal(err)
		}
		later := NewRecord(value)
		change(value.(map[string]any))
		if record.Unchanged() || later.Unchanged() {
			t.Errorf("%s: not found", name)
		}
	}
}

func TestListsHaveNoSpareCapacity(t *testing.T) {
	list := parsed(t, `[1,2,3]`).([]any)
	if cap(list) != len(list) {
		t.Errorf("capacity %d", cap(list))
	}
}

func TestWhatDoesNotExistReadsAsEmpty(t *testing.T) {
	root := NewIndex([]byte(`{"a":{"b":["x",1,true,null]},"n":null,"a\"":"quoted"}`)).Root()
	for _, path := range [][]string{{"x"}, {"a", "x"}, {"a", "b", "x"}, {"n"}, {"n", "x"}, {"", "a"}} {
		value := root.Get(path...)
		if value.Exists() || value.Text() != "" || value.Bool() || value.Number() != "" || value.Any() != nil {
			t.Errorf("%q: found %v", path, value.Any())
		}
		for range value.Items() {
			t.Errorf("%q has an item", path)
		}
		for range value.Members() {
			t.Errorf("%q has a member", path)
		}
	}
	if found := root.Get(`a"`).Text(); found != "quoted" {
		t.Errorf("found %q", found)
	}
	if list := root.Get("a", "b"); list.Text() != "" || list.Bool() || list.Number() != "" || (Value{}).Exists() {
		t.Error("a list reads as something else")
	}
	for item := range root.Get("a", "b").Items() {
		if item.Text() != "x" {
			t.Errorf("found %v", item.Any())
		}
		break
	}
}
