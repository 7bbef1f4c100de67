/** Sample policies, to read and to run (`main.ts`). */

import { PolicyServer } from "../index.js";
import { fails, sleeps } from "./misbehaving.js";
import { alwaysPullImages, defaultResources, injectSidecar, teamFromNamespace } from "./mutating.js";
import {
  denyLatestTag,
  denyPrivileged,
  limitReplicas,
  maxReplicas,
  protectBusy,
  REPLICAS_SCHEMA,
  requireLabels,
  warnNoMemoryLimit,
} from "./validating.js";

/** Serves all of them. */
export const server = new PolicyServer();

server.policy("require-labels", { description: "Every object names its team in a label." }, requireLabels);
server.policy(
  "deny-latest-tag",
  { description: "Images are named by a digest or by a tag other than latest." },
  denyLatestTag,
);
server.policy(
  "deny-privileged",
  { description: "Pods do not run privileged and do not share the node's namespaces." },
  denyPrivileged,
);
server.policy(
  "always-pull-images",
  {
    mutating: true,
    description:
      "Images are pulled at every start, so that a cached private image is not free for all on its node.",
  },
  alwaysPullImages,
);
server.policy(
  "inject-sidecar",
  { mutating: true, description: "Pods get a container that ships their logs." },
  injectSidecar,
);
server.policy(
  "default-resources",
  { mutating: true, description: "Containers that ask for no CPU or memory get a small request." },
  defaultResources,
);
server.policy(
  "warn-no-memory-limit",
  { description: "Containers without a memory limit are let through with a warning." },
  warnNoMemoryLimit,
);
server.policy(
  "protect-busy",
  {
    description:
      "Objects with the annotation samples.example/busy are not deleted; the client may try again later.",
  },
  protectBusy,
);
server.policy(
  "team-from-namespace",
  { mutating: true, description: "Objects without a team label get that of their Namespace." },
  teamFromNamespace,
);
server.policy(
  "limit-replicas",
  {
    description: "Objects have at most max replicas.",
    parameters: REPLICAS_SCHEMA,
    prepare: maxReplicas,
  },
  limitReplicas,
);
server.policy(
  "sleeps",
  { description: "Answers too late for anyone: after a minute, or when it is cancelled." },
  sleeps,
);
server.policy("fails", { description: "Has a bug that shows on every review." }, fails);
