/** The command line of a worker. */

import { parseArgs, type ParseArgsConfig } from "node:util";

import { DEFAULT_LISTEN, parseAddress, type Tls } from "./listen.js";
import { parseMetricsAddress } from "./metrics.js";
import { DEFAULT_GRACE_MS } from "./serving.js";

export const HELP = `Serves admission policies over gRPC.

  --listen ADDRESS   HOST:PORT or unix:PATH, repeatable; default ${DEFAULT_LISTEN}
  --tls-cert FILE    PEM certificate chain to serve with
  --tls-key FILE     its private key
  --client-ca FILE   let in only clients that it signed
  --metrics-listen HOST:PORT
                     serve Prometheus metrics over plain HTTP; off by default
  --grace SECONDS    for calls in flight when told to stop; default ${DEFAULT_GRACE_MS / 1000}
  --help             show this
`;

export interface Options {
  listen: string[];
  tls?: Tls;
  metricsListen?: string;
  graceMs: number;
}

const KNOWN = {
  listen: { type: "string", multiple: true, default: [DEFAULT_LISTEN] },
  "tls-cert": { type: "string" },
  "tls-key": { type: "string" },
  "client-ca": { type: "string" },
  "metrics-listen": { type: "string" },
  grace: { type: "string", default: String(DEFAULT_GRACE_MS / 1000) },
  help: { type: "boolean", short: "h" },
} as const satisfies ParseArgsConfig["options"];

/** @throws Error - usage error, one line; returns nothing for `--help`. */
export function parseOptions(argv: readonly string[]): Options | undefined {
  const values = read(argv);
  if (values.help) return undefined;
  const { listen, "tls-cert": cert, "tls-key": key, "client-ca": clientCa } = values;
  const metricsListen = values["metrics-listen"];
  const hasUnix = listen.map(parseAddress).some((address) => address.path !== undefined);
  if ((cert === undefined) !== (key === undefined)) throw new Error("--tls-cert and --tls-key go together");
  if (clientCa !== undefined && cert === undefined)
    throw new Error("--client-ca needs --tls-cert and --tls-key");
  if (hasUnix && cert !== undefined) {
    throw new Error("TLS is for HOST:PORT; a unix: socket is guarded by the permissions of its folder");
  }
  if (new Set(listen).size !== listen.length) throw new Error("--listen names the same address twice");
  const seconds = values.grace.trim() === "" ? NaN : Number(values.grace);
  if (!(seconds >= 0 && seconds < Infinity)) throw new Error(`"${values.grace}" is not a number of seconds`);
  const options: Options = { listen, graceMs: seconds * 1000 };
  if (metricsListen !== undefined) {
    parseMetricsAddress(metricsListen);
    options.metricsListen = metricsListen;
  }
  if (cert !== undefined && key !== undefined) {
    options.tls = { cert, key, ...(clientCa !== undefined && { clientCa }) };
  }
  return options;
}

function read(argv: readonly string[]) {
  try {
    return parseArgs({ args: [...argv], options: KNOWN }).values;
  } catch (problem) {
    // Node explains what else one may have meant, in further sentences and lines.
    const text = (problem as Error).message;
    throw new Error(
      text.startsWith("Unknown option") ? text.replace(/\. .*/s, "") : text.replace(/\n.*/s, ""),
    );
  }
}
