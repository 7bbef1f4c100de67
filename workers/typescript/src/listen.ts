/** Listening addresses, sockets and TLS files, checked before gRPC uses them. */

import { X509Certificate } from "node:crypto";
import { existsSync, readFileSync, statSync, unlinkSync } from "node:fs";
import { connect, createServer, isIPv6 } from "node:net";
import { dirname } from "node:path";
import { createSecureContext } from "node:tls";
import { getSystemErrorMap } from "node:util";

import { ServerCredentials } from "@grpc/grpc-js";

export const DEFAULT_LISTEN = "127.0.0.1:50051";

/** Size of sun_path on Linux, 108, less the terminating zero. */
const MAX_UNIX_PATH_BYTES = 107;

const PROBE_TIMEOUT_MS = 1000;

/** The worker cannot start; the text has the reason. */
export class StartError extends Error {}

/** HOST:PORT, or with `path` a unix socket. */
export interface Address {
  /** Without brackets. */
  host: string;
  /** 0: any free one. */
  port: number;
  path?: string;
}

/** PEM files. With `clientCa` clients need a certificate of that CA. */
export interface Tls {
  cert: string;
  key: string;
  clientCa?: string;
}

/** Writes an address as `--listen` takes it, and as gRPC does. */
export function addressText({ host, port, path }: Address): string {
  if (path !== undefined) return `unix:${path}`;
  return isIPv6(host) ? `[${host}]:${port}` : `${host}:${port}`;
}

/** @throws StartError - the text is none of `HOST:PORT`, `[IPV6]:PORT` and `unix:PATH`. */
export function parseAddress(text: string): Address {
  if (text.startsWith("unix:")) {
    const path = text.slice("unix:".length).replace(/^\/+/, "/");
    if (path === "") throw new StartError(`"${text}" has no path: unix:PATH is expected`);
    if (Buffer.byteLength(path) > MAX_UNIX_PATH_BYTES) {
      const limit = `a unix socket's path has at most ${MAX_UNIX_PATH_BYTES} bytes`;
      throw new StartError(`"${text}" is too long: ${limit}`);
    }
    return { host: "", port: 0, path };
  }
  const found = /^(?:\[(?<ipv6>[\w.%]*:[\w.%:]*)\]|(?<host>[\w.-]+)):(?<port>[0-9]{1,5})$/.exec(text)?.groups;
  if (found === undefined || Number(found.port) > 65535) {
    throw new StartError(`"${text}" is not an address: HOST:PORT, [IPV6]:PORT or unix:PATH is expected`);
  }
  return { host: found.ipv6 ?? found.host ?? "", port: Number(found.port) };
}

/**
 * Makes sure that an address can be bound; removes a stale socket file.
 *
 * @throws StartError - it is in use or unusable.
 */
export async function claim(address: Address): Promise<void> {
  const { path } = address;
  if (path === undefined) return claimPort(address);
  const text = addressText(address);
  if (!existsSync(dirname(path))) throw new StartError(`${text}: there is no folder ${dirname(path)}`);
  const file = statSync(path, { throwIfNoEntry: false });
  if (file === undefined) return;
  if (!file.isSocket()) throw new StartError(`${text}: the file exists and is not a socket`);
  const problem = await probe(path);
  if (problem === undefined) throw new StartError(`${text}: Address already in use`);
  if (problem.code !== "ECONNREFUSED") throw startError(address, problem);
  unlinkSync(path);
}

/** Says `ADDRESS: Address already in use` and the like, in the words of the system. */
export function startError(address: Address, problem: NodeJS.ErrnoException): StartError {
  const words = getSystemErrorMap().get(problem.errno ?? 0)?.[1] ?? problem.message;
  return new StartError(`${addressText(address)}: ${words.charAt(0).toUpperCase()}${words.slice(1)}`);
}

/** gRPC wraps what the system said in words of its own, so the port is tried without it first. */
function claimPort(address: Address): Promise<void> {
  const { host, port } = address;
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once("error", (problem) => reject(startError(address, problem)));
    server.listen({ host, port, exclusive: true }, () => server.close(() => resolve()));
  });
}

/** Returns what is wrong with a socket; nothing if somebody listens on it. */
function probe(path: string): Promise<NodeJS.ErrnoException | undefined> {
  return new Promise((resolve) => {
    const socket = connect(path);
    const done = (problem?: NodeJS.ErrnoException): void => {
      socket.destroy();
      resolve(problem);
    };
    socket.once("connect", () => done());
    socket.once("error", done);
    socket.setTimeout(PROBE_TIMEOUT_MS, () => done()); // its queue is full, so somebody is there
  });
}

/**
 * Returns the credentials of the files.
 *
 * @throws StartError - a file cannot be read, is not PEM, or key and certificate do not match.
 */
export function credentials({ cert, key, clientCa }: Tls): ServerCredentials {
  const pair = { private_key: read(key), cert_chain: read(cert) };
  const ca = clientCa === undefined ? null : read(clientCa);
  if (/^-----BEGIN ENCRYPTED|^Proc-Type:.*ENCRYPTED/m.test(pair.private_key.toString())) {
    throw new StartError(`${key}: the key is encrypted; it is to be stored without a password`);
  }
  try {
    createSecureContext({ key: pair.private_key, cert: pair.cert_chain });
  } catch (problem) {
    const words = (problem as Error).message;
    throw new StartError(`${cert} and ${key} are not a PEM certificate and its key: ${words}`);
  }
  try {
    // A TLS context takes anything, for an authority that has signed no one.
    if (ca !== null) new X509Certificate(ca.toString());
  } catch {
    throw new StartError(`${clientCa} holds no PEM certificate`);
  }
  return ServerCredentials.createSsl(ca, [pair], ca !== null);
}

function read(file: string): Buffer {
  try {
    return readFileSync(file);
  } catch (problem) {
    const { errno, message } = problem as NodeJS.ErrnoException;
    throw new StartError(`${file}: ${getSystemErrorMap().get(errno ?? 0)?.[1] ?? message}`);
  }
}
