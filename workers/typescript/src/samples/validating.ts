/** Sample policies that allow or deny. */

import { Denied, type Cause, type Review } from "../index.js";
import { containersOf, findPod, isObject } from "./pods.js";

const REQUIRED_LABELS = ["team"];

const BUSY_ANNOTATION = "samples.example/busy";
const RETRY_AFTER_SECONDS = 10;

const HOST_NAMESPACES = ["hostNetwork", "hostPID", "hostIPC"] as const;

export function protectBusy(review: Review): void {
  if (review.operation !== "DELETE" || review.subResource) return;
  const { name, uid, annotations } = review.oldObject?.metadata ?? {};
  const work = annotations?.[BUSY_ANNOTATION];
  if (!work) return;
  const { group, kind } = review.kind;
  const about = { name: name ?? "", group, kind, uid: uid ?? "" };
  throw new Denied(`metadata.annotations[${BUSY_ANNOTATION}]: busy with ${work}: try again when it is done`, {
    code: 429,
    reason: "TooManyRequests",
    retryAfterSeconds: RETRY_AFTER_SECONDS,
    ...about,
  });
}

export function requireLabels(review: Review): void {
  const found = review.object;
  if (!["CREATE", "UPDATE"].includes(review.operation) || review.subResource || !isObject(found)) return;
  if (found.metadata?.deletionTimestamp) return; // such updates only remove finalizers
  const labels = found.metadata?.labels ?? {};
  deny(
    REQUIRED_LABELS.filter((label) => !labels[label]).map((label) => ({
      message: `label "${label}" is missing: add it`,
      field: `metadata.labels[${label}]`,
      reason: "FieldValueRequired",
    })),
  );
}

export function denyLatestTag(review: Review): void {
  const pod = findPod(review);
  if (pod === undefined) return;
  const causes: Cause[] = [];
  for (const { path, container } of containersOf(pod)) {
    const problem = container.image ? tagProblem(container.image) : "";
    if (!problem) continue;
    causes.push({ message: `image "${container.image}" ${problem}: name a version`, field: `${path}.image` });
  }
  deny(causes);
}

/** Returns the problem of the tag; empty if there is none. */
function tagProblem(image: string): string {
  const at = image.indexOf("@");
  if (at !== -1 && at < image.length - 1) return "";
  const name = at === -1 ? image : image.slice(0, at);
  // A colon before the last slash is the registry's port.
  const last = name.slice(name.lastIndexOf("/") + 1);
  const tag = last.includes(":") ? last.slice(last.indexOf(":") + 1) : "";
  if (!tag) return "has no tag, which means latest";
  return tag === "latest" ? "has the tag latest" : "";
}

export function denyPrivileged(review: Review): void {
  const pod = findPod(review);
  if (pod === undefined) return;
  const causes: Cause[] = HOST_NAMESPACES.filter((field) => pod.spec[field]).map((field) => ({
    message: `${field} shares a namespace of the node: set it to false`,
    field: `${pod.path}.${field}`,
  }));
  for (const { path, container } of containersOf(pod)) {
    if (container.securityContext?.privileged) {
      const message = `container "${container.name ?? ""}" is privileged: set it to false`;
      causes.push({ message, field: `${path}.securityContext.privileged` });
    }
  }
  deny(causes);
}

export function warnNoMemoryLimit(review: Review): void {
  const pod = findPod(review);
  if (pod === undefined) return;
  const unlimited = containersOf(pod)
    .filter(({ container }) => !container.resources?.limits?.memory)
    .map(({ container }) => container.name ?? "");
  for (const name of unlimited) review.warn(`container "${name}" has no memory limit`);
  if (unlimited.length > 0) review.annotate("no-memory-limit", unlimited.join(","));
}

/** Denies for these causes, if there are any: field, problem and what to do of each. */
function deny(causes: Cause[]): void {
  if (causes.length === 0) return;
  throw new Denied(causes.map(({ message, field }) => `${field}: ${message}`).join("; "), { causes });
}

export const REPLICAS_SCHEMA = {
  type: "object",
  properties: { max: { type: "integer", minimum: 0 } },
  additionalProperties: false,
};

/** Prepares the parameters of `limitReplicas`. */
export function maxReplicas({ max = 10 }: { max?: unknown }): number {
  if (!Number.isInteger(max) || (max as number) < 0) {
    throw new Error("max is to be a whole number of at least 0");
  }
  return max as number;
}

export function limitReplicas(review: Review): void {
  const replicas: unknown = review.object?.spec?.replicas;
  const most = review.parameters as number;
  if (Number.isInteger(replicas) && (replicas as number) > most) {
    const message = `${replicas as number} is more than the maximum of ${most}: lower it`;
    deny([{ message, field: "spec.replicas" }]);
  }
}
