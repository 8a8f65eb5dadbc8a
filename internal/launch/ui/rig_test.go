package ui

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/launch"
)

// Containers of the fake engine's.
const (
	one = "1111111111111111111111111111111111111111111111111111111111111111"
	two = "2222222222222222222222222222222222222222222222222222222222222222"
)

// engineScript stands in for docker: it writes down how it was called, and prints what the test put into files.
const engineScript = `#!/bin/sh
here=${0%/*}
case "$1 $2" in
"ps "*) cat "$here/ids" ;;
"container inspect") cat "$here/containers.json" ;;
"images "*) echo sha256:1 ;;
"image inspect") cat "$here/images.json" ;;
"stop "* | "run "*) echo "$*" >>"$here/calls" ;;
"info "*) echo "[]" ;;
"create "*) echo made ;;
"cp "*) tar -chf - -C "$here" agent-init ;;
"rm "*) ;;
"exec "*)
	tty=$2
	while [ "${1##*/}" != agent-init ]; do c=$1; shift; done
	shift
	case "$1 $2" in
	"grants --json") cat "$here/$c.grants" ;;
	"status --json") cat "$here/$c.status"; grep -q '"healthy": *true' "$here/$c.status" ;; # which is its exit code
	log*) echo "$c $*" >>"$here/calls"; cat "$here/$c.log" ;;
	attach*) echo "$c $tty $*" >>"$here/calls"; . "$here/attach" ;;
	*) echo "$c $*" >>"$here/calls"; echo "$*"; echo "warning: it was asked for" >&2 ;;
	esac ;;
*) echo "unknown: $*" >&2; exit 1 ;;
esac
`

// rig is a server, and an engine with two containers.
type rig struct {
	t      *testing.T
	server *Server
	dir    string // of the engine
	pass   pass
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, dir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(r.dir, "docker"), []byte(engineScript), 0o755); err != nil {
		t.Fatal(err)
	}
	r.containers(map[string]string{one: "agent-one", two: "agent-two"})
	r.put("images.json", `[{"Id":"sha256:1","RepoTags":["agent-claude:latest"],"Config":{"Labels":{"org.agent-init.agent":"claude","org.agent-init.base":"debian"}}}]`)
	program, err := filepath.Abs("../testdata/agent-init") // what the image has
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(r.dir, "agent-init")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{one, two} {
		r.put(c+".grants", `{"version":1,"grants":[]}`)
		r.put(c+".status", `{"healthy":true,"phase":"ready","mode":"run"}`)
		r.put(c+".log", "12:00:00 allowed api.example.com\n")
	}
	r.put("attach", "stty -echo; echo attached; cat")
	s, err := New(launch.Engine{Name: "docker", Path: filepath.Join(r.dir, "docker")}, nil, "/home/person/project")
	if err != nil {
		t.Fatal(err)
	}
	r.server = s
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return r
}

// containers are what the engine lists.
func (r *rig) containers(names map[string]string) {
	var list []map[string]any
	var ids strings.Builder
	for id, name := range names {
		fmt.Fprintln(&ids, id)
		list = append(list, map[string]any{
			"Id": id, "Name": "/" + name, "Created": "2026-01-02T03:04:05Z",
			"State":  map[string]any{"Status": "running", "Running": true},
			"Config": map[string]any{"Image": "agent-claude", "Labels": map[string]string{"org.agent-init.agent": "claude"}},
			"Mounts": []map[string]string{{"Type": "bind", "Source": "/home/person/" + name, "Destination": "/workspace"}},
		})
	}
	raw, err := json.Marshal(list)
	if err != nil {
		r.t.Fatal(err)
	}
	r.put("ids", ids.String())
	r.put("containers.json", string(raw))
}

// put replaces a file of the engine's at once: it may be reading it.
func (r *rig) put(name, data string) {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.WriteFile(path+".new", []byte(data), 0o644); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		r.t.Fatal(err)
	}
}

