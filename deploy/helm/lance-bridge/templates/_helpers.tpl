{{- define "lance-bridge.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "lance-bridge.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "lance-bridge.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "lance-bridge.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "lance-bridge.selector" -}}
app.kubernetes.io/name: {{ include "lance-bridge.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "lance-bridge.labels" -}}
{{ include "lance-bridge.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "lance-bridge.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "lance-bridge.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "lance-bridge.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* The port of the first listener, which the Service and the probes use. */}}
{{- define "lance-bridge.port" -}}
{{- $listener := first .Values.config.listeners }}
{{- default 2333 $listener.port | int }}
{{- end }}

{{- define "lance-bridge.scheme" -}}
{{- if .Values.config.tls }}https{{ else }}http{{ end }}
{{- end }}

{{- define "lance-bridge.probe" -}}
httpGet:
  path: {{ .path }}
  port: http
  scheme: {{ include "lance-bridge.scheme" .root | upper }}
{{ toYaml .settings }}
{{- end }}

{{/* Fails if the name of a catalog's property is that of a secret: secrets do not belong in a ConfigMap. */}}
{{- define "lance-bridge.refuseSecrets" -}}
{{- range $name, $catalog := .Values.config.catalogs }}
{{- range $key, $value := $catalog }}
{{- if regexMatch "(^|[._-])(password|token|secret|access_key|account_key|sas_key|master_key)$" $key }}
{{- fail (printf "config.catalogs.%s.%s is a secret: give it by secretEnvironment" $name $key) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
