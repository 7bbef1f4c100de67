/**
 * Sample policies that change the object. Each leaves alone what it finds as it would have it, so that applying one
 * twice is applying it once: the API server may call a policy again after others have changed the object.
 */

import type { Review } from "../index.js";
import {
  containersOf,
  findPod,
  isObject,
  LISTS,
  type Container,
  type FoundPod,
  type PodSpec,
} from "./pods.js";

const DEFAULT_REQUESTS = { cpu: "100m", memory: "128Mi" };

const SIDECAR: Container = {
  name: "log-shipper",
  image: "registry.example/log-shipper:1.4.2",
  resources: { requests: { cpu: "10m", memory: "32Mi" }, limits: { memory: "64Mi" } },
};

export async function alwaysPullImages(review: Review): Promise<void> {
  const pod = findPod(review);
  if (pod === undefined) return;
  for (const container of newContainers(review, pod)) container.imagePullPolicy = "Always";
}

export function injectSidecar(review: Review): void {
  const pod = findPod(review);
  // A running Pod accepts no further containers, and the API server rejects a Pod without containers.
  if (pod === undefined || (pod.isPod && review.operation !== "CREATE") || !pod.spec.containers?.length)
    return;
  if (containersOf(pod).some(({ container }) => container.name === SIDECAR.name)) return;
  pod.spec.containers.push(SIDECAR);
  review.annotate("sidecar", "log-shipper");
}

export function defaultResources(review: Review): void {
  const pod = findPod(review);
  if (pod === undefined || (pod.isPod && review.operation !== "CREATE")) return;
  for (const { container } of containersOf(pod, ["containers", "initContainers"])) {
    const { requests, limits } = container.resources ?? {};
    // For a limit without a request the API server sets the request to the limit.
    const known = { ...requests, ...limits };
    const missing = Object.entries(DEFAULT_REQUESTS).filter(([name]) => !Object.hasOwn(known, name));
    if (missing.length > 0) {
      const completed = { ...requests, ...Object.fromEntries(missing) };
      container.resources = { ...container.resources, requests: completed };
    }
  }
}

export function teamFromNamespace(review: Review): void {
  const found = review.object;
  if (review.operation !== "CREATE" || review.subResource || !isObject(found)) return;
  const team = review.namespaceObject?.metadata?.labels?.team;
  if (!team || !isObject(found.metadata)) return;
  const { labels } = found.metadata;
  // An explicit patch as an example; setting the label in review.object has the same effect.
  if (labels === undefined || labels === null) {
    review.patch = [{ op: "add", path: "/metadata/labels", value: { team } }];
  } else if (!labels.team) {
    review.patch = [{ op: "add", path: "/metadata/labels/team", value: team }];
  }
}

/** Returns the containers whose pull policy may change: all except existing containers of a Pod. */
function newContainers(review: Review, pod: FoundPod): Container[] {
  const found = containersOf(pod).map(({ container }) => container);
  if (!pod.isPod || review.operation !== "UPDATE") return found;
  const old: PodSpec = review.oldObject?.spec ?? {};
  const known = new Set(LISTS.flatMap((list) => old[list] ?? []).map(({ name }) => name));
  return found.filter(({ name }) => !known.has(name));
}