// asks puts a request of the agent's into a container.
func (r *rig) asks(container string, number int, target, reason string) {
	r.t.Helper()
	raw, err := json.Marshal(map[string]any{"version": 1, "grants": []map[string]any{{
		"number": number, "kind": "request", "target": target, "reason": reason, "uid": 1000, "pid": 77,
		"made": "2026-01-02T03:04:05Z", "asked": 1,
	}}})
	if err != nil {
		r.t.Fatal(err)
	}
	r.put(container+".grants", string(raw))
}

// calls are what the engine was told to do.
func (r *rig) calls() string {
	raw, err := os.ReadFile(filepath.Join(r.dir, "calls"))
	if err != nil && !os.IsNotExist(err) {
		r.t.Fatal(err)
	}
	return string(raw)
}

// enter comes in by a link, as the page does.
func (r *rig) enter() {
	r.t.Helper()
	_, token, _ := strings.Cut(r.server.Link(), "#")
	a := r.send(r.request("POST", "/api/enter", `{"token":"`+token+`"}`))
	if a.status != http.StatusOK {
		r.t.Fatalf("enter: %d %s", a.status, a.body)
	}
	var said struct{ Key string }
	if err := json.Unmarshal([]byte(a.body), &said); err != nil {
		r.t.Fatal(err)
	}
	set := (&http.Response{Header: a.header}).Cookies()
	if len(set) != 1 {
		r.t.Fatalf("cookies: %v", set)
	}
	r.pass = pass{set[0].Value, said.Key}
}

// request is one that the page makes, as a browser sends it.
func (r *rig) request(method, path, body string) *http.Request {
	q, err := http.NewRequest(method, "http://"+r.server.host+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if method != "GET" {
		q.Header.Set("Origin", "http://"+r.server.host)
		q.Header.Set("Content-Type", "application/json")
	}
	q.Header.Set("Sec-Fetch-Site", "same-origin")
	q.Header.Set("Sec-Fetch-Mode", "cors")
	q.Header.Set("Sec-Fetch-Dest", "empty")
	if r.pass.key != "" {
		q.Header.Set(keyHeader, r.pass.key)
	}
	if r.pass.cookie != "" {
		q.AddCookie(&http.Cookie{Name: cookieName(r.server.port), Value: r.pass.cookie})
	}
	return q
}

type answered struct {
	status int
	header http.Header
	body   string
}

// send asks on a connection of its own.
func (r *rig) send(q *http.Request) answered {
	r.t.Helper()
	conn := r.dial()
	defer conn.Close()
	q.Close = q.Header.Get("Upgrade") == ""
	if err := q.Write(conn); err != nil {
		r.t.Fatal(err)
	}
	return r.answer(conn)
}

func (r *rig) dial() net.Conn {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.server.host)
	if err != nil {
		r.t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(time.Minute))
	return conn
}

func (r *rig) answer(conn net.Conn) answered { return r.answerTo("GET", conn) }

func (r *rig) answerTo(method string, conn net.Conn) answered {
	r.t.Helper()
	a, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		r.t.Fatal(err)
	}
	defer a.Body.Close()
	if a.StatusCode == http.StatusSwitchingProtocols {
		return answered{a.StatusCode, a.Header, ""}
	}
	raw, err := io.ReadAll(a.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return answered{a.StatusCode, a.Header, string(raw)}
}

// raw sends bytes, and reads one answer.
func (r *rig) raw(lines ...string) answered {
	r.t.Helper()
	conn := r.dial()
	defer conn.Close()
	if _, err := io.WriteString(conn, strings.Join(lines, "\r\n")+"\r\n\r\n"); err != nil {
		r.t.Fatal(err)
	}
	method, _, _ := strings.Cut(lines[0], " ")
	return r.answerTo(method, conn)
}

// fleet is what the page is shown, once every container has answered.
func (r *rig) fleet() fleetView {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		a := r.send(r.request("GET", "/api/fleet", ""))
		if a.status != http.StatusOK {
			r.t.Fatalf("fleet: %d %s", a.status, a.body)
		}
		var v fleetView
		if err := json.Unmarshal([]byte(a.body), &v); err != nil {
			r.t.Fatal(err)
		}
		all := true
		for _, c := range v.Containers {
			all = all && (c.Known || c.Fault != "")
		}
		if all || time.Now().After(end) {
			return v
		}
	}
}
