import assert from "node:assert/strict";
import { test } from "node:test";

import { cleanText, parseJson, plain, writeJson } from "../json.js";

test("whole numbers beyond 2^53 keep all their digits", () => {
  const text =
    '{"big":9007199254740993,"long":123456789012345678901234567890,"negative":-9223372036854775808,' +
    '"pi":3.141592653589793,"safe":9007199254740991,"text":"\\\\\\"9007199254740993"}';
  const value = parseJson(text) as Record<string, unknown>;
  assert.equal(value.big, 9007199254740993n);
  assert.equal(value.safe, 9007199254740991);
  assert.equal(value.pi, Math.PI);
  assert.equal(value.text, '\\"9007199254740993');
  assert.equal(writeJson(value), text);
});

test("a long number is found wherever it stands, and whatever is around it", () => {
  for (let before = 0; before < 40; before++) {
    for (const number of ["9007199254740993", "-18446744073709551615"]) {
      const text = `{"${"x".repeat(before)}":[ ${number}\n,1]}`;
      assert.equal(writeJson(parseJson(text)), text.replaceAll(/\s/g, ""));
    }
  }
});

test("texts that look like numbers stay texts, and what is marked stays unread", () => {
  const document = {
    a: '"12345678901234567890',
    b: ["\\", "12345678901234567890", '\\"'],
    c: "é12345678901234567890",
  };
  const text = JSON.stringify(document);
  assert.deepEqual(parseJson(text), document);
});

test("numbers that no double holds are no bigints", () => {
  const digits = "9".repeat(400);
  assert.equal((parseJson(`[${digits}]`) as number[])[0], Infinity);
  assert.throws(() => plain(parseJson(`[${digits}]`)), /Infinity cannot be written as JSON/);
});

test("a long text full of escapes is read in spite of a long number beside it", () => {
  const text = `{"a":${JSON.stringify('\\"'.repeat(500_000))},"n":9007199254740993}`;
  assert.equal(writeJson(parseJson(text)), text);
});

test("a member named __proto__ is a member", () => {
  const text = '{"__proto__":{"x":9007199254740993}}';
  assert.equal(writeJson(plain(parseJson(text))), text);
});

test("what is no JSON is made into JSON, or refused", () => {
  const date = new Date(0);
  const odd = { a: undefined, b: date, c: [undefined, 1n, new String("s")], d: 2n ** 64n, f: () => 1, g: -0 };
  assert.equal(
    writeJson(plain(odd)),
    '{"b":"1970-01-01T00:00:00.000Z","c":[null,1,"s"],"d":18446744073709551616,"g":0}',
  );
  assert.throws(() => plain({ a: NaN }), /NaN cannot be written as JSON/);
  const itself: Record<string, unknown> = {};
  itself.itself = itself;
  assert.throws(() => plain(itself), RangeError);
});

test("unpaired surrogates become question marks, pairs stay", () => {
  assert.equal(cleanText("a\ud83d😀\ude00"), "a?😀?");
});
