{{- define "ag.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "ag.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "ag.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "ag.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels by which Services and Deployments select the pods of a component. In: (dict "root" $ "name" NAME) */}}
{{- define "ag.selector" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end -}}

{{- define "ag.gatewaySelector" -}}
{{ include "ag.selector" (dict "root" . "name" (include "ag.name" .)) }}
{{- end -}}

{{/* Labels and annotations of an object. In: (dict "root" $ "name" NAME "labels" MORE "annotations" MORE) */}}
{{- define "ag.metadata" -}}
labels:
  {{- include "ag.selector" . | nindent 2 }}
  app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ .root.Release.Service }}
  app.kubernetes.io/part-of: admission-gateway
  helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
  {{- with merge (dict) (.labels | default dict) .root.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The same for objects of the gateway itself. In: (dict "root" $ …) */}}
{{- define "ag.gatewayMetadata" -}}
{{- include "ag.metadata" (merge (dict "name" (include "ag.name" .root)) .) -}}
{{- end -}}

{{- define "ag.serviceAccountName" -}}
{{- $default := ternary (include "ag.fullname" .) "default" .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default $default -}}
{{- end -}}

{{- define "ag.registrationName" -}}
{{- .Values.registration.name | default (include "ag.fullname" .) -}}
{{- end -}}

{{- define "ag.tlsSecret" -}}
{{- .Values.tls.secretName | default (printf "%s-tls" (include "ag.fullname" .)) -}}
{{- end -}}

{{/* In: (dict "root" $ "image" IMAGE "tag" DEFAULT) */}}
{{- define "ag.image" -}}
{{- with .image -}}
{{- with $.root.Values.global.imageRegistry | default .registry }}{{ . }}/{{ end -}}
{{- .repository -}}
{{- with .tag | default $.tag }}:{{ . }}{{ end -}}
{{- with .digest }}@{{ . }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "ag.gatewayImage" -}}
image: {{ include "ag.image" (dict "root" . "image" .Values.image "tag" .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end -}}

{{/* In: (dict "root" $ "secrets" LIST) */}}
{{- define "ag.imagePullSecrets" -}}
{{- with concat .root.Values.global.imagePullSecrets .secrets | uniq -}}
imagePullSecrets:
  {{- range . }}
  - name: {{ kindIs "string" . | ternary . (get (kindIs "map" . | ternary . dict) "name") }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* Constraints, of which those without a labelSelector get one, for the pods of the same ReplicaSet: with pods that an
     update is about to remove, the new ones would spread around those. In: (dict "constraints" LIST "selector" YAML) */}}
{{- define "ag.topologySpread" -}}
{{- with .constraints -}}
topologySpreadConstraints:
  {{- range . }}
  {{- $own := dict "labelSelector" (dict "matchLabels" ($.selector | fromYaml)) "matchLabelKeys" (list "pod-template-hash") }}
  - {{ merge (dict) . (hasKey . "labelSelector" | ternary (dict) $own) | toYaml | nindent 4 | trim }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* Name of the objects of a worker. In: (dict "root" $ "name" NAME "worker" WORKER) */}}
{{- define "ag.workerFullname" -}}
{{- .worker.fullnameOverride | default (printf "%s-%s" (include "ag.fullname" .root) .name) -}}
{{- end -}}

{{/* The fields of a worker with their defaults, YAML. In: (dict "root" $ "worker" WORKER) */}}
{{- define "ag.worker" -}}
{{- mergeOverwrite (deepCopy .root.Values.workerDefaults) (deepCopy (.worker | default dict)) | toYaml -}}
{{- end -}}

{{/* The PodMonitor and PrometheusRule of pods with a port `metrics`, if there are to be any.
     In: (dict "root" $ "name" NAME "fullname" NAME "namespace" NAMESPACE "rule" FILE) */}}
{{- define "ag.podMonitoring" -}}
{{- with .root.Values.serviceMonitor }}
{{- if .enabled }}
---
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: {{ $.fullname }}
  namespace: {{ .namespace | default $.namespace }}
  {{- include "ag.metadata" (dict "root" $.root "name" $.name "labels" .labels) | nindent 2 }}
spec:
  namespaceSelector: {matchNames: [{{ $.namespace }}]}
  selector:
    matchLabels:
      {{- include "ag.selector" $ | nindent 6 }}
  podMetricsEndpoints:
    - port: metrics
      path: /metrics
      interval: {{ .interval }}
      scrapeTimeout: {{ .scrapeTimeout }}
      {{- with .relabelings }}
      relabelings:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .metricRelabelings }}
      metricRelabelings:
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end }}
{{- end }}
{{- with .root.Values.prometheusRule }}
{{- if .enabled }}
---
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: {{ $.fullname }}
  namespace: {{ .namespace | default $.namespace }}
  {{- include "ag.metadata" (dict "root" $.root "name" $.name "labels" .labels) | nindent 2 }}
spec:
  {{- toYaml ($.root.Files.Get (printf "files/%s-rule.yaml" $.rule) | fromYaml) | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}
