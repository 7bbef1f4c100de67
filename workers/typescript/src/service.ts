/** The methods of PolicyWorker, and their gRPC registration. Messages come and go as bytes. */

import {
  status,
  type handleBidiStreamingCall,
  type handleUnaryCall,
  type MethodDefinition,
  type Server,
} from "@grpc/grpc-js";

import { ALLOWED, failure, unknownPolicy, type Outcome } from "./answer.js";
import { afterPromises, begin, RunningCall } from "./evaluation.js";
import {
  checkParametersRequest,
  checkParametersResponse,
  listPoliciesResponse,
  reviewRequest,
  reviewResponse,
  SERVICE,
  type Decoder,
} from "./messages.js";
import { MAX_PARAMETERS_BYTES, tooManyBytes } from "./parameters.js";
import type { Policy } from "./policy.js";
import { Review } from "./review.js";
import { Limits } from "./limits.js";
import { ReviewStream } from "./stream.js";
import type { Client, Work } from "./turns.js";

/** Same limit as for a stream. */
const MAX_UNARY_IN_FLIGHT = 4096;

const ALLOWED_BYTES = reviewResponse.encode(ALLOWED.response!);

/** Returns the definition of a method that takes and gives bytes. */
export function bytesMethod(
  service: string,
  method: string,
  streams: { in?: boolean; out?: boolean } = {},
): MethodDefinition<Buffer, Buffer> {
  const same = (bytes: Buffer): Buffer => bytes;
  return {
    path: `/${service}/${method}`,
    requestStream: streams.in ?? false,
    responseStream: streams.out ?? false,
    requestSerialize: same,
    requestDeserialize: same,
    responseSerialize: same,
    responseDeserialize: same,
  };
}

/** The policies of one running server, and the calls that are open. */
export class PolicyWorker {
  readonly #policies: ReadonlyMap<string, Policy>;
  readonly #streams = new Set<ReviewStream>();
  readonly #limits: Limits;
  #unary = 0;
  #isDraining = false;
  #idle: (() => void) | undefined;

  constructor(policies: ReadonlyMap<string, Policy>, limits = new Limits()) {
    this.#policies = policies;
    this.#limits = limits;
  }

  addTo(server: Server): void {
    server.addService(
      {
        ListPolicies: bytesMethod(SERVICE, "ListPolicies"),
        CheckParameters: bytesMethod(SERVICE, "CheckParameters"),
        Review: bytesMethod(SERVICE, "Review"),
        ReviewStream: bytesMethod(SERVICE, "ReviewStream", { in: true, out: true }),
      },
      {
        ListPolicies: this.#listPolicies,
        CheckParameters: this.#checkParameters,
        Review: this.#review,
        ReviewStream: this.#reviewStream,
      },
    );
  }

  /** Sends the drain notice on all open and later streams. */
  drain(): void {
    this.#isDraining = true;
    for (const stream of this.#streams) stream.drain();
  }

  /** Resolves when no Review and no ReviewStream is open. */
  idle(): Promise<void> {
    return new Promise((resolve) => {
      this.#idle = resolve;
      this.#left();
    });
  }

  #left(): void {
    if (this.#unary === 0 && this.#streams.size === 0) this.#idle?.();
  }

  readonly #listPolicies: handleUnaryCall<Buffer, Buffer> = (_, callback) => {
    const policies = [...this.#policies.values()].map(
      ({ name, description, mutating, version, parameters }) => ({
        name,
        description,
        mutating,
        version,
        ...(parameters !== undefined && { parametersSchema: parameters }),
      }),
    );
    callback(null, listPoliciesResponse.encode({ policies }));
  };

