package tree

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func TestParseWritesBackWhatItRead(t *testing.T) {
	for text, canonical := range map[string]string{
		`null`: `null`, ` true `: `true`, `[]`: `[]`, `{}`: `{}`, `"a"`: `"a"`,
		`{"b":1,"a":[1,-0.5e+10,{"c":false}]}`:  `{"a":[1,-0.5e+10,{"c":false}],"b":1}`,
		`123456789012345678901234567890`:        `123456789012345678901234567890`,
		`"\u00e9\ud83d\ude00\/\b\f\n\r\t\"\\x"`: `"é😀/\b\f\n\r\t\"\\x"`,
		"\"<&>\u2028\u007f\"":                   "\"<&>\u2028\u007f\"",
		`"\u0000\u001F"`:                        `"\u0000\u001f"`,
		`{"a":1,"a":2}`:                         `{"a":2}`,
		`{"\ud83d\ude00":1,"\uffff":2}`:         "{\"\uffff\":2,\"😀\":1}",
	} {
		if got := string(Append(nil, parsed(t, text))); got != canonical {
			t.Errorf("%s is written as %s, expected %s", text, got, canonical)
		}
	}
}

func TestParseRefusesWhatIsNotJSON(t *testing.T) {
	for _, text := range []string{
		``, ` `, `nul`, `tru`, `{`, `}`, `[`, `[1`, `[1,`, `[1,]`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,}`, `{a:1}`,
		`{"a" 1}`, `1 2`, `01`, `-`, `1.`, `.5`, `1e`, `+1`, `0x1`, `NaN`, `"`, `"\x"`, `"\u12"`, `"\u12g4"`,
		`"\ud800"`, `"\ud800\u0041"`, `"\udc00"`, `"\`, "\"\n\"", "\"\\n\n\"", "\"\xff\"", `'a'`, `[1]]`, "\ufeff1",
		strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1),
	} {
		if value, err := Parse(text); err == nil {
			t.Errorf("%.40q is read as %v", text, value)
		}
		if _, _, err := ParseMembers(`{"a":`+text+`}`, func(string) bool { return false }, func(string, string) {}); err == nil {
			t.Errorf("%.40q is passed over", text)
		}
	}
	parsed(t, strings.Repeat("[", maxDepth)+strings.Repeat("]", maxDepth))
}

func TestParseAgreesWithEncodingJSON(t *testing.T) {
	for _, text := range []string{
		`{"a":[1,2.5,"x\ty",null,true,{"b":{}}],"é":"\u00e9"}`, `[[],[[]],{"a":{"b":[{}]}}]`, `-12.5E-3`,
	} {
		var want any
		decoder := json.NewDecoder(strings.NewReader(text))
		decoder.UseNumber()
		if err := decoder.Decode(&want); err != nil {
			t.Fatal(err)
		}
		if got := parsed(t, text); !Same(got, want) {
			t.Errorf("%s is read as %v, expected %v", text, got, want)
		}
	}
}

func TestParseMembersBuildsOnlyWhatIsAskedFor(t *testing.T) {
	texts := map[string]string{}
	members, _, err := ParseMembers(
		` {"a": {"b":1} , "c": [1, "}"]}`,
		func(key string) bool { return key == "a" },
		func(key, text string) { texts[key] = text },
	)
	if err != nil {
		t.Fatal(err)
	}
	if members["c"] != Raw(`[1, "}"]`) || texts["a"] != `{"b":1}` || !Same(parsed(t, `{"b":1}`), members["a"]) {
		t.Errorf("members %v, texts %v", members, texts)
	}
	if _, found, err := ParseMembers(`[1]`, nil, nil); found != "array" || err != nil {
		t.Errorf("found %s, %v", found, err)
	}
}

func TestNormalTakesGoValuesForTheirJSON(t *testing.T) {
	shared := map[string]any{"n": 1, "list": []string{"a"}, "text": "a\xffb"}
	value, err := Normal(map[string]any{"shared": shared, "none": map[string]any(nil), "float": 1.5, "bad\xff": true})
	if err != nil {
		t.Fatal(err)
	}
	want := "{\"bad\ufffd\":true,\"float\":1.5,\"none\":null,\"shared\":{\"list\":[\"a\"],\"n\":1,\"text\":\"a\ufffdb\"}}"
	if got := string(Append(nil, value)); got != want {
		t.Errorf("got %s, expected %s", got, want)
	}
	if shared["n"] != 1 {
		t.Error("the value given was changed")
	}
	circle := map[string]any{}
	circle["self"] = circle
	for _, value := range []any{math.NaN(), func() {}, json.Number("1x"), json.Number(""), circle} {
		if got, err := Normal(value); err == nil {
			t.Errorf("%T is taken for %v", value, got)
		}
	}
}

func TestDiffTakesGoValuesForTheirJSON(t *testing.T) {
	before := parsed(t, `{"a":1,"b":{"c":"x"},"d":[1]}`)
	same := map[string]any{"a": 1, "b": map[string]string{"c": "x"}, "d": []int{1}}
	if operations := difference(t, before, same); len(operations) > 0 {
		t.Errorf("equal values differ by %v", operations)
	}
	changed := map[string]any{"a": 1, "b": map[string]string{"c": "y"}, "d": []int{1, 2}}
	want := `[{"op":"replace","path":"/b/c","value":"y"},{"op":"add","path":"/d/1","value":2}]`
	if got := string(AppendPatch(nil, difference(t, before, changed))); got != want {
		t.Errorf("got %s, expected %s", got, want)
	}
	if operations, err := Diff(before, map[string]any{"a": math.Inf(1)}); err == nil {
		t.Errorf("infinity is written in %v", operations)
	}
}

func TestSameTellsNumbersApartByTheirKind(t *testing.T) {
	for _, equal := range [][2]string{{"1", "1"}, {"1.0", "1.00"}, {"1e2", "100.0"}, {"0", "-0"}, {"-0.0", "0.0"}} {
		if !Same(parsed(t, equal[0]), parsed(t, equal[1])) {
			t.Errorf("%s is not %s", equal[0], equal[1])
		}
	}
	for _, other := range [][2]string{{"1", "1.0"}, {"1", "true"}, {"9007199254740993", "9007199254740992"}, {"1e999", "1e998"}} {
		if Same(parsed(t, other[0]), parsed(t, other[1])) {
			t.Errorf("%s is %s", other[0], other[1])
		}
	}
}

func TestCarryKeepsWhatATypeDoesNotKnow(t *testing.T) {
	for name, vector := range map[string][4]string{
		"nothing changed": {`{"x":1,"y":2}`, `{"x":1,"z":null}`, `{"x":1,"z":null}`, `{"x":1,"y":2}`},
		"a member":        {`{"x":1,"y":2}`, `{"x":1,"z":null}`, `{"x":5,"z":null}`, `{"x":5,"y":2}`},
		"gone and added":  {`{"x":1,"y":2}`, `{"x":1}`, `{"w":3}`, `{"w":3,"y":2}`},
		"inside a list": {
			`{"l":[{"a":1,"u":1},{"a":2,"u":2}]}`, `{"l":[{"a":1},{"a":2}]}`, `{"l":[{"a":1},{"a":3}]}`,
			`{"l":[{"a":1,"u":1},{"a":3,"u":2}]}`,
		},
		"appended": {
			`{"l":[{"a":1,"u":1}]}`, `{"l":[{"a":1,"n":{}}]}`, `{"l":[{"a":1,"n":{}},{"a":2,"n":{}}]}`,
			`{"l":[{"a":1,"u":1},{"a":2,"n":{}}]}`,
		},
		"prepended":    {`{"l":[{"a":1,"u":1}]}`, `{"l":[{"a":1}]}`, `{"l":[{"a":0},{"a":1}]}`, `{"l":[{"a":0},{"a":1,"u":1}]}`},
		"removed":      {`{"l":[{"a":1,"u":1},{"a":2,"u":2}]}`, `{"l":[{"a":1},{"a":2}]}`, `{"l":[{"a":2}]}`, `{"l":[{"a":2,"u":2}]}`},
		"another type": {`{"x":{"u":1}}`, `{"x":{}}`, `{"x":[1]}`, `{"x":[1]}`},
	} {
		got := Carry(parsed(t, vector[0]), parsed(t, vector[1]), parsed(t, vector[2]))
		if text := string(Append(nil, got)); text != vector[3] {
			t.Errorf("%s: got %s, expected %s", name, text, vector[3])
		}
	}
}
