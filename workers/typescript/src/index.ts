/** Write admission policies in TypeScript and serve them to admission-gateway; README.md shows a whole worker. */

export { Denied, type Cause, type DenialOptions } from "./denied.js";
export type { Operation } from "./diff.js";
export type {
  AdmissionRequest,
  GroupVersionKind,
  GroupVersionResource,
  KubernetesObject,
  ObjectMeta,
  UserInfo,
} from "./kubernetes.js";
export { StartError, type Tls } from "./listen.js";
export type { PolicyFunction, PolicyOptions, PrepareFunction } from "./policy.js";
export { Review } from "./review.js";
export { PolicyServer } from "./server.js";
