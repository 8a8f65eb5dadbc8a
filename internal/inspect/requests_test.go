package inspect

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/lab/golden"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

const inspectedList = `api.corp.example GET,HEAD /repos/my-org/**
api.corp.example POST /graphql graphql=query
api.corp.example PUT /up/* max_upload=64KiB
api.corp.example GET /live websocket
!api.corp.example * /repos/my-org/secret/**
seen.corp.example observe
plain.corp.example:8080 http GET /x
reg.corp.example:8443 tls
wiki.corp.example:8080 http
s3.corp.example direct
old.corp.example:9000
`

func inspectedPolicy(t *testing.T, log ...audit.Event) published {
	t.Helper()
	file := filepath.Join(t.TempDir(), audit.FileName)
	var lines []byte
	for _, e := range log {
		lines = append(append(lines, audit.Encode(e)...), '\n')
	}
	if err := os.WriteFile(file, lines, 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := policy.Parse(&policy.Bundle{Files: []policy.File{
		{Name: "allowlist.txt", Data: []byte(inspectedList)},
		{Name: "policy.yaml", Data: []byte("broker: {corp: {inspect: api.corp.example, credential: file:/run/secrets/corp, inject: {header: authorization}}}\n")},
	}}, allowlist.Files)
	if err != nil {
		t.Fatal(err)
	}
	s := &state.State{Phase: state.PhaseReady, Keeper: state.Self(), Audit: state.Audit{File: file}}
	return published{policy: p, dir: "/etc/agent-init", state: s}
}

func TestExplainRequests(t *testing.T) {
	p := inspectedPolicy(t)
	for asked, want := range map[string][]string{
		"api.corp.example": {
			"api.corp.example 443/tcp: allowed\n", "checked      each request, by the broker, where TLS ends\n",
			"requests     allowed: GET,HEAD /repos/my-org/**  (allowlist.txt:1)\n               allowed: POST /graphql graphql=query  (allowlist.txt:2)\n",
			"               denied: * /repos/my-org/secret/**  (allowlist.txt:5)\n",
			"credential   put on by the route corp (policy.yaml:1), where a request shows the agent's token\n", "!asked", "!to allow", "!80/tcp",
		},
		"https://api.corp.example/repos/my-org/x":            {"443/tcp: allowed\n", "asked        GET, HEAD /repos/my-org/x passes by allowlist.txt:1, without a body\n", "POST, PUT, PATCH, DELETE /repos/my-org/x is refused"},
		"GET https://api.corp.example/repos/my-org/x?y=z":    {"asked        GET /repos/my-org/x passes by allowlist.txt:1, without a body\n", "!refused"},
		"POST https://api.corp.example/repos/my-org/x":       {"443/tcp: denied, no entry allows such a request\n", "POST /repos/my-org/x is refused", "add this line", "\n  api.corp.example POST /repos/my-org/x\n", "agent-init allow 'api.corp.example POST /repos/my-org/x'"},
		"GET https://api.corp.example/repos/my-org/secret":   {"443/tcp: denied, denied by the policy\n", "rule         allowlist.txt:5  * /repos/my-org/secret/**\n", "take out what denies it, at allowlist.txt:5", "!add this line"},
		"POST https://api.corp.example/graphql":              {"rule         allowlist.txt:2  POST /graphql graphql=query\n", "POST /graphql passes by allowlist.txt:2, if it is a GraphQL query\n"},
		"PUT https://api.corp.example/up/x":                  {"PUT /up/x passes by allowlist.txt:3, with a body of 64KiB at most\n"},
		"wss://api.corp.example/live":                        {"GET /live passes by allowlist.txt:4\n"},
		"wss://api.corp.example/repos/my-org/x":              {"443/tcp: denied", "asks for a WebSocket"},
		"GET https://api.corp.example/repos/my-org/%2e%2e/x": {"443/tcp: denied", "is refused: the path has", "no entry could name it: ask for it in another way", "!add this line"},
		"DELETE https://seen.corp.example/x":                 {"443/tcp: allowed\n", "observed: what no entry allows passes all the same, and is recorded", "DELETE /x passes, and is recorded: "},
		"GET http://plain.corp.example:8080/y":               {"8080/tcp: denied", "checked      each request, by the broker; the port carries HTTP without TLS\n", "\n  plain.corp.example:8080 GET /y http\n"},
		"https://plain.corp.example:8080/x":                  {"8080/tcp: denied", "is refused: port 8080 carries http, and this is https\n", "!add this line"},
		"GET http://plain.corp.example:8080/x":               {"8080/tcp: allowed", "GET /x passes"},
		"POST http://api.corp.example/up":                    {"80/tcp: denied, the policy allows it on other ports only\n", "\n  api.corp.example:80 POST /up\n"},
		"api.corp.example:80":                                {"80/tcp: denied", "\n  api.corp.example:80 read\n"},
		"https://api.corp.example:8443/up":                   {"8443/tcp: denied", "\n  api.corp.example:8443 GET /up\n"},
		"api.corp.example:22":                                {"22/tcp: denied", "no line does beside the entries that there are"}, // the entry that denies is about all ports
		"GET https://api.corp.example/graphql":               {"allowlist.txt:2 allows this path by POST alone\n", "\n  api.corp.example GET /graphql graphql=query\n"},
		"POST https://api.corp.example/up/x":                 {"\n  api.corp.example POST /up/x max_upload=64KiB\n"},
		"GET https://api.corp.example/up/x":                  {"\n  api.corp.example GET /up/x\n"},
		"reg.corp.example:8443":                              {"8443/tcp: allowed", "the server name in the TLS handshake"},
		"wiki.corp.example:8080":                             {"8080/tcp: allowed", "the host of each request, and that"},
		"https://s3.corp.example/x":                          {"443/tcp: allowed", "nothing: allowlist.txt:10 says direct, so whatever else is at its addresses is reached as well", "!asked"},
		"old.corp.example:9000":                              {"9000/tcp: allowed", "a leased address passes as it is; the word tls or http has the name inside looked at"},
	} {
		method, target, ok := strings.Cut(asked, " ")
		if !ok {
			method, target = "", asked
		}
		s, err := parseSubject(target)
		if err != nil {
			t.Fatal(err)
		}
		s.request.method = method
		var b strings.Builder
		if err := explainSubject(p, s, noon).Write(&b, false); err != nil {
			t.Fatal(err)
		}
		for _, w := range want {
			absent, not := strings.CutPrefix(w, "!")
			if strings.Contains(b.String(), absent) == not {
				t.Errorf("%s: %q in\n%s", asked, w, b.String())
			}
		}
	}
}

func TestExplainRequestsAsJSON(t *testing.T) {
	s, err := parseSubject("https://api.corp.example/graphql")
	if err != nil {
		t.Fatal(err)
	}
	golden.JSON(t, "explainrequests.golden.json", explainSubject(inspectedPolicy(t), s, noon))
}
