{{- define "agent-init.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "agent-init.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- $name := include "agent-init.name" . }}
{{- contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "agent-init.selector" -}}
app.kubernetes.io/name: {{ include "agent-init.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "agent-init.labels" -}}
{{ include "agent-init.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "agent-init.image" -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}
{{- else if .tag }}{{ .repository }}:{{ .tag }}
{{- else }}{{ .repository }}
{{- end }}
{{- end }}

{{- define "agent-init.policyName" -}}
{{- .Values.policy.existingConfigMap | default (printf "%s-policy" (include "agent-init.fullname" .)) }}
{{- end }}

{{- /* The ConfigMap of the ceiling; nothing if none is mounted. */}}
{{- define "agent-init.ceilingName" -}}
{{- if .Values.ceiling.existingConfigMap }}{{ .Values.ceiling.existingConfigMap }}
{{- else if .Values.ceiling.files }}{{ include "agent-init.fullname" . }}-ceiling
{{- end }}
{{- end }}

{{- define "agent-init.keysName" -}}
{{- .Values.keys.existingSecret | default (printf "%s-keys" (include "agent-init.fullname" .)) }}
{{- end }}

{{- /* The variables of keys, as a list in JSON. */}}
{{- define "agent-init.keyNames" -}}
{{- empty .Values.keys.existingSecret | ternary (keys .Values.keys.values | sortAlpha) .Values.keys.names | toJson }}
{{- end }}
