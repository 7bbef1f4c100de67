{{/* Annotations of a Helm hook, or of an ordinary object if hooks are off. In: (dict "root" $ "on" EVENTS "weight" N "keepFailed" BOOL) */}}
{{- define "ag.hookAnnotations" -}}
{{- if .root.Values.hooks.enabled }}
helm.sh/hook: {{ .on }}
helm.sh/hook-weight: {{ .weight | quote }}
helm.sh/hook-delete-policy: {{ .keepFailed | ternary "before-hook-creation,hook-succeeded" "before-hook-creation,hook-succeeded,hook-failed" }}
{{- if .keepFailed }}
helm.sh/hook-output-log-policy: hook-failed
{{- end }}
{{- end }}
{{- with merge (dict) .root.Values.hooks.annotations .root.Values.commonAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Metadata of an object that is a hook. In: as above, and "name" NAME */}}
{{- define "ag.hookMetadata" -}}
{{- $annotations := include "ag.hookAnnotations" . | fromYaml -}}
{{- include "ag.metadata" (dict "root" .root "name" (printf "%s-registration" (include "ag.name" .root)) "annotations" $annotations) -}}
{{- end -}}

{{- define "ag.registrationAccount" -}}
{{ include "ag.fullname" . }}-registration
{{- end -}}

{{/* Events of the hooks that register the gateway, and that remove the registration. Without `registration.enabled` an
     upgrade removes it before anything else. */}}
{{- define "ag.registerOn" -}}
post-install,post-upgrade,post-rollback
{{- end -}}
{{- define "ag.unregisterOn" -}}
{{ .Values.registration.enabled | ternary "pre-delete" "pre-delete,pre-upgrade,pre-rollback" }}
{{- end -}}

{{/* The pod of a Job. In: (dict "root" $ "args" LIST "configMap" NAME "account" NAME "volumes" YAML "mounts" YAML). Without
     a configMap it needs no objects that could be missing. */}}
{{- define "ag.jobPod" -}}
{{- $root := .root -}}
metadata:
  labels:
    {{- include "ag.selector" (dict "root" $root "name" (printf "%s-registration" (include "ag.name" $root))) | nindent 4 }}
    {{- with $root.Values.commonLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with merge (dict) $root.Values.hooks.annotations $root.Values.commonAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  restartPolicy: Never
  {{- with include "ag.imagePullSecrets" (dict "root" $root "secrets" $root.Values.imagePullSecrets) }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with $root.Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .account }}
  serviceAccountName: {{ . }}
  {{- end }}
  automountServiceAccountToken: {{ not (empty .account) }}
  enableServiceLinks: false
  {{- with $root.Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $root.Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $root.Values.podSecurityContext }}
  securityContext:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: admission-gateway
      {{- include "ag.gatewayImage" $root | nindent 6 }}
      args:
        {{- range .args }}
        - {{ . | quote }}
        {{- end }}
      {{- with $root.Values.hooks.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $root.Values.securityContext }}
      securityContext:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if .configMap }}
      volumeMounts:
        {{- include "ag.volumeMounts" $root | nindent 8 }}
        {{- with .mounts }}
        {{- . | nindent 8 }}
        {{- end }}
  volumes:
    {{- include "ag.volumes" (dict "root" $root "configMap" .configMap) | nindent 4 }}
    {{- with .volumes }}
    {{- . | nindent 4 }}
    {{- end }}
      {{- end }}
{{- end -}}

{{/* Arguments of `manifests` that make the registration. */}}
{{- define "ag.registerArgs" -}}
{{- $port := .Values.service.port | int -}}
- manifests
- --config=/etc/admission-gateway
- --service={{ .Release.Namespace }}/{{ include "ag.fullname" . }}{{ if ne $port 443 }}:{{ $port }}{{ end }}
- --name={{ include "ag.registrationName" . }}
{{- $excluded := .Values.registration.excludeNamespaces | default list }}
{{- if and .Values.watchdog.enabled .Values.watchdog.namespace (ne .Values.watchdog.namespace .Release.Namespace) }}
{{- $excluded = append $excluded .Values.watchdog.namespace | uniq }}
{{- end }}
{{- range $excluded }}
- --exclude-namespace={{ . }}
{{- end }}
{{- range .Values.registration.include }}
- --include={{ . }}
{{- end }}
{{- if .Values.registration.splitMutating }}
- --split-mutating
{{- end }}
{{- range $key, $value := .Values.registration.annotations }}
- {{ printf "--annotation=%s=%v" $key $value | quote }}
{{- end }}
{{- if ne .Values.tls.mode "SelfManaged" }}
- --ca-file=/etc/admission-gateway-ca/ca.crt
{{- end }}
{{- if eq .Values.tls.mode "CertManager" }}
- --annotation=cert-manager.io/inject-ca-from={{ .Release.Namespace }}/{{ include "ag.tlsSecret" . }}
{{- end }}
- --apply
- --force-conflicts
{{- end -}}

