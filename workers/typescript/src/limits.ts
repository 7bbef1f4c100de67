/** The bounds of a worker, for all its connections together. */

import { MAX_KEPT_PARAMETERS_BYTES, MAX_RECEIVED_BYTES, MAX_RPCS, Store } from "./store.js";
import { Turns, type Client } from "./turns.js";

export class Limits {
  readonly turns = new Turns();
  readonly parameters = new Store("bytes of parameters", MAX_KEPT_PARAMETERS_BYTES);
  readonly received = new Store("bytes of requests", MAX_RECEIVED_BYTES);
  readonly rpcs = new Store("open calls", MAX_RPCS);

  /** Returns the connection of a call; of a unix socket, which has no name for it, the call itself. */
  client(call: { getPeer(): string }): Client {
    const peer = call.getPeer();
    return this.turns.client(/:\d+$/.test(peer) ? peer : call);
  }

  /** Returns the connection of that peer, if it has had an RPC. */
  known(peer: string): Client | undefined {
    return this.turns.known(peer);
  }
}
