/**
 * Parameters of policies: prepared once for each value, and shared by the calls that have it.
 *
 * Source: protos/README.md, section Parameters.
 */

import { textOf } from "./answer.js";
import { logFailure } from "./log.js";
import type { Parameters } from "./messages.js";
import type { Policy } from "./policy.js";
import { decode, type Review } from "./review.js";

/** Highest id of parameters of a stream. */
export const MAX_ID = 256;

/** Limit of the JSON of one value. */
export const MAX_PARAMETERS_BYTES = 64 * 1024;

/** Prepared values of a policy that are kept: those that were used last. */
export const MAX_PREPARED = 1024;

/** Of their JSON together: the prepared values take several times as much, and a namespace can change its own. */
export const MAX_PREPARED_BYTES = 4 * 1024 * 1024;

/** The JSON of no parameters. */
export const NONE: Buffer = Buffer.alloc(0);

/** A call cannot be evaluated with its parameters; the message is for the gateway. */
export class ParametersRefused extends Error {
  /** What the policy has thrown, until it is logged. */
  thrown: { problem: unknown } | undefined;
}

/** The prepared parameters of one policy by their JSON; of refused parameters the reason. */
export class PreparedParameters {
  readonly #values = new Map<string, unknown>();
  /** The length of the JSON of all. */
  #bytes = 0;

  get size(): number {
    return this.#values.size;
  }

  /**
   * Returns what `prepare` of the policy makes of the JSON; empty stands for `{}`. A failure is logged with the first
   * review that has it.
   *
   * @throws ParametersRefused - the policy takes no parameters, they are no JSON object, or `prepare` failed.
   */
  get(policy: Policy, review: Review, json: Buffer): unknown {
    const value = this.#find(policy, json);
    if (!(value instanceof ParametersRefused)) return value;
    if (value.thrown !== undefined) logFailure(policy, review, value.thrown.problem);
    value.thrown = undefined;
    throw value;
  }

  /** Returns why no call of the policy can be evaluated with the JSON; empty if calls can. */
  problem(policy: Policy, json: Buffer): string {
    if (json.length > MAX_PARAMETERS_BYTES) return tooManyBytes(json);
    if (json.length === 0 && policy.parameters === undefined) return "";
    const value = this.#find(policy, json);
    return value instanceof ParametersRefused ? value.message : "";
  }

  #find(policy: Policy, json: Buffer): unknown {
    const key = json.toString("latin1");
    const values = this.#values;
    const value = values.has(key) ? values.get(key) : prepare(policy, json);
    // The last used are the last of the Map.
    if (!values.delete(key)) this.#bytes += key.length;
    values.set(key, value);
    while (values.size > MAX_PREPARED || this.#bytes > MAX_PREPARED_BYTES) {
      const oldest = values.keys().next().value!;
      values.delete(oldest);
      this.#bytes -= oldest.length;
    }
    return value;
  }
}

/** Returns the text of the refusal of a value that is too long. */
export function tooManyBytes(json: Buffer): string {
  return `the parameters have ${json.length} bytes, expected at most ${MAX_PARAMETERS_BYTES}`;
}

function prepare(policy: Policy, json: Buffer): unknown {
  if (policy.parameters === undefined) {
    return new ParametersRefused(`policy "${policy.name}" takes no parameters`);
  }
  let parameters: object;
  try {
    parameters = json.length === 0 ? {} : decode("parameters", json);
  } catch (problem) {
    return new ParametersRefused((problem as Error).message);
  }
  try {
    return policy.prepare(parameters);
  } catch (problem) {
    const text = textOf(problem);
    const refused = new ParametersRefused(
      `the parameters of policy "${policy.name}" cannot be used: ${text}`,
    );
    refused.thrown = { problem };
    return refused;
  }
}

/** The parameters of one stream. */
export class StreamParameters {
  readonly #byId = new Map<number, Buffer>([[0, NONE]]);
  /** The length of all. */
  bytes = 0;

  /** Returns the JSON with that id, empty for the id 0; undefined if there is none. */
  get(id: number): Buffer | undefined {
    return this.#byId.get(id);
  }

  /** Takes the parameters of a batch; returns what is wrong with them, if anything is. */
  take(sent: readonly Parameters[]): string | undefined {
    for (const { id, json } of sent) {
      if (id === 0 || id > MAX_ID) return `parameters have the id ${id}, expected 1 to ${MAX_ID}`;
      if (json.length > MAX_PARAMETERS_BYTES) {
        return `parameters have ${json.length} bytes, expected at most ${MAX_PARAMETERS_BYTES}`;
      }
      // A copy: the value is a part of the message, which would be kept whole.
      const own = Buffer.allocUnsafeSlow(json.length);
      json.copy(own);
      this.bytes += json.length - (this.#byId.get(id)?.length ?? 0);
      this.#byId.set(id, own);
    }
    return undefined;
  }
}
