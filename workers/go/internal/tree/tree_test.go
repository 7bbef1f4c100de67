package tree

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func TestADocumentIsWrittenWithAllItsDigits(t *testing.T) {
	for text, canonical := range map[string]string{
		`{"b":1,"a":[1,-0.5e+10,{"c":false}]}`:  `{"a":[1,-0.5e+10,{"c":false}],"b":1}`,
		` [123456789012345678901234567890, -0]`: `[123456789012345678901234567890,-0]`,
		`"\u00e9\ud83d\ude00\/\b\f\n\r\t\"\\x"`: `"é😀/\b\f\n\r\t\"\\x"`,
		`"<&>\u007f"`:                           "\"<&>\u007f\"",
		`"\u0000\u001F"`:                        `"\u0000\u001f"`,
		`{"\ud83d\ude00":1,"\uffff":2}`:         "{\"\uffff\":2,\"😀\":1}",
		"[\"\xff\", null, true]":                "[\"\ufffd\",null,true]",
	} {
		if got := string(Append(nil, parsed(t, text))); got != canonical {
			t.Errorf("%s is written as %s, expected %s", text, got, canonical)
		}
	}
}

func TestThereIsOneDocument(t *testing.T) {
	for _, text := range []string{"", " ", "{", "1 2", "{} ]", "[1],"} {
		if value, err := Parse([]byte(text), nil); err == nil {
			t.Errorf("%q is read as %v", text, value)
		}
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
	for _, value := range []any{math.NaN(), func() {}, json.Number("1x"), json.Number("true"), circle, []any{circle}} {
		if got, err := Normal(value); err == nil {
			t.Errorf("%T is taken for %v", value, got)
		}
	}
}

func TestNormalTakesADeepDocument(t *testing.T) {
	text := strings.Repeat(`[`, 2*maxDepth) + strings.Repeat(`]`, 2*maxDepth)
	if value, err := Normal(parsed(t, text)); err != nil || string(Append(nil, value)) != text {
		t.Error(err)
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
