/** What policies do, and what arrives of it: the same by Review and by ReviewStream. */

import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";

import { Denied, PolicyServer, type Review } from "../index.js";
import { Gateway, payload, type Answer } from "./gateway.js";

const LIMIT = 8 * 1024 * 1024 - 128;

describe("what a policy does is what arrives", () => {
  const server = new PolicyServer();
  let gateway: Gateway;

  before(async () => {
    const [address] = await server.start("127.0.0.1:0");
    gateway = new Gateway(address!);
  });

  after(async () => {
    gateway.close();
    await server.stop();
  });

  /** Asks a policy both ways and returns the answer, which is to be the same. */
  async function ask(policy: string, request: string | object = { object: { a: 1 } }): Promise<Answer> {
    const unary = await gateway.review(policy, request);
    const stream = gateway.stream();
    const calls = [{ id: 1, payload: 0, policy, timeoutMillis: 10_000 }];
    stream.send({ payloads: [payload(request)], calls });
    const { verdicts } = await stream.message();
    stream.call.end();
    assert.equal(verdicts.length, 1);
    const { id, ...answer } = verdicts[0]!;
    assert.equal(id, 1n);
    assert.deepEqual(answer, unary);
    return unary;
  }

  class Missing extends TypeError {}

  const refuse = (): never => {
    throw new Error("not to be looked at");
  };

  const failures: [name: string, thrown: unknown, message: string][] = [
    ["error", new Error("broken"), "broken"],
    ["error-without-text", new Error(), "Error"],
    ["type-error", new TypeError("no labels"), "TypeError: no labels"],
    ["own-error", new Missing("gone"), "TypeError: gone"],
    ["own-plain-error", new (class Lost extends Error {})("gone"), "Lost: gone"],
    ["string", "just text", "just text"],
    ["nothing", undefined, "undefined"],
    ["unprintable", Object.create(null), "a thrown object"],
    ["unreadable", Object.defineProperty(new Error("a"), "message", { get: refuse }), "a thrown object"],
    ["proxy", new Proxy({}, { has: refuse, getPrototypeOf: refuse }), "a thrown object"],
    ["long", new Error("é".repeat(2000)), `${"é".repeat(998)}...`],
    ["surrogate", new Error("a\ud83d"), "a?"],
  ];

  for (const [name, thrown, message] of failures) {
    server.policy(`throws-${name}`, () => {
      throw thrown;
    });
    server.policy(`rejects-${name}`, () => Promise.reject(thrown as Error));
    test(`a policy that throws: ${name}`, async () => {
      assert.deepEqual(await ask(`throws-${name}`), { error: { code: 13, message } });
      assert.deepEqual(await ask(`rejects-${name}`), { error: { code: 13, message } });
    });
  }

  for (const [word, value] of Object.entries({ boolean: false, null: null, object: {}, string: "" })) {
    server.policy(`returns-${word}`, (() => value) as never);
    test(`a policy that returns something: ${word}`, async () => {
      const text = `the policy returned ${word}: it returns nothing to allow and throws Denied to deny`;
      assert.deepEqual(await ask(`returns-${word}`), { error: { code: 13, message: `TypeError: ${text}` } });
    });
  }

  const thenables: [name: string, then: (settle: () => void) => void][] = [
    ["settles-at-once", (settle) => settle()],
    ["settles-twice", (settle) => [0, 1].forEach((ms) => setTimeout(settle, ms))],
    ["settles-and-throws", (settle) => [settle, refuse].forEach((step) => step())],
  ];
  for (const [name, then] of thenables) {
    server.policy(name, () => ({ then }) as Promise<void>);
    test(`a policy that returns another library's promise, which ${name}`, async () => {
      assert.deepEqual(await ask(name), { response: { allowed: true } });
    });
  }

  server.policy("then-throws", () => ({ then: refuse }) as never);
  server.policy("then-is-not-readable", () => Object.defineProperty({}, "then", { get: refuse }) as never);

  test("a promise that breaks is the policy's failure, and of no other call", async () => {
    for (const policy of ["then-throws", "then-is-not-readable"]) {
      assert.deepEqual(await ask(policy), { error: { code: 13, message: "not to be looked at" } });
      const stream = gateway.stream();
      stream.ask(["never-looks", policy, "never-looks"], {});
      assert.equal((await stream.verdicts(3)).length, 3);
      stream.call.end();
      assert.equal((await stream.ended()).code, 0);
    }
  });

  server.policy("says-what-is-no-text", (review: Review) => {
    review.warnings.push("a\ud83d", 5 as never, Object.create(null) as never);
    review.annotations.set("k", 5 as never);
    setImmediate(() => review.warn("too late"));
  });

  test("what cannot be sent is replaced, however it was said", async () => {
    assert.deepEqual(await ask("says-what-is-no-text"), {
      response: { allowed: true, warnings: ["a?", "5", "?"], auditAnnotations: { k: "5" } },
    });
  });

  server.policy("says-much", { mutating: true }, async (review: Review) => {
    review.warn("careful\ud83d");
    review.annotate("k", "old");
    review.annotate("k", "v");
    review.annotate("__proto__", "p");
    review.object!.b = { z: 1, a: "<é😀>" };
  });

  test("warnings, annotations and a patch", async () => {
    const { response } = await ask("says-much");
    assert.equal(response?.allowed, true);
    assert.deepEqual(response?.warnings, ["careful?"]);
    assert.equal(response?.auditAnnotations?.k, "v");
    assert.equal(response?.patch?.toString(), '[{"op":"add","path":"/b","value":{"z":1,"a":"<é😀>"}}]');
  });

  server.policy("denies", (review: Review) => {
    review.warn("w");
    review.annotate("k", "v");
    throw new Denied("no", { code: 422, reason: "Invalid", field: "a.b", causes: [{ message: "m" }] });
  });
  server.policy("denies-oddly", () => {
    throw new Denied("no\ud83d", { code: 200 });
  });
  server.policy("denies-with-odd-causes", () => {
    throw new Denied("no", { causes: [null as never, { message: Object.create(null) as never }] });
  });
  const about = { retryAfterSeconds: 30, name: "web", group: "apps", kind: "Deployment", uid: "u-2" };
  server.policy("denies-with-details", () => {
    throw new Denied("no", { code: 429, reason: "TooManyRequests", ...about });
  });
  server.policy("denies-with-odd-details", () => {
    throw new Denied("no", { retryAfterSeconds: 1.5, name: "a\ud83d", kind: null as never });
  });
  server.policy("denies-among-others", () => Promise.any([Promise.reject(new Error("x")), Promise.reject(new Denied("no"))])); // prettier-ignore

  test("denials", async () => {
    const reason = "FieldValueForbidden";
    const causes = [
      { reason, message: "no", field: "a.b" },
      { reason, message: "m", field: "" },
    ];
    assert.deepEqual(await ask("denies"), {
      response: {
        allowed: false,
        status: { code: 422, reason: "Invalid", message: "no", causes },
        warnings: ["w"],
        auditAnnotations: { k: "v" },
      },
    });
    assert.equal((await ask("denies-oddly")).response?.status?.code, 400);
    assert.equal((await ask("denies-oddly")).response?.status?.message, "no?");
    const odd = (await ask("denies-with-odd-causes")).response?.status;
    assert.deepEqual([odd?.message, odd?.causes.map(({ message }) => message)], ["no", ["", "?"]]);
    assert.deepEqual(await ask("denies-with-details"), {
      response: { allowed: false, status: { code: 429, reason: "TooManyRequests", message: "no", ...about } },
    });
    assert.deepEqual(await ask("denies-with-odd-details"), {
      response: { allowed: false, status: { code: 403, reason: "", message: "no", name: "a?" } },
    });
    assert.equal((await ask("denies-among-others")).response?.status?.message, "no");
  });

  server.policy("changes-without-leave", (review: Review) => {
    review.object!.a = 2;
    review.patch = [{ op: "remove", path: "/a" }];
  });
  server.policy("looks", { mutating: true }, (review: Review) => {
    if (review.object?.a !== 1) throw new Error(`found ${JSON.stringify(review.object)}`);
  });
  server.policy("replaces-by-nothing", { mutating: true }, (review: Review) => {
    review.object = null;
  });
  server.policy("sets-one-where-there-is-none", { mutating: true }, (review: Review) => {
    review.object = { a: 1 };
  });
  server.policy("never-looks", { mutating: true }, async () => undefined);

  test("changes of a policy that is not mutating have no effect", async () => {
    assert.deepEqual(await ask("changes-without-leave"), { response: { allowed: true } });
  });

  test("no policy sees another's changes", async () => {
    const stream = gateway.stream();
    stream.ask(["changes-without-leave", "looks", "says-much", "looks"], { object: { a: 1 } });
    const verdicts = await stream.verdicts(4);
    assert.equal(verdicts.filter(({ response }) => response?.allowed).length, 4);
    stream.call.end();
  });

  test("a change that cannot be is the policy's failure", async () => {
    assert.equal(
      (await ask("replaces-by-nothing")).error?.message,
      "review.object is to stay an object, found null",
    );
    const text = "review.object was set, but the request has no object to change";
    assert.deepEqual(await ask("sets-one-where-there-is-none", { object: null }), { error: { code: 13, message: text } }); // prettier-ignore
  });

  test("a policy that never looks never fails on bad JSON; one that does says INVALID_ARGUMENT", async () => {
    assert.deepEqual(await ask("never-looks", "{"), { response: { allowed: true } });
    const { error } = await ask("looks", "{");
    assert.equal(error?.code, 3);
    assert.match(error.message, /^admission_request is not JSON: /);
    const found = "admission_request is to be a JSON object, found array";
    assert.deepEqual(await ask("looks", "[]"), { error: { code: 3, message: found } });
  });

  test("an unknown policy", async () => {
    const { error } = await ask("nope");
    assert.equal(error?.code, 5);
    assert.match(
      error.message,
      /^policy "nope" is not served here; served are: answers-too-much, changes-without-leave, denies, /,
    );
  });

  server.policy("answers-too-much", { mutating: true }, (review: Review) => {
    review.object!.b = "x".repeat(LIMIT);
  });
  server.policy("denies-too-much", () => {
    const causes = [{ message: "x".repeat(LIMIT) }];
    throw new Denied(`${"😀".repeat(5000)}`, { causes, retryAfterSeconds: 30 });
  });
  server.policy("just-fits", { mutating: true }, (review: Review) => {
    review.patch = [{ op: "add", path: "/b", value: "x".repeat(LIMIT - 50) }];
  });

  test("answers that are too large", async () => {
    const { error } = await ask("answers-too-much");
    assert.equal(error?.code, 8);
    assert.match(
      error.message,
      /^the answer has 8388\d{3} bytes \(8388\d{3} of them patch\), more than 8388480$/,
    );
    const { response } = await ask("denies-too-much");
    assert.equal(response?.allowed, false);
    assert.equal(response?.status?.message, "😀".repeat(4096));
    assert.equal(response?.status?.retryAfterSeconds, 30);
    assert.equal((await ask("just-fits")).response?.allowed, true);
  });

  test("requests that are too large, or no messages", async () => {
    const over = gateway.unary("Review", Buffer.alloc(8 * 1024 * 1024 + 1));
    await assert.rejects(over, { code: 8 });
    await assert.rejects(gateway.unary("Review", Buffer.from("\xff\xff")), {
      code: 3,
      details: /not a ReviewRequest/,
    });
  });
});
