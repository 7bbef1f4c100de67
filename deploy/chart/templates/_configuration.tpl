{{/* The GatewayConfiguration: `configuration`, and what the chart's other values say. */}}
{{- define "ag.gatewayConfiguration" -}}
{{- $kubernetes := dict -}}
{{- if .Values.customResources.enabled -}}
{{- $kubernetes = dict "customResources" true -}}
{{- end -}}
{{- $tls := dict -}}
{{- if eq .Values.tls.mode "SelfManaged" -}}
{{- $service := printf "%s/%s" .Release.Namespace (include "ag.fullname" .) -}}
{{- $_ := set $tls "selfManaged" (dict "service" $service "secret" (include "ag.tlsSecret" .) "registration" (include "ag.registrationName" .)) -}}
{{- end -}}
{{- with .Values.tls.clientCA -}}
{{- if .configMap -}}
{{- $_ := set $tls "clientCAFile" (printf "/etc/admission-gateway-client-ca/%s" .key) -}}
{{- with .names }}{{ $_ := set $tls "clientNames" . }}{{ end -}}
{{- end -}}
{{- end -}}
{{- $own := dict "apiVersion" "admission-gateway.io/v1alpha1" "kind" "GatewayConfiguration" "kubernetes" $kubernetes -}}
{{- $_ := set $own "listen" (printf "%s:%v" .Values.listenAddress .Values.ports.https) -}}
{{- $_ := set $own "adminListen" (printf "%s:%v" .Values.listenAddress .Values.ports.admin) -}}
{{- with $tls }}{{ $_ := set $own "tls" . }}{{ end -}}
{{- /* The loopback of the node is that of all its processes. */ -}}
{{- if and .Values.hostNetwork (not (hasKey .Values.configuration "pages")) -}}
{{- $_ := set $own "pages" (dict "enabled" false) -}}
{{- end -}}
{{- with include "ag.policies" . | fromYaml }}{{ $_ := set $own "policies" . }}{{ end -}}
{{- mergeOverwrite (deepCopy .Values.configuration) $own | toYaml -}}
{{- end -}}

{{/* WorkerPools of `pools` and of all workers, as YAML documents. */}}
{{- define "ag.pools" -}}
{{- $pools := deepCopy .Values.pools -}}
{{- range $name, $given := include "ag.workers" . | fromYaml -}}
{{- $worker := include "ag.worker" (dict "root" $ "worker" $given) | fromYaml -}}
{{- if hasKey $pools $name -}}
{{- fail (printf "pools.%s and workers.%s have the same name: put fields of the pool into workers.%s.pool" $name $name $name) -}}
{{- end -}}
{{- $fullname := include "ag.workerFullname" (dict "root" $ "name" $name "worker" $worker) -}}
{{- $target := printf "dns:///%s.%s.svc:%v" $fullname $.Release.Namespace $worker.port -}}
{{- $pool := dict "target" $target -}}
{{- if has "admission_gateway_worker.policies" $worker.command }}{{ $_ := set $pool "policies" "ReadyMade" }}{{ end -}}
{{- $_ := set $pools $name (mergeOverwrite $pool $worker.pool) -}}
{{- end -}}
{{- range $name, $spec := $pools }}
---
apiVersion: admission-gateway.io/v1alpha1
kind: WorkerPool
metadata:
  name: {{ $name | quote }}
spec:
  {{- toYaml $spec | nindent 2 }}
{{- end -}}
{{- end -}}

{{- define "ag.webhooks" -}}
{{- range $kind, $configurations := dict "MutatingWebhookConfiguration" .Values.mutatingWebhookConfigurations "ValidatingWebhookConfiguration" .Values.validatingWebhookConfigurations }}
{{- range $name, $webhooks := $configurations }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: {{ $kind }}
metadata:
  name: {{ $name | quote }}
webhooks:
  {{- toYaml $webhooks | nindent 2 }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* The content of the ConfigMap: a file for each part that is not empty. */}}
{{- define "ag.configFiles" -}}
gateway.yaml: |
  {{- include "ag.gatewayConfiguration" . | nindent 2 }}
{{- with include "ag.pools" . | trim | trimPrefix "---\n" }}
pools.yaml: |
  {{- . | nindent 2 }}
{{- end }}
{{- with include "ag.webhooks" . | trim | trimPrefix "---\n" }}
webhooks.yaml: |
  {{- . | nindent 2 }}
{{- end }}
{{- with .Values.extraDocuments }}
documents.yaml: |
  {{- range $number, $document := . }}
  {{- if $number }}
  ---
  {{- end }}
  {{- toYaml $document | nindent 2 }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* "true" if the values have a webhook or a policy. */}}
{{- define "ag.hasWebhooks" -}}
{{- range $webhooks := concat (values .Values.mutatingWebhookConfigurations) (values .Values.validatingWebhookConfigurations) }}{{ if $webhooks }}true{{ end }}{{ end -}}
{{- range .Values.extraDocuments }}{{ if or (regexMatch "^(constraints|mutations)[.]gatekeeper[.]sh/" (toString .apiVersion)) (regexMatch "^((Mutating|Validating)(WebhookConfiguration|AdmissionPolicy)|(Namespaced)?(Mutating|Validating)Policy|(Cluster)?Policy|(Cluster)?AdmissionPolicy)$" (toString .kind)) }}true{{ end }}{{ end -}}
{{- end -}}

{{/* "true" if a policy of Kyverno may compare the roles of users with the cluster's bindings: one of the cluster, or one of the
     values with `roles` or `clusterRoles`, unless they have bindings. */}}
{{- define "ag.readsRoles" -}}
{{- $policies := dig "policies" dict (.Values.configuration | default dict) | default dict -}}
{{- $names := "" -}}
{{- $bindings := "" -}}
{{- range .Values.extraDocuments -}}
{{- if regexMatch "^(Cluster)?RoleBinding$" (toString .kind) }}{{ $bindings = "true" }}{{ end -}}
{{- if and (hasPrefix "kyverno.io/" (toString .apiVersion)) (regexMatch "[{,]\"(clusterRoles|roles)\":\\[[^]]" (toJson .)) }}{{ $names = "true" }}{{ end -}}
{{- end -}}
{{- if or (has "Kyverno" ((include "ag.policies" . | fromYaml).customResourcesOf | default list)) (and $names (not $bindings)) }}true{{ end -}}
{{- end -}}

{{- define "ag.allowEmpty" -}}
{{- if kindIs "bool" .Values.allowEmpty -}}
{{- if .Values.allowEmpty }}true{{ end -}}
{{- else if not (include "ag.hasWebhooks" .) -}}
true
{{- end -}}
{{- end -}}

{{/* The volumes that the gateway's container and the Jobs share. In: (dict "root" $ "configMap" NAME) */}}
{{- define "ag.volumes" -}}
- name: config
  configMap: {name: {{ .configMap }}}
{{- with .root.Values.tls.clientCA.configMap }}
- name: client-ca
  configMap: {name: {{ . }}}
{{- end }}
- name: tmp
  emptyDir: {sizeLimit: 16Mi}
{{- with .root.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "ag.volumeMounts" -}}
# Whole folders: a subPath mount is never updated.
- {name: config, mountPath: /etc/admission-gateway, readOnly: true}
{{- if .Values.tls.clientCA.configMap }}
- {name: client-ca, mountPath: /etc/admission-gateway-client-ca, readOnly: true}
{{- end }}
- {name: tmp, mountPath: /tmp}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}
