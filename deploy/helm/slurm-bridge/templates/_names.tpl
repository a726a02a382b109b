{{- define "bridge.labels" -}}
app.kubernetes.io/name: slurm-bridge
{{- end -}}
{{- define "bridge.certificate" -}}
{{- eq .Values.certificateSecret "cert-manager" | ternary "slurm-bridge-certificate" .Values.certificateSecret -}}
{{- end -}}
{{- define "bridge.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- if ne .Release.Namespace "slurm-bridge" -}}
{{- $_ := set $config "namespace" .Release.Namespace -}}
{{- end -}}
{{- if ne .Values.certificateSecret "self" -}}
{{- $_ := set $config "certificates" "files" -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}
{{- define "bridge.role" -}}
{{- $kind := empty .namespace | ternary "ClusterRole" "Role" -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
metadata:
  name: {{ .name }}
  {{- if .namespace }}
  namespace: {{ .namespace }}
  {{- end }}
  labels:
    {{- include "bridge.labels" . | nindent 4 }}
rules:
{{ .rules }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
metadata:
  name: {{ .name }}
  {{- if .namespace }}
  namespace: {{ .namespace }}
  {{- end }}
  labels:
    {{- include "bridge.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ .name }}
subjects:
- kind: ServiceAccount
  name: slurm-bridge
  namespace: {{ .home }}
{{- end -}}
{{- define "bridge.webhook" -}}
name: pods.bridge.slurm-sdk
namespaceSelector:
  {{- if .Values.config.namespaceSelector }}
  matchLabels:
    {{- toYaml .Values.config.namespaceSelector | nindent 4 }}
  {{- else }}
  matchExpressions:
  - key: kubernetes.io/metadata.name
    operator: In
    values:
    {{- toYaml (.Values.config.namespaces | default (list "-none-") | sortAlpha) | nindent 4 }}
  {{- end }}
failurePolicy: Fail
sideEffects: None
timeoutSeconds: 5
matchPolicy: Equivalent
admissionReviewVersions:
- v1
clientConfig:
  service:
    name: slurm-bridge
    namespace: {{ .Release.Namespace }}
    path: /{{ .path }}
    port: 443
  {{- with .Values.certificateAuthority }}
  caBundle: {{ . }}
  {{- end }}
{{- end -}}
{{- define "bridge.registration" -}}
metadata:
  name: slurm-bridge
  labels:
    {{- include "bridge.labels" . | nindent 4 }}
  {{- if eq .Values.certificateSecret "cert-manager" }}
  annotations:
    cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/slurm-bridge
  {{- end }}
{{- end -}}
