{{- define "bridge.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "bridge.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "bridge.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "bridge.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "bridge.selector" -}}
app.kubernetes.io/name: {{ include "bridge.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "bridge.labels" -}}
{{ include "bridge.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "bridge.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "bridge.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "bridge.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- /* The poll interval in milliseconds, as text; the schema admits one number and unit. */ -}}
{{- define "bridge.pollIntervalMs" -}}
{{- $number := regexFind "^[0-9.]+" .Values.pollInterval | float64 }}
{{- $unit := regexFind "[a-z]+$" .Values.pollInterval }}
{{- mulf $number (get (dict "ms" 1 "s" 1000 "m" 60000) $unit) }}
{{- end }}

{{- define "bridge.capabilities" -}}
{{- $more := ternary (list "SYS_PTRACE" "DAC_READ_SEARCH") list .Values.processesOfOtherVendors }}
{{- concat .Values.capabilities $more | uniq | toYaml }}
{{- end }}

{{- define "bridge.validate" -}}
{{- if not .Values.hostPID }}
{{- fail "hostPID must be true: NVML and the kernel tell processes by the host's process ids, and in a PID namespace of its own the bridge would publish ids that no eBPF program can match" }}
{{- end }}
{{- if and .Values.processesOfOtherVendors .Values.sources (not (has "drm" .Values.sources)) }}
{{- fail "processesOfOtherVendors is true, and sources has no drm, which would tell them" }}
{{- end }}
{{- if and .Values.sources (eq .Values.mode "mock") }}
{{- fail "sources is set, and mode mock asks none of them" }}
{{- end }}
{{- $ms := include "bridge.pollIntervalMs" . | float64 }}
{{- if or (le $ms 0.0) (gt $ms 3600000.0) }}
{{- fail (printf "pollInterval %s: must be more than 0 and at most 1h" .Values.pollInterval) }}
{{- end }}
{{- end }}

{{- define "bridge.probe" -}}
exec:
  command: [/usr/bin/gpu-ebpf-bridge, --health, {{ printf "--pin-dir=%s" .root.Values.pinDir | quote }}]
periodSeconds: {{ .probe.periodSeconds }}
failureThreshold: {{ .probe.failureThreshold }}
timeoutSeconds: 5
{{- end }}
