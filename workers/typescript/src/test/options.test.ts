import assert from "node:assert/strict";
import { test } from "node:test";

import { parseOptions } from "../options.js";

test("what is given is taken, the rest has its default", () => {
  assert.deepEqual(parseOptions([]), { listen: ["127.0.0.1:50051"], graceMs: 10_000 });
  const tls = ["--tls-cert", "c", "--tls-key=k", "--client-ca", "a"];
  const given = ["--listen", "[::1]:0", "--listen=localhost:1", "--grace", "0.5", ...tls];
  assert.deepEqual(parseOptions(given), {
    listen: ["[::1]:0", "localhost:1"],
    graceMs: 500,
    tls: { cert: "c", key: "k", clientCa: "a" },
  });
  assert.equal(parseOptions(["--help", "--grace", "soon"]), undefined);
});

const wrong: [args: string[], text: RegExp][] = [
  [["--nonsense"], /^Unknown option '--nonsense'$/],
  [["argument"], /^Unexpected argument 'argument'.*$/],
  [["--listen"], /^Option '--listen <value>' argument missing$/],
  [["--listen", "nowhere"], /^"nowhere" is not an address: /],
  [["--listen", "127.0.0.1:1", "--listen", "127.0.0.1:1"], /^--listen names the same address twice$/],
  [["--grace", "-1"], /^Option '--grace' argument is ambiguous\.$/],
  [["--grace=-1"], /^"-1" is not a number of seconds$/],
  [["--grace", "soon"], /^"soon" is not a number of seconds$/],
  [["--grace="], /^"" is not a number of seconds$/],
  [["--tls-cert", "a"], /^--tls-cert and --tls-key go together$/],
  [["--client-ca", "a"], /^--client-ca needs --tls-cert and --tls-key$/],
  [["--tls-cert", "a", "--tls-key", "b", "--listen", "unix:c"], /^TLS is for HOST:PORT; /],
];

for (const [args, message] of wrong) {
  test(`refused: ${args.join(" ")}`, () => {
    assert.throws(() => parseOptions(args), { message });
  });
}