  /** Prepares the parameters as a call would. */
  readonly #checkParameters: handleUnaryCall<Buffer, Buffer> = (call, callback) => {
    const found = this.#find("CheckParametersRequest", checkParametersRequest, call.request);
    if (!Array.isArray(found)) return callback({ code: found.error!.code, details: found.error!.message });
    const [{ parameters }, policy] = found;
    const problem = policy.prepared.problem(policy, parameters);
    // Cut as the text of a call is.
    const { message } = failure(status.INVALID_ARGUMENT, problem).error!;
    callback(null, checkParametersResponse.encode({ problem: message }));
  };

  readonly #review: handleUnaryCall<Buffer, Buffer> = (call, callback) => {
    let running: RunningCall | undefined;
    let work: Work | undefined;
    let isAnswered = false;
    const { turns, received } = this.#limits;
    const client = this.#limits.client(call);
    const bytes = call.request.length;
    const part = { client, bytes: 0, end: (outcome: Outcome): void => fail(outcome) };
    const stop = (): void => {
      if (work !== undefined) turns.remove(work);
      if (running === undefined) received.set(part, 0);
      running?.cancel();
      running = work = undefined;
    };
    this.#unary++;
    // gRPC reports "cancelled" after every end, also after a successful one.
    call.on("cancelled", () => {
      isAnswered = true;
      stop();
      this.#unary--;
      this.#left();
    });
    const answer = ({ response, error }: Outcome): void => {
      if (isAnswered) return;
      isAnswered = true;
      running = undefined;
      stop();
      if (error !== undefined) callback({ code: error.code, details: error.message });
      else callback(null, response === ALLOWED.response ? ALLOWED_BYTES : reviewResponse.encode(response!));
    };
    const fail = (outcome: Outcome): void => {
      running?.cancel();
      answer(outcome);
    };
    const [traceparent] = call.metadata.get("traceparent");
    const begin = (): void => {
      work = undefined;
      const outcome = this.#begin(call.request, client, call.getDeadline(), traceparent, answer);
      if (outcome instanceof RunningCall) {
        running = outcome;
        turns.count(outcome, client, bytes, () => received.set(part, 0));
        afterPromises(() => outcome.watchDeadline());
      } else {
        answer(outcome);
      }
    };
    received.set(part, bytes);
    turns.startSlice();
    if (turns.mayBegin(client, bytes)) return begin();
    const deadline = performance.now() + (Number(call.getDeadline()) - Date.now());
    work = { client, bytes, deadline, isReady: () => true, begin };
    turns.add(work);
  };

  #begin(
    message: Buffer,
    client: Client,
    deadline: Date | number,
    traceparent: unknown,
    finish: (outcome: Outcome) => void,
  ): Outcome | RunningCall {
    const found = this.#find("ReviewRequest", reviewRequest, message);
    if (!Array.isArray(found)) return found;
    const [request, policy] = found;
    if (this.#unary > MAX_UNARY_IN_FLIGHT) {
      return failure(status.RESOURCE_EXHAUSTED, `${MAX_UNARY_IN_FLIGHT} calls are in flight`);
    }
    const { parameters } = request;
    if (parameters.length > MAX_PARAMETERS_BYTES) {
      return failure(status.INVALID_ARGUMENT, tooManyBytes(parameters));
    }
    const review = new Review(request.admissionRequest, request.namespaceObject, {
      deadline: performance.now() + (Number(deadline) - Date.now()),
      mutating: policy.mutating,
      traceparent,
      client,
    });
    return begin(policy, review, finish, parameters);
  }

  /** Returns the request and its policy, or why there is none. */
  #find<Message extends { policy: string }>(
    name: string,
    { decode }: Decoder<Message>,
    message: Buffer,
  ): [Message, Policy] | Outcome {
    let request;
    try {
      request = decode(message);
    } catch (problem) {
      return failure(status.INVALID_ARGUMENT, `not a ${name}: ${(problem as Error).message}`);
    }
    const policy = this.#policies.get(request.policy);
    return policy === undefined ? unknownPolicy(request.policy, this.#policies) : [request, policy];
  }

  readonly #reviewStream: handleBidiStreamingCall<Buffer, Buffer> = (call) => {
    const stream = new ReviewStream(call, this.#policies, this.#limits, () => {
      this.#streams.delete(stream);
      this.#left();
    });
    this.#streams.add(stream);
    if (this.#isDraining) stream.drain();
  };
}
