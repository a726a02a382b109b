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
