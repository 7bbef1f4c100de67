/** What every admission request has, as types. Of the objects in it no more than their metadata is known here. */

/** Any Kubernetes object; `review.objectAs<Pod>()` sees it as one of a kind. */
export interface KubernetesObject {
  apiVersion: string;
  kind: string;
  metadata: ObjectMeta;
  // Which fields there are is up to the kind.
  [field: string]: any;
}

export interface ObjectMeta {
  name?: string;
  generateName?: string;
  namespace?: string;
  uid?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  deletionTimestamp?: string;
  [field: string]: any;
}

export interface GroupVersionKind {
  group: string;
  version: string;
  kind: string;
}

export interface GroupVersionResource {
  group: string;
  version: string;
  resource: string;
}

export interface UserInfo {
  username?: string;
  uid?: string;
  groups?: string[];
  extra?: Record<string, string[]>;
}

/** `admission.k8s.io/v1` AdmissionRequest. */
export interface AdmissionRequest {
  uid?: string;
  kind?: GroupVersionKind;
  resource?: GroupVersionResource;
  subResource?: string;
  requestKind?: GroupVersionKind;
  requestResource?: GroupVersionResource;
  requestSubResource?: string;
  name?: string;
  namespace?: string;
  operation?: "CREATE" | "UPDATE" | "DELETE" | "CONNECT";
  userInfo?: UserInfo;
  object?: KubernetesObject | null;
  oldObject?: KubernetesObject | null;
  dryRun?: boolean;
  options?: Record<string, unknown> | null;
}
