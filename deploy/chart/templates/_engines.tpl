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
{{- with dig "policies" "exceptionNamespaces" list ($.Values.configuration | default dict) -}}
{{- if eq $name "kyverno" -}}
{{- $_ := set $worker "extraArgs" (append $worker.extraArgs (printf "--exception-namespaces=%s" (join "," .))) -}}
{{- end -}}
{{- end -}}
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
{{- with $engine.modules -}}
{{- $folder := "/modules" -}}
{{- $_ := set $worker "extraArgs" (append ($worker.extraArgs | default list) (printf "--modules=%s" $folder)) -}}
{{- $_ := set $worker "volumes" (append ($worker.volumes | default list) (mergeOverwrite (deepCopy .) (dict "name" "modules"))) -}}
{{- $_ := set $worker "volumeMounts" (append ($worker.volumeMounts | default list) (dict "name" "modules" "mountPath" $folder "readOnly" true)) -}}
{{- end -}}
{{- if has $name (list "gatekeeper" "kyverno") -}}
{{- with include "ag.goMemoryLimit" (dict "engine" $name "worker" $worker) -}}
{{- $_ := set $worker "env" (concat ($worker.env | default list) (list (dict "name" "GOMEMLIMIT" "value" .))) -}}
{{- end -}}
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
{{- if ne . "kubewarden" }}
- apiGroups: [""]
  resources: [namespaces]
  verbs: [get, list, watch]
{{- end }}
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
{{- else if eq . "kubewarden" }}
# Groups are refused by name.
- apiGroups: [policies.kubewarden.io]
  resources: [clusteradmissionpolicies, admissionpolicies, clusteradmissionpolicygroups, admissionpolicygroups]
  verbs: [get, list, watch]
{{- end }}
{{- end -}}

{{/* GOMEMLIMIT of a worker in Go: two thirds of its container's memory, because evaluations end only above five quarters of
     it, see workers/gatekeeper/guard.go. Empty if there is no limit, or `env` has its own. In: (dict "engine" NAME "worker" WORKER) */}}
{{- define "ag.goMemoryLimit" -}}
{{- $own := false -}}
{{- range .worker.env }}{{ $own = or $own (eq (toString .name) "GOMEMLIMIT") }}{{ end -}}
{{- $limit := dig "resources" "limits" "memory" "" .worker -}}
{{- if and $limit (not $own) -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- $text := kindIs "float64" $limit | ternary (printf "%.0f" $limit) (toString $limit) -}}
{{- $unit := regexFind "[A-Za-z]*$" $text -}}
{{- if not (and (regexMatch "^[0-9]+([.][0-9]+)?[A-Za-z]*$" $text) (hasKey $units $unit)) -}}
{{- fail (printf "engines.%s.worker.resources.limits.memory is %s: want a number with a unit, such as 1280Mi, or GOMEMLIMIT in engines.%s.worker.env" .engine $text .engine) -}}
{{- end -}}
{{- divf (mulf (trimSuffix $unit $text | float64) (get $units $unit | float64)) 1572864.0 | floor | int64 | printf "%dMiB" -}}
{{- end -}}
{{- end -}}

{{/* Refuses rules with which the worker of an engine could read Secrets, or write. In: (dict "engine" NAME "rules" RULES) */}}
{{- define "ag.refuseRules" -}}
{{- $advice := printf "Set engines.%s.allowSecretsAndWildcards to true if it should" .engine -}}
{{- range $index, $rule := .rules -}}
{{- $place := printf "engines.%s.extraRules[%d]" $.engine $index -}}
{{- range $field := list "apiGroups" "resources" "verbs" -}}
{{- range get $rule $field -}}
{{- if contains "*" . -}}
{{- fail (printf "%s.%s has %q: name each of them, because the worker would get the right to more than its policies read. %s" $place $field . $advice) -}}
{{- end -}}
{{- if and (eq $field "verbs") (not (has . (list "get" "list" "watch"))) -}}
{{- fail (printf "%s.verbs has %q: the worker needs get, list and watch only. %s" $place . $advice) -}}
{{- end -}}
{{- if and (eq $field "resources") (eq . "secrets") (has "" $rule.apiGroups) -}}
{{- fail (printf "%s.resources has secrets: the worker would get the right to read Secrets, and messages of policies can contain them. %s" $place $advice) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
