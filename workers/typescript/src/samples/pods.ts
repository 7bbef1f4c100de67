/**
 * Finding the pod in an object: a Pod itself, or the template in a workload. So a policy written for containers holds
 * for Deployments and CronJobs too, where its message reaches the person who made them.
 */

import type { Review } from "../index.js";

const TEMPLATE = ["spec", "template", "spec"];

const SPECS = new Map([
  ["/Pod", ["spec"]],
  ["/ReplicationController", TEMPLATE],
  ["apps/Deployment", TEMPLATE],
  ["apps/ReplicaSet", TEMPLATE],
  ["apps/StatefulSet", TEMPLATE],
  ["apps/DaemonSet", TEMPLATE],
  ["batch/Job", TEMPLATE],
  ["batch/CronJob", ["spec", "jobTemplate", "spec", "template", "spec"]],
]);

/** Other subresources have no spec (status) or other kinds of object (scale, exec). */
const SUB_RESOURCES = ["", "ephemeralcontainers", "resize"];

export const LISTS = ["containers", "initContainers", "ephemeralContainers"] as const;

/** Of a container what the samples look at; null is what a client may have sent. */
export interface Container {
  name?: string | null;
  image?: string | null;
  imagePullPolicy?: string;
  resources?: Resources | null;
  securityContext?: { privileged?: boolean } | null;
}

interface Resources {
  requests?: Record<string, string> | null;
  limits?: Record<string, string> | null;
}

export interface PodSpec {
  containers?: Container[] | null;
  initContainers?: Container[] | null;
  ephemeralContainers?: Container[] | null;
  hostNetwork?: boolean;
  hostPID?: boolean;
  hostIPC?: boolean;
}

export interface FoundPod {
  /** Prefix of field paths, such as `spec` or `spec.template.spec`. */
  path: string;
  /** A part of the review's object: a change of it changes the object. */
  spec: PodSpec;
  /** Whether the object is a Pod, whose spec is mostly immutable. */
  isPod: boolean;
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * Returns the pod that a request creates or updates; nothing if it does not. Nothing too for an object that is on its
 * way out: a policy that denied its updates would keep it from ever going.
 */
export function findPod(review: Review): FoundPod | undefined {
  if (review.operation !== "CREATE" && review.operation !== "UPDATE") return undefined;
  const keys = SPECS.get(`${review.kind.group ?? ""}/${review.kind.kind ?? ""}`);
  if (keys === undefined || !SUB_RESOURCES.includes(review.subResource)) return undefined;
  let spec: unknown = review.object;
  if (!isObject(spec) || review.object?.metadata?.deletionTimestamp) return undefined;
  for (const key of keys) {
    spec = isObject(spec) ? spec[key] : undefined;
  }
  return isObject(spec) ? { path: keys.join("."), spec, isPod: keys.length === 1 } : undefined;
}

/** Returns the containers in some lists, in all three where none is named, each with where it stands. */
export function containersOf(
  pod: FoundPod,
  lists: readonly (keyof PodSpec & (typeof LISTS)[number])[] = LISTS,
): { path: string; container: Container }[] {
  return lists.flatMap((list) =>
    (pod.spec[list] ?? []).map((container, index) => ({ path: `${pod.path}.${list}[${index}]`, container })),
  );
}
