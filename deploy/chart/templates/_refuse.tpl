{{/* Seconds from the end of a pod's use to its kill: 5 s for the gateway's own end, and room. */}}
{{- define "ag.gracePeriod" -}}
{{- $least := addf .Values.preStopSeconds (.Values.configuration.drainSeconds | default 10) 5 | ceil | int -}}
{{- $given := .Values.terminationGracePeriodSeconds -}}
{{- if kindIs "invalid" $given -}}
{{- add $least 10 -}}
{{- else if lt (int $given) $least -}}
{{- fail (printf "terminationGracePeriodSeconds is %v, and the gateway may need %d s: preStopSeconds, configuration.drainSeconds and 5 more" $given $least) -}}
{{- else -}}
{{- $given -}}
{{- end -}}
{{- end -}}

{{/* Refuses values that contradict each other, or that would lock the cluster out. */}}
{{- define "ag.refuse" -}}
{{- $defaults := "0.1.0" -}}
{{- $found := toString (.Values.defaultsOf | default "an earlier version") -}}
{{- if ne $found $defaults -}}
{{- fail (printf "the default values are those of %s, and this chart is %s: helm upgrade --reuse-values keeps the defaults of the chart before. Use --reset-then-reuse-values, and leave defaultsOf out of your own values" $found $defaults) -}}
{{- end -}}
{{- $replicas := .Values.autoscaling.enabled | ternary .Values.autoscaling.minReplicas .Values.replicas | int -}}
{{- if and .Values.registration.enabled (lt $replicas 1) -}}
{{- fail "replicas is 0: without a gateway API servers refuse every request that a webhook with failurePolicy Fail covers. Set registration.enabled to false first" -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (lt (int .Values.autoscaling.maxReplicas) $replicas) -}}
{{- fail (printf "autoscaling.maxReplicas is %v, less than autoscaling.minReplicas" .Values.autoscaling.maxReplicas) -}}
{{- end -}}
{{- with .Values.podDisruptionBudget -}}
{{- if .enabled -}}
{{- $both := and (not (kindIs "invalid" .minAvailable)) (not (kindIs "invalid" .maxUnavailable)) -}}
{{- if $both -}}
{{- fail "podDisruptionBudget has minAvailable and maxUnavailable: leave one of them out" -}}
{{- end -}}
{{- if and (not (kindIs "string" .minAvailable)) (not (kindIs "invalid" .minAvailable)) (ge (int .minAvailable) $replicas) -}}
{{- fail (printf "podDisruptionBudget.minAvailable is %v of %d replicas: no pod could ever be evicted, and no node drained" .minAvailable $replicas) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with .Values.watchdog -}}
{{- if and .enabled (ne .mode "Alert") (not .probe) -}}
{{- fail (printf "watchdog.mode is %s: watchdog.probe has to be an object that a webhook with failurePolicy Fail matches" .mode) -}}
{{- end -}}
{{- end -}}
{{- if and (eq .Values.tls.mode "Secret") (not .Values.tls.secretName) -}}
{{- fail "tls.mode is Secret: tls.secretName has to name a Secret with tls.crt, tls.key and the CA, ca.crt" -}}
{{- end -}}
{{- if and .Values.tls.caCertificates (ne .Values.tls.mode "Secret") -}}
{{- fail (printf "tls.caCertificates is for tls.mode Secret, and tls.mode is %s" .Values.tls.mode) -}}
{{- end -}}
{{- $policies := dig "policies" dict (.Values.configuration | default dict) | default dict -}}
{{- range $field := list "paramKinds" "resources" -}}
{{- range get $policies $field | default list -}}
{{- if and (not (contains "/" .apiVersion)) (or (eq .resource "secrets") (eq (lower .kind) "secret")) -}}
{{- fail (printf "configuration.policies.%s has %s %s: the gateway would get the right to read all Secrets, and messages of policies can contain them" $field .kind .resource) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $engine := .Values.engines -}}
{{- if and $engine.enabled (not $engine.allowSecretsAndWildcards) -}}
{{- include "ag.refuseRules" (dict "engine" $name "rules" ($engine.extraRules | default list)) -}}
{{- end -}}
{{- end -}}
{{- if eq (int .Values.ports.https) (int .Values.ports.admin) -}}
{{- fail (printf "ports.https and ports.admin are both %v" .Values.ports.https) -}}
{{- end -}}
{{- if and (has "kube-system" .Values.registration.include) (has "kube-system" .Values.registration.excludeNamespaces) -}}
{{- fail "registration.include and registration.excludeNamespaces both have kube-system" -}}
{{- end -}}
{{- end -}}
