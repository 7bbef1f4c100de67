/**
 * Applies a JSON Patch as the gateway does (json_patch/patch.py of the Python SDK), which is how kube-apiserver does: `replace` of an
 * absent member adds it, `add` without a value adds null, indices may be negative, `copy` of an absent member writes
 * null, `test` of an absent member against null passes. rfc6902 and fast-json-patch have other rules, by which a policy would
 * get another object than the one that the gateway sends.
 */

import { same, type Operation } from "./diff.js";
import { clone } from "./json.js";

const MAX_OPERATIONS = 10_000;

type Container = Record<string, unknown> | unknown[];

/**
 * Returns `document`, which is changed in place, after the operations. Their values become part of it.
 *
 * @throws Error - an operation does not apply.
 */
export function applyPatch(document: unknown, operations: readonly Operation[]): unknown {
  if (operations.length > MAX_OPERATIONS) throw new Error(`has ${operations.length} operations`);
  return operations.reduce(apply, document);
}

function apply(document: unknown, operation: Operation): unknown {
  const { op, path, value = null } = operation;
  switch (op) {
    case "add":
      add(document, path, value);
      break;
    case "remove":
      remove(document, path);
      break;
    case "replace":
      if (path === "") return value;
      replace(document, path, value);
      break;
    case "move":
      add(document, path, remove(document, operation.from));
      break;
    case "copy":
      add(document, path, clone(find(document, operation.from)));
      break;
    case "test":
      if (!same(path === "" ? document : find(document, path), value))
        throw new Error(`test of ${path} failed`);
      break;
    default:
      throw new Error(`unexpected kind: ${String(op)}`);
  }
  return document;
}

function add(document: unknown, path: string, value: unknown): void {
  const [container, token] = locate(document, path);
  if (!Array.isArray(container)) set(container, token, value);
  else if (token === "-") container.push(value);
  else container.splice(indexOf(token, container.length + 1), 0, value);
}

function replace(document: unknown, path: string, value: unknown): void {
  const [container, token] = locate(document, path);
  if (!Array.isArray(container)) set(container, token, value);
  else container[indexOf(token, container.length)] = value;
}

function remove(document: unknown, path: string | undefined): unknown {
  const [container, token] = locate(document, path);
  if (Array.isArray(container)) return container.splice(indexOf(token, container.length), 1)[0];
  if (!Object.hasOwn(container, token)) throw new Error(`cannot remove ${path}: there is no such member`);
  const value = container[token];
  delete container[token];
  return value;
}

function find(document: unknown, path: string | undefined): unknown {
  const [container, token] = locate(document, path);
  return member(container, token) ?? null;
}

/** Returns the object or array that contains the target of `path`, and the last part of `path`. */
function locate(document: unknown, path: string | undefined): [Container, string] {
  const parts = path?.split("/").slice(1) ?? [];
  const tokens = parts.map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
  const last = tokens.pop();
  let node = document;
  for (const token of tokens) node = isContainer(node) ? member(node, token) : undefined;
  if (last === undefined || !isContainer(node)) throw new Error(`path ${path} does not lead to a container`);
  return [node, last];
}

function member(container: Container, token: string): unknown {
  if (Array.isArray(container)) return container[indexOf(token, container.length)];
  return Object.hasOwn(container, token) ? container[token] : undefined;
}

function isContainer(value: unknown): value is Container {
  return typeof value === "object" && value !== null;
}

/** Defines the member, since an assignment to `__proto__` would not. */
function set(container: Record<string, unknown>, key: string, value: unknown): void {
  Object.defineProperty(container, key, { value, writable: true, enumerable: true, configurable: true });
}

function indexOf(token: string, length: number): number {
  if (token.length > 20 || !/^[+-]?[0-9]+$/.test(token)) throw new Error(`${token} is not an array index`);
  const index = Number(token) < 0 ? Number(token) + length : Number(token);
  if (index < 0 || index >= length) throw new Error(`index ${token} is out of range`);
  return index;
}
