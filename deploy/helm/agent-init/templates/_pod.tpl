{{- /* What agent-init's container has, in both modes. */}}
{{- define "agent-init.keeperSecurity" -}}
runAsUser: 0 # agent-init's: the agent has none of this
runAsGroup: 0
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
  add: [NET_ADMIN, SETUID, SETGID, SETPCAP]
{{- end }}

{{- define "agent-init.probes" -}}
terminationMessagePolicy: FallbackToLogsOnError # "kubectl describe pod" says why a start was refused
startupProbe:
  exec:
    command: [/usr/local/bin/agent-init, status]
  periodSeconds: 1
  timeoutSeconds: 5
  failureThreshold: {{ .Values.startupProbe.failureThreshold }}
readinessProbe:
  exec:
    command: [/usr/local/bin/agent-init, status]
  periodSeconds: 10
  timeoutSeconds: 5
{{- end }}

{{- define "agent-init.policyMounts" -}}
- name: policy
  mountPath: {{ .Values.ceiling.fromImage | ternary "/etc/agent-policy" "/etc/agent-init" }}
  readOnly: true
{{- if include "agent-init.ceilingName" . }}
- name: ceiling
  mountPath: /etc/agent-init/ceiling.d
  readOnly: true
{{- end }}
- name: run
  mountPath: /run/agent-init
{{- if .Values.ceiling.fromImage }}
- name: state # the number of the newest signed ceiling
  mountPath: /var/lib/agent-init
{{- end }}
{{- end }}

{{- /* The same in all containers: a broker reads it as the agent does. */}}
{{- define "agent-init.authorityMount" -}}
{{- if .Values.authorities.existingConfigMap }}
- name: authorities
  mountPath: /etc/ssl/certs/ca-certificates.crt
  subPath: {{ .Values.authorities.key }}
  readOnly: true
{{- end }}
{{- end }}

{{- define "agent-init.agentMounts" -}}
- name: tmp
  mountPath: /tmp
- name: home
  mountPath: /home/agent
- name: workspace
  mountPath: /workspace
{{- include "agent-init.authorityMount" . }}
{{- with .Values.agent.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The variables of agent-init: keys, and where the policy is. */}}
{{- define "agent-init.keeperEnv" -}}
{{- range fromJsonArray (include "agent-init.keyNames" .) }}
- name: {{ . }}
  valueFrom:
    secretKeyRef:
      name: {{ include "agent-init.keysName" $ }}
      key: {{ . }}
{{- end }}
{{- if .Values.ceiling.fromImage }}
- name: AGENT_INIT_CONFIG
  value: /etc/agent-policy
{{- end }}
{{- end }}

