package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/agent-init/agent-init/internal/fault"
)

// TestCheckListsRoutes: each route as it will be, whether its credential is there or not, and a wrong one by its place.
func TestCheckListsRoutes(t *testing.T) {
	checked := func(policy string) (int, string, string) {
		file := filepath.Join(t.TempDir(), "policy.yaml")
		if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
			t.Fatal(err)
		}
		var stdout, stderr bytes.Buffer
		code := run(environment{args: []string{"check", file}, stdout: &stdout, stderr: &stderr})
		return code, stdout.String(), string(bytes.ReplaceAll(stderr.Bytes(), []byte(filepath.Dir(file)+"/"), nil))
	}
	code, out, errs := checked(`
broker:
  openai:
    credential: [file:/run/secrets/openai, env:OPENAI_API_KEY]
    optional: true
    provider_tools: [web_search]
    models: [gpt-5*]
    limits: {requests_per_minute: 120, tokens_per_day: 5000000}
  ollama: {to: "http://10.0.0.1:11434/v1"}
  tickets:
    to: https://tickets.corp.example/api
    credential: env:TICKETS
    inject: {basic: {user: me}}
    allow: ["GET /v2/**", "POST /v2/search"]
`)
	want := `ok: 1 file, 0 names, 0 wildcards, 0 addresses, 0 denied, 0 required
route openai: https://api.openai.com/, if the credential is there
  credential   file:/run/secrets/openai, else env:OPENAI_API_KEY; put on as authorization: Bearer {}
  tools        web_search
  models       gpt-5*
  limits       120 requests a minute, 5000000 tokens a day
route ollama: http://10.0.0.1:11434/
  credential   none
  tools        none of the provider's
  models       any
  limits       none
route tickets: https://tickets.corp.example/api/
  credential   env:TICKETS; put on as Basic authentication of me
  asked        GET /v2/**, POST /v2/search
  limits       none
`
	if code != fault.OK || out != want || errs != "" {
		t.Errorf("code %d, %s\ngot\n%s\nwant\n%s", code, errs, out, want)
	}
	code, out, errs = checked("broker:\n  antropic: {}\n")
	want = `policy.yaml:2:3: no route of this name is built in, and one of your own says where it leads, as in to: https://host/: "antropic" (did you mean anthropic?)` + "\n"
	if code != fault.Policy || out != "" || errs != want {
		t.Errorf("code %d, %s\ngot\n%s\nwant\n%s", code, out, errs, want)
	}
}

// TestCheckListsWays: what is inspected, what passes by the gate, and what else a route can be.
func TestCheckListsWays(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(`domains:
- api.corp.example GET,HEAD /repos/my-org/**
- "*.seen.corp.example:8443 observe max_upload=0"
- reg.corp.example:8443 tls
- s3.corp.example direct
- old.corp.example:9000
- bulk.corp.example:9000 direct
- ntp.corp.example:123/udp
- "!api.corp.example * /repos/my-org/secret/**"
broker:
  corp: {inspect: api.corp.example, credential: file:/k, inject: {header: authorization}, add: {X-Tenant: t}}
  github: {credential: file:/k, git: write, repos: [my-org/*], branches: [agent/*]}
  npm: {min_age: 3d, packages: {deny: ["@evil/*"]}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	code := run(environment{args: []string{"check", file}, stdout: &stdout, stderr: &stderr})
	want := `ok: 1 file, 6 names, 1 wildcard, 0 addresses, 1 denied, 0 required
route corp: onto the requests to api.corp.example:443
  credential   file:/k; put on as authorization
  besides      x-tenant: t
route github: https://github.com/
  credential   file:/k; put on as Basic authentication of x-access-token
  repos        my-org/*, to read and to push
  branches     agent/*
  limits       none
route npm: https://registry.npmjs.org/
  credential   none
  packages     any of npm, but not @evil/*; versions younger than 3d do not exist
  limits       none
inspected api.corp.example:443
  requests     allowed: GET,HEAD /repos/my-org/**  (policy.yaml:2)
               denied: * /repos/my-org/secret/**  (policy.yaml:9)
inspected *.seen.corp.example:8443
  requests     allowed: max_upload=0  (policy.yaml:3)
               observed: what no entry allows passes all the same, and is recorded
direct, past the name gate: whatever else is at their addresses is reached as well
               s3.corp.example direct  (policy.yaml:5)
by address alone: no name is looked at on these ports. Where they carry TLS or HTTP, write tls or http behind the entry
               old.corp.example:9000  (policy.yaml:6)
`
	got := string(bytes.ReplaceAll(stdout.Bytes(), []byte(filepath.Dir(file)+"/"), nil))
	if code != fault.OK || got != want || stderr.Len() > 0 {
		t.Errorf("code %d, %s\ngot\n%s\nwant\n%s", code, stderr.String(), got, want)
	}
}
