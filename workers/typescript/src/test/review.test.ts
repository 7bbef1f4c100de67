import assert from "node:assert/strict";
import { test } from "node:test";

import { Denied, PolicyServer, Review } from "../index.js";
import type { Operation } from "../index.js";

const POD = { metadata: { name: "web" }, spec: { containers: [{ name: "app", image: "app:1" }] } };

function create(object: unknown = POD, more = {}): Review {
  return Review.fromJson({ operation: "CREATE", object, ...more });
}

test("a Review is made from a request, a whole AdmissionReview or their JSON", () => {
  const request = { operation: "CREATE", object: POD, uid: "u" };
  for (const from of [request, { request }, JSON.stringify(request), JSON.stringify({ request })]) {
    assert.equal(Review.fromJson(from).uid, "u");
    assert.deepEqual(Review.fromJson(from).object, POD);
  }
});

test("what a request does not say is empty", () => {
  const review = Review.fromJson({ object: null, oldObject: POD });
  const { operation, name, namespace, uid, subResource } = review;
  assert.deepEqual({ operation, name, namespace, uid, subResource }, { operation: "", name: "", namespace: "", uid: "", subResource: "" }); // prettier-ignore
  assert.equal(review.object, null);
  assert.deepEqual(review.oldObjectAs<typeof POD>()?.spec, POD.spec);
  assert.deepEqual(review.kind, { group: "", version: "", kind: "" });
  assert.deepEqual(review.userInfo, {});
  assert.equal(review.dryRun, false);
  assert.equal(review.namespaceObject, null);
  assert.equal(review.remainingMs, Infinity);
});

test("changes of the object become a patch, written as JSON would write it", () => {
  const review = create();
  const pod = review.objectAs<typeof POD & { spec: { since?: Date; nothing?: undefined } }>()!;
  pod.spec.containers[0]!.image = "app:2";
  pod.spec.since = new Date(0);
  pod.spec.nothing = undefined;
  assert.deepEqual(review.changes(), [
    { op: "replace", path: "/spec/containers/0/image", value: "app:2" },
    { op: "add", path: "/spec/since", value: "1970-01-01T00:00:00.000Z" },
  ]);
});

test("an equal object in place of the old one is no change", () => {
  const review = create();
  review.object = { spec: structuredClone(POD.spec), metadata: { name: "web" } };
  assert.deepEqual(review.changes(), []);
});

test("what is compared is what would be written", () => {
  const review = create({ spec: { since: {} } });
  review.object!.spec.since = new Date(0);
  const value = "1970-01-01T00:00:00.000Z";
  assert.deepEqual(review.changes(), [{ op: "replace", path: "/spec/since", value }]);
});

test("numbers beyond 2^53 come out of a patch unharmed", () => {
  const exact = Review.fromJson('{"object":{"spec":{"a":[{"n":9007199254740993}]}}}');
  exact.object!.spec.b = [...exact.object!.spec.a, { n: 1 }];
  assert.deepEqual(exact.changes(), [
    { op: "add", path: "/spec/b", value: [{ n: 9007199254740993n }, { n: 1 }] },
  ]);
});

test("a patch of the policy's own counts instead", () => {
  const review = create();
  review.object!.spec = {};
  const patch: Operation[] = [{ op: "test", path: "/metadata/name", value: "web" }];
  review.patch = patch;
  assert.deepEqual(review.changes(), patch);
  review.patch = [];
  assert.deepEqual(review.changes(), []);
});

test("what cannot be a change is refused", () => {
  const gone = Review.fromJson({ operation: "DELETE", object: null });
  gone.object = POD;
  assert.throws(() => gone.changes(), /review.object was set, but the request has no object/);
  const patched = Review.fromJson({ operation: "DELETE", object: null });
  patched.patch = [{ op: "remove", path: "/a" }];
  assert.throws(() => patched.changes(), /review.patch is set, but the request has no object/);
  const lost = create();
  lost.object = null;
  assert.throws(() => lost.changes(), /is to stay an object, found null/);
  lost.object = [];
  assert.throws(() => lost.changes(), /is to stay an object, found array/);
  lost.object = { n: NaN };
  assert.throws(() => lost.changes(), /NaN/);
});

test("a payload that is no JSON object is told apart, when it is looked at", () => {
  const broken = (text: string | Buffer): Review => new Review(Buffer.from(text), Buffer.from("[]"));
  assert.throws(() => broken("{").request, /^Error: admission_request is not JSON: ./);
  assert.throws(() => broken(Buffer.from('{"a":"\xff"}', "latin1")).request, /is not JSON: it is not UTF-8/);
  assert.equal(broken('{"uid":"\ufffd"}').uid, "\ufffd");
  for (const [text, word] of [
    ["[]", "array"],
    ["null", "null"],
    ["1", "number"],
    ['"a"', "string"],
    ["true", "boolean"],
  ]) {
    // prettier-ignore
    const message = `admission_request is to be a JSON object, found ${word}`;
    assert.throws(() => broken(text!).request, { message });
  }
  assert.throws(() => broken("{}").namespaceObject, { message: "namespace_object is to be a JSON object, found array" }); // prettier-ignore
});

test("the signal is aborted, also when it is asked for later", () => {
  const reason = new DOMException("enough", "AbortError");
  const [early, late] = [create(), create()];
  const { signal } = early;
  assert.equal(signal.aborted, false);
  early.abort(reason);
  late.abort(reason);
  assert.equal(signal.reason, reason);
  assert.equal(late.signal.reason, reason);
});

test("a denial says what it is", () => {
  const denied = new Denied("no", {
    field: "spec",
    causes: [{ message: "more", reason: "FieldValueInvalid" }],
  });
  assert.equal(denied.code, 403);
  assert.deepEqual(denied.causes, [
    { message: "no", field: "spec" },
    { message: "more", reason: "FieldValueInvalid" },
  ]);
});

test("mistakes show when a policy is registered", () => {
  const server = new PolicyServer();
  const allow = (): void => undefined;
  server.policy("a", allow);
  assert.throws(() => server.policy("a", allow), /policy "a" is already registered/);
  for (const name of ["", " ", "a\n"]) assert.throws(() => server.policy(name, allow), /some printable text/);
  assert.throws(() => server.policy("b", {}, null as never), /is to be a function of one Review/);
  assert.throws(() => server.policy("b", ((_: Review, __: number) => undefined) as never), /of one Review/);
  assert.deepEqual([...server.policies.keys()], ["a"]);
});

test("a server without policies does not start", async () => {
  await assert.rejects(new PolicyServer().start("127.0.0.1:0"), /no policy is registered/);
});