{{- define "ag.caVolume" -}}
{{- if eq .Values.tls.mode "SelfManaged" -}}
{{- else if .Values.tls.caCertificates -}}
- name: ca
  configMap: {name: {{ include "ag.fullname" . }}-ca}
{{- else -}}
# The CA alone: not the key.
- name: ca
  secret: {secretName: {{ include "ag.tlsSecret" . }}, items: [{key: ca.crt, path: ca.crt}]}
{{- end -}}
{{- end -}}

{{- define "ag.caMount" -}}
{{- if ne .Values.tls.mode "SelfManaged" -}}
- {name: ca, mountPath: /etc/admission-gateway-ca, readOnly: true}
{{- end -}}
{{- end -}}

{{/* Rights to read the policies of other engines. In: (dict "root" $ "verbs" VERBS) */}}
{{- define "ag.otherEngineRules" -}}
{{- $policies := include "ag.policies" .root | fromYaml -}}
{{- $engines := $policies.customResourcesOf | default list -}}
{{- if has "Kyverno" $engines -}}
- apiGroups: [policies.kyverno.io]
  resources:
    - validatingpolicies
    - namespacedvalidatingpolicies
    - mutatingpolicies
    - namespacedmutatingpolicies
    - policyexceptions
  verbs: {{ .verbs }}
- apiGroups: [kyverno.io]
  resources: [clusterpolicies, policies, policyexceptions]
  verbs: {{ .verbs }}
{{ end }}
{{- if has "Gatekeeper" $engines -}}
- apiGroups: [templates.gatekeeper.sh]
  resources: [constrainttemplates]
  verbs: {{ .verbs }}
- apiGroups: [config.gatekeeper.sh]
  resources: [configs]
  verbs: {{ .verbs }}
# What only a worker evaluates, see policies.engines.
- apiGroups: [mutations.gatekeeper.sh]
  resources: [assign, assignmetadata, modifyset, assignimage]
  verbs: {{ .verbs }}
- apiGroups: [expansion.gatekeeper.sh]
  resources: [expansiontemplate]
  verbs: {{ .verbs }}
- apiGroups: [externaldata.gatekeeper.sh]
  resources: [providers]
  verbs: {{ .verbs }}
- apiGroups: [syncset.gatekeeper.sh]
  resources: [syncsets]
  verbs: {{ .verbs }}
# The kinds of constraints are made of templates.
- apiGroups: [constraints.gatekeeper.sh]
  resources: ["*"]
  verbs: {{ .verbs }}
{{- if dig "engines" "gatekeeper" "" $policies }}
- apiGroups:
    - mutations.gatekeeper.sh
    - expansion.gatekeeper.sh
    - externaldata.gatekeeper.sh
    - syncset.gatekeeper.sh
  resources: ["*"]
  verbs: {{ .verbs }}
{{- end }}
{{ end }}
{{- if has "Kubewarden" $engines -}}
- apiGroups: [policies.kubewarden.io]
  resources: [clusteradmissionpolicies, admissionpolicies]
  verbs: {{ .verbs }}
{{- end -}}
{{- end -}}

{{/* Rights to read what `manifests` registers. */}}
{{- define "ag.customResourceRules" -}}
{{- if .Values.customResources.enabled -}}
- apiGroups: [admission-gateway.io]
  resources:
    - workerpools
    - mutatingwebhookconfigurations
    - validatingwebhookconfigurations
    - validatingadmissionpolicies
    - validatingadmissionpolicybindings
    - mutatingadmissionpolicies
    - mutatingadmissionpolicybindings
    - policyexceptions
    - clusterpolicyexceptions
  verbs: [get, list]
{{- end }}
{{- with include "ag.otherEngineRules" (dict "root" . "verbs" "[get, list]") }}
{{ . }}
{{- end }}
{{- if dig "policies" "installation" "" (.Values.configuration | default dict) }}
# Policies that API servers have in force are left out.
- apiGroups: [admissionregistration.k8s.io]
  resources:
    - validatingadmissionpolicies
    - validatingadmissionpolicybindings
    - mutatingadmissionpolicies
    - mutatingadmissionpolicybindings
    - mutatingwebhookconfigurations
    - validatingwebhookconfigurations
  verbs: [list]
{{- end }}
{{- end -}}

{{/* Rights to read whether the gateway is ready, and its CA. */}}
{{- define "ag.readinessRules" -}}
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list]
{{- if eq .Values.tls.mode "SelfManaged" }}
# The CA in it becomes the caBundle.
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [{{ include "ag.tlsSecret" . }}]
  verbs: [get]
{{- end }}
{{- end -}}