{{- define "agent-init.entrypoint" -}}
containers:
  - name: agent
    image: {{ include "agent-init.image" .Values.image | quote }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    args: {{ toJson .Values.agent.args }}
    env:
      - name: AGENT_INIT_USER
        value: {{ .Values.agent.user | quote }}
      {{- with include "agent-init.keeperEnv" . | trim }}
      {{- nindent 6 . }}
      {{- end }}
      {{- with .Values.agent.env }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- with .Values.agent.envFrom }}
    envFrom: {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext:
      {{- include "agent-init.keeperSecurity" . | nindent 6 }}
      seccompProfile:
        type: RuntimeDefault
    {{- include "agent-init.probes" . | nindent 4 }}
    resources: {{- toYaml .Values.agent.resources | nindent 6 }}
    volumeMounts:
      {{- include "agent-init.policyMounts" . | nindent 6 }}
      {{- include "agent-init.agentMounts" . | nindent 6 }}
{{- end }}

{{- define "agent-init.sidecar" -}}
{{- $keys := ne (include "agent-init.keyNames" .) "[]" }}
initContainers:
  - name: agent-init # the first: those before it would run on an open network
    image: {{ include "agent-init.image" .Values.sidecarImage | quote }}
    imagePullPolicy: {{ .Values.sidecarImage.pullPolicy }}
    restartPolicy: Always
    command:
      - /usr/local/bin/agent-init
      - sidecar
      - --user
      - {{ .Values.agent.user | quote }}
      {{- if $keys }}
      - --env-file
      - /etc/agent-env/broker.env
      {{- end }}
    {{- with include "agent-init.keeperEnv" . | trim }}
    env: {{- nindent 6 . }}
    {{- end }}
    securityContext:
      {{- include "agent-init.keeperSecurity" . | nindent 6 }}
    {{- include "agent-init.probes" . | nindent 4 }}
    resources: {{- toYaml .Values.sidecarResources | nindent 6 }}
    volumeMounts:
      {{- include "agent-init.policyMounts" . | nindent 6 }}
      {{- if $keys }}
      - name: agent-env
        mountPath: /etc/agent-env
      {{- end }}
      {{- with include "agent-init.authorityMount" . | trim }}
      {{- nindent 6 . }}
      {{- end }}
containers:
  - name: agent
    image: {{ include "agent-init.image" .Values.image | quote }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    # The first process of a container gets SIGTERM only if it has a handler: so it is a shell, which passes it on.
    command:
      - /bin/sh
      - -c
      - |
        {{- if $keys }}
        . /etc/agent-env/broker.env || exit
        {{- end }}
        exec 3<&0
        ended= # one that comes before the agent is there
        trap 'ended=yes' TERM
        "$@" <&3 3<&- & agent=$!
        trap 'kill -TERM "$agent"' TERM
        [ -z "$ended" ] || kill -TERM "$agent"
        wait "$agent"; status=$?
        while kill -0 "$agent" 2>/dev/null; do wait "$agent"; status=$?; done
        exit "$status"
      - sh
    args: {{ toJson .Values.agent.args }}
    env:
      - name: HOME
        value: /home/agent
      {{- with .Values.agent.env }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- with .Values.agent.envFrom }}
    envFrom: {{- toYaml . | nindent 6 }}
    {{- end }}
    # The agent needs all of this: with SETUID and SETGID, or with NET_RAW, it could go where only the guard may.
    securityContext:
      runAsNonRoot: true
      runAsUser: {{ .Values.agent.user }}
      runAsGroup: {{ .Values.agent.user }}
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop: [ALL]
    resources: {{- toYaml .Values.agent.resources | nindent 6 }}
    volumeMounts:
      {{- include "agent-init.agentMounts" . | nindent 6 }}
      {{- if $keys }}
      - name: agent-env
        mountPath: /etc/agent-env
        readOnly: true
      {{- end }}
{{- end }}

{{- define "agent-init.pod" -}}
metadata:
  labels:
    {{- include "agent-init.selector" . | nindent 4 }}
    agent-init.org/confined: "true"
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- if or .Values.podAnnotations .Values.keys.values }}
  annotations:
    {{- with .Values.keys.values }}
    agent-init.org/keys: {{ toJson . | sha256sum | quote }} # other keys are another pod
    {{- end }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
spec:
  automountServiceAccountToken: false
  enableServiceLinks: false
  shareProcessNamespace: false
  restartPolicy: {{ eq .Values.kind "Job" | ternary "Never" "Always" }}
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    fsGroup: {{ .Values.agent.user }} # the agent's group may write the volumes; the policy is read-only
    seccompProfile:
      type: RuntimeDefault
  {{- include (printf "agent-init.%s" .Values.mode) . | nindent 2 }}
  volumes:
    - name: policy
      configMap:
        name: {{ include "agent-init.policyName" . }}
    {{- with include "agent-init.ceilingName" . }}
    - name: ceiling
      configMap:
        name: {{ . }}
    {{- end }}
    - name: run # agent-init's alone
      emptyDir:
        medium: Memory
        sizeLimit: 64Mi
    {{- if .Values.ceiling.fromImage }}
    - name: state
      emptyDir: {}
    {{- end }}
    {{- if and (eq .Values.mode "sidecar") (ne (include "agent-init.keyNames" .) "[]") }}
    - name: agent-env
      emptyDir:
        medium: Memory
        sizeLimit: 1Mi
    {{- end }}
    {{- with .Values.authorities.existingConfigMap }}
    - name: authorities
      configMap:
        name: {{ . }}
    {{- end }}
    - name: tmp
      emptyDir: {}
    - name: home
      emptyDir: {}
    - name: workspace
      {{- if or .Values.workspace.existingClaim .Values.workspace.size }}
      persistentVolumeClaim:
        claimName: {{ .Values.workspace.existingClaim | default (printf "%s-workspace" (include "agent-init.fullname" .)) }}
      {{- else }}
      emptyDir: {}
      {{- end }}
    {{- with .Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- range $key := list "nodeSelector" "tolerations" "affinity" "priorityClassName" "runtimeClassName" }}
  {{- with index $.Values $key }}
  {{ $key }}: {{ toJson . }}
  {{- end }}
  {{- end }}
{{- end }}
