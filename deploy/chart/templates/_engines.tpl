{{/* All workers by name, YAML: those of `workers`, and those of engines that are enabled. */}}
{{- define "ag.workers" -}}
{{- $workers := deepCopy .Values.workers -}}
{{- range $name, $engine := .Values.engines -}}
{{- if $engine.enabled -}}
{{- if hasKey $workers $name -}}
{{- fail (printf "engines.%s and workers.%s have the same name: put the fields into engines.%s.worker" $name $name $name) -}}
{{- end -}}
{{- $worker := deepCopy $engine.worker -}}
{{- $_ := set $worker "image" (mergeOverwrite (dict "repository" (printf "%s-worker" $name) "tag" $.Chart.AppVersion) ($worker.image | default dict)) -}}
{{- if eq $engine.documents "Cluster" -}}
{{- $_ := set $worker "extraArgs" (concat ($worker.extraArgs | default list) (list "--cluster")) -}}
{{- $_ := set $worker "serviceAccountName" ($worker.serviceAccountName | default (include "ag.workerFullname" (dict "root" $ "name" $name "worker" $worker))) -}}
{{- $_ := set $worker "egress" (concat ($worker.egress | default list) (include "ag.toAPIServers" $ | fromYamlArray)) -}}
{{- else -}}
{{- if not $.Values.extraDocuments -}}
{{- fail (printf "engines.%s.documents is Values, and extraDocuments is empty: put the documents there" $name) -}}
{{- end -}}
{{- $folder := "/etc/admission-gateway-documents" -}}
{{- $map := dict "name" (include "ag.fullname" $) "items" (list (dict "key" "documents.yaml" "path" "documents.yaml")) -}}
{{- $_ := set $worker "extraArgs" (concat ($worker.extraArgs | default list) (list (printf "--policies=%s" $folder))) -}}
{{- $_ := set $worker "volumes" (concat ($worker.volumes | default list) (list (dict "name" "documents" "configMap" $map))) -}}
{{- $_ := set $worker "volumeMounts" (concat ($worker.volumeMounts | default list) (list (dict "name" "documents" "mountPath" $folder "readOnly" true))) -}}
{{- end -}}
{{- $_ := set $workers $name $worker -}}
{{- end -}}
{{- end -}}
{{- toYaml $workers -}}
{{- end -}}

{{/* `policies` of the GatewayConfiguration with the engines that are enabled, YAML. */}}
{{- define "ag.policies" -}}
{{- $policies := dig "policies" dict (.Values.configuration | default dict) | default dict | deepCopy -}}
{{- $engines := dict -}}
{{- $followed := $policies.customResourcesOf | default list -}}
{{- range $name, $engine := .Values.engines -}}
{{- if $engine.enabled -}}
{{- $entry := dict "pool" $name -}}
{{- with $engine.failurePolicy }}{{ $_ := set $entry "failurePolicy" . }}{{ end -}}
{{- with $engine.timeoutSeconds }}{{ $_ := set $entry "timeoutSeconds" . }}{{ end -}}
{{- $_ := set $engines $name $entry -}}
{{- if eq $engine.documents "Cluster" }}{{ $followed = append $followed (title $name) }}{{ end -}}
{{- end -}}
{{- end -}}
{{- with $engines }}{{ $_ := set $policies "engines" (mergeOverwrite (deepCopy .) ($policies.engines | default dict)) }}{{ end -}}
{{- with $followed | uniq }}{{ $_ := set $policies "customResourcesOf" . }}{{ end -}}
{{- toYaml $policies -}}
{{- end -}}

{{/* Rules of a NetworkPolicy for connections to API servers, which no selector matches. */}}
{{- define "ag.toAPIServers" -}}
{{- with .Values.networkPolicy }}
{{- with .dns }}
- to:
    {{- toYaml . | nindent 4 }}
  ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
{{- end }}
{{- /* A rule without ports would let out to all of them. */}}
{{- with .externalPorts }}
- to:
    - ipBlock: {cidr: 0.0.0.0/0, except: [127.0.0.0/8, 169.254.0.0/16]}
    - ipBlock: {cidr: "::/0", except: ["::1/128", "fe80::/10", "fd00:ec2::254/128"]}
  ports:
    {{- range . }}
    - {port: {{ . }}}
    {{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The rights with which the worker of an engine reads its documents in the cluster. In: the name of the engine. */}}
{{- define "ag.engineRules" -}}
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get, list, watch]
{{- if eq . "gatekeeper" }}
- apiGroups: [templates.gatekeeper.sh, config.gatekeeper.sh, syncset.gatekeeper.sh]
  resources: [constrainttemplates, configs, syncsets]
  verbs: [get, list, watch]
# The kinds of constraints are made of templates.
- apiGroups:
    - constraints.gatekeeper.sh
    - mutations.gatekeeper.sh
    - expansion.gatekeeper.sh
    - externaldata.gatekeeper.sh
  resources: ["*"]
  verbs: [get, list, watch]
{{- else if eq . "kyverno" }}
- apiGroups: [kyverno.io]
  resources: [clusterpolicies, policies, policyexceptions, globalcontextentries]
  verbs: [get, list, watch]
# The roles of users, which rules compare.
- apiGroups: [rbac.authorization.k8s.io]
  resources: [rolebindings, clusterrolebindings]
  verbs: [get, list, watch]
{{- end }}
{{- end -}}
