/** `grpc.health.v1.Health`: Check and Watch. The messages have one field each and are as fixed as the protocol. */

import { status, type handleServerStreamingCall, type handleUnaryCall, type Server } from "@grpc/grpc-js";
import protobuf from "protobufjs";

import { decoder, encoder, SERVICE } from "./messages.js";
import { bytesMethod } from "./service.js";

const HEALTH = "grpc.health.v1.Health";

const SERVING = 1;
const NOT_SERVING = 2;
const SERVICE_UNKNOWN = 3;

const schema = protobuf.parse(`
  syntax = "proto3";
  package grpc.health.v1;
  message HealthCheckRequest { string service = 1; }
  message HealthCheckResponse { int32 status = 1; }
`).root;

const checkRequest = decoder<{ service: string }>(schema, "grpc.health.v1.HealthCheckRequest");
const checkResponse = encoder<{ status: number }>(schema, "grpc.health.v1.HealthCheckResponse");

/** Says SERVING for the whole server and for PolicyWorker, until `stopServing`. */
export class Health {
  readonly #names = new Set(["", SERVICE]);
  readonly #watches = new Map<{ write(message: Buffer): unknown; end(): void }, string>();
  #status = SERVING;

  addTo(server: Server): void {
    server.addService(
      { Check: bytesMethod(HEALTH, "Check"), Watch: bytesMethod(HEALTH, "Watch", { out: true }) },
      { Check: this.#check, Watch: this.#watch },
    );
  }

  /** Says NOT_SERVING from now on, also to those who watch. */
  stopServing(): void {
    this.#status = NOT_SERVING;
    for (const [watch, name] of this.#watches) watch.write(this.#say(name));
  }

  /** Ends the watches, which never end by themselves. */
  endWatches(): void {
    for (const watch of this.#watches.keys()) watch.end();
  }

  #say(name: string): Buffer {
    return checkResponse.encode({ status: this.#names.has(name) ? this.#status : SERVICE_UNKNOWN });
  }

  readonly #check: handleUnaryCall<Buffer, Buffer> = (call, callback) => {
    const name = serviceIn(call.request);
    if (name === undefined) callback({ code: status.INVALID_ARGUMENT, details: "not a HealthCheckRequest" });
    else if (!this.#names.has(name)) callback({ code: status.NOT_FOUND, details: "unknown service" });
    else callback(null, this.#say(name));
  };

  readonly #watch: handleServerStreamingCall<Buffer, Buffer> = (call) => {
    const name = serviceIn(call.request);
    if (name === undefined) {
      call.emit("error", { code: status.INVALID_ARGUMENT, details: "not a HealthCheckRequest" });
      return;
    }
    this.#watches.set(call, name);
    call.on("cancelled", () => this.#watches.delete(call));
    call.write(this.#say(name));
  };
}

function serviceIn(message: Buffer): string | undefined {
  try {
    return checkRequest.decode(message).service;
  } catch {
    return undefined;
  }
}
