/**
 * The program of a worker: command line, signals, exit status. Errors are one line on stderr. The first SIGTERM or
 * SIGINT drains, the second exits immediately.
 */

import { constants } from "node:os";

import { logUncaught } from "./log.js";
import { METRICS_PATH } from "./metrics.js";
import { HELP, parseOptions, type Options } from "./options.js";
import type { PolicyServer } from "./server.js";

/** Runs the worker and ends the process. */
export async function main(server: PolicyServer, argv: readonly string[]): Promise<void> {
  let options: Options | undefined;
  try {
    options = parseOptions(argv);
  } catch (problem) {
    exit(2, (problem as Error).message);
  }
  if (options === undefined) {
    process.stdout.write(HELP);
    exit(0);
  }
  let addresses: string[];
  try {
    addresses = await server.start(options.listen, options.tls, options.metricsListen);
  } catch (problem) {
    exit(1, (problem as Error).message);
  }
  // An unhandled rejection of a policy must not end the worker.
  process.on("uncaughtException", logUncaught);
  // The reader of stderr may have closed it; without this, each log line would cause an unhandled error.
  process.stderr.on("error", () => undefined);
  stopOnSignals(() => void server.stop(options.graceMs).then(() => exit(0)));
  if (server.metricsAddress !== "") {
    console.error(`worker: metrics on http://${server.metricsAddress}${METRICS_PATH}`);
  }
  console.error(`worker: serving ${server.policies.size} policies on ${addresses.join(", ")}`);
}

function stopOnSignals(stop: () => void): void {
  let isStopping = false;
  for (const signal of ["SIGTERM", "SIGINT"] as const) {
    process.on(signal, () => {
      if (isStopping) process.exit(128 + constants.signals[signal]);
      isStopping = true;
      stop();
    });
  }
}

function exit(code: number, problem?: string): never {
  if (problem !== undefined) console.error(`worker: ${problem}`);
  process.exit(code);
}
