package approvals

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/agent-init/agent-init/internal/approval"
	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/pkg/policy"
)

const secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

// rig is what an example works against: the key, and a request of a container.
type rig struct {
	*testing.T
	dir  string
	key  approval.Key
	desk *approval.Desk
	ask  approval.Ask
}

func newRig(t *testing.T) *rig {
	t.Helper()
	mustrun.Tool(t, "python3")
	r := &rig{T: t, dir: t.TempDir(), desk: approval.NewDesk("agent-0")}
	r.must(os.WriteFile(filepath.Join(r.dir, "secret"), []byte(secret+"\n"), 0o600))
	var err error
	r.key, err = approval.ParseKey([]byte(secret))
	r.must(err)
	r.ask = r.desk.Ask(3, "api.example.com GET /v1/**", 10*time.Minute, time.Now(), time.Now().Add(time.Hour))
	return r
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// judge is what the keeper makes of an answer.
func (r *rig) judge(line string) approval.Answer {
	r.Helper()
	a, err := r.key.Read(line)
	if err == nil {
		err = a.Meets(r.desk, &r.ask, time.Now())
	}
	if err != nil {
		r.Errorf("%q: %v", line, err)
	}
	return a
}

// serve starts a receiver, and returns its address and its standard input and output.
func (r *rig) serve(env []string, script string, args ...string) (base string, in io.Writer, out *bufio.Reader) {
	r.Helper()
	c := exec.Command("python3", append([]string{script, filepath.Join(r.dir, "secret")}, args...)...)
	c.Env, c.Stderr = append(os.Environ(), env...), r.Output()
	stdin, err := c.StdinPipe()
	r.must(err)
	stdout, err := c.StdoutPipe()
	r.must(err)
	r.must(c.Start())
	r.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	out = bufio.NewReader(stdout)
	line, err := out.ReadString('\n')
	r.must(err)
	port := regexp.MustCompile(`port (\d+)`).FindStringSubmatch(line)
	if port == nil {
		r.Fatalf("it says %q", line)
	}
	return "http://127.0.0.1:" + port[1], stdin, out
}

// hook posts a request, as the broker does.
func (r *rig) hook(to string, key approval.Key, at time.Time) (int, string) {
	r.Helper()
	body, err := json.Marshal(map[string]any{"event": "requested", "text": "request 3: api.example.com", "container": "agent-0",
		"approval": struct {
			approval.Ask
			Means []string `json:"means"`
		}{r.ask, []string{"a block: each address in it is opened"}}})
	r.must(err)
	q, err := http.NewRequest(http.MethodPost, to, bytes.NewReader(body))
	r.must(err)
	for name, value := range key.Headers("x-3-requested", at, body) {
		q.Header.Set(name, value)
	}
	return r.do(q)
}

func (r *rig) do(q *http.Request) (int, string) {
	r.Helper()
	a, err := http.DefaultClient.Do(q)
	r.must(err)
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	r.must(err)
	return a.StatusCode, string(text)
}

// unsigned posts what no agent-init has signed.
func (r *rig) unsigned(to string) {
	r.Helper()
	for what, c := range map[string]struct {
		key approval.Key
		at  time.Time
	}{"another key": {approval.Key("another key, of the same length."), time.Now()}, "an old one": {r.key, time.Now().Add(-time.Hour)}} {
		if code, _ := r.hook(to, c.key, c.at); code != http.StatusUnauthorized {
			r.Errorf("%s: status %d", what, code)
		}
	}
}

// TestTerminal: the person at the terminal is asked, and the webhook answered.
func TestTerminal(t *testing.T) {
	r := newRig(t)
	base, in, out := r.serve(nil, "terminal.py", "0")
	r.unsigned(base)
	for typed, want := range map[string]int64{"60\n": 60, "9999\n": 600, "0\n": 0, "what?\n": 0} {
		got := make(chan string, 1)
		go func() {
			_, line := r.hook(base, r.key, time.Now())
			got <- line
		}()
		shown, err := out.ReadString('?')
		r.must(err)
		if !strings.Contains(shown, "agent-0: request 3: api.example.com\n  a block: ") || !strings.Contains(shown, "600 at most") {
			t.Errorf("shown %q", shown)
		}
		_, err = io.WriteString(in, typed)
		r.must(err)
		line := <-got
		if a := r.judge(line); a.Seconds != want || a.Allow != (want > 0) {
			t.Errorf("%q gives %+v", typed, a)
		}
	}
}

// TestSlack: the channel is asked, and a button of one who may press it is an answer.
func TestSlack(t *testing.T) {
	r := newRig(t)
	posted := make(chan map[string]any, 8)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		var m map[string]any
		if err := json.NewDecoder(q.Body).Decode(&m); err != nil || q.URL.Path != "/chat.postMessage" || q.Header.Get("Authorization") != "Bearer xoxb" {
			t.Errorf("%s: %v", q.URL, err)
		}
		posted <- m
		_, _ = io.WriteString(w, `{"ok": true}`)
	}))
	defer api.Close()
	env := []string{"SLACK_TOKEN=xoxb", "SLACK_SIGNING_SECRET=shh", "SLACK_CHANNEL=C1", "SLACK_APPROVERS=U1,U2", "SLACK_API=" + api.URL + "/"}
	base, _, _ := r.serve(env, "slack.py", r.dir, "0")
	r.unsigned(base)
	if code, line := r.hook(base, r.key, time.Now()); code != http.StatusOK || line != "" {
		t.Fatalf("%d %q", code, line)
	}
	message := <-posted
	var values = regexp.MustCompile(`"value":("(?:[^"\\]|\\.)*")`).FindAllStringSubmatch(string(must(json.Marshal(message))), -1)
	if message["channel"] != "C1" || len(values) != 2 {
		t.Fatalf("%v", message)
	}
	var value string
	r.must(json.Unmarshal([]byte(values[0][1]), &value))
	press := func(user, verdict, signing string, at time.Time) int {
		t.Helper()
		payload := must(json.Marshal(map[string]any{"user": map[string]string{"id": user, "username": "änn|x"}, "actions": []any{map[string]string{"action_id": verdict, "value": value}}}))
		body := url.Values{"payload": {string(payload)}}.Encode()
		q, err := http.NewRequest(http.MethodPost, base+"/slack", strings.NewReader(body))
		r.must(err)
		stamp := fmt.Sprint(at.Unix())
		mac := hmac.New(sha256.New, []byte(signing))
		mac.Write([]byte("v0:" + stamp + ":" + body))
		q.Header.Set("X-Slack-Request-Timestamp", stamp)
		q.Header.Set("X-Slack-Signature", "v0="+hex.EncodeToString(mac.Sum(nil)))
		code, _ := r.do(q)
		return code
	}
	if press("U1", "allow", "guessed", time.Now()) != http.StatusUnauthorized || press("U1", "allow", "shh", time.Now().Add(-time.Hour)) != http.StatusUnauthorized {
		t.Error("who is not Slack can press")
	}
	answers := filepath.Join(r.dir, r.ask.Container)
	press("U9", "allow", "shh", time.Now())
	if _, err := os.Stat(answers); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one who may not has pressed: %v", err)
	}
	answer := func() approval.Answer {
		t.Helper()
		files := must(policy.ReadDrop(answers, approval.MaxAnswers, approval.MaxLine+1))
		if len(files) != 1 {
			t.Fatalf("there are %d answers", len(files))
		}
		return r.judge(strings.TrimSuffix(string(files[0].Data), "\n"))
	}
	press("U2", "allow", "shh", time.Now())
	if a := answer(); !a.Allow || a.Seconds != 600 || a.Who != "slack:?nn?x" {
		t.Errorf("%+v", a)
	}
	press("U1", "deny", "shh", time.Now())
	if a := answer(); a.Allow {
		t.Errorf("%+v", a)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// fakeKubectl answers as a cluster would, and writes down what it was told.
const fakeKubectl = `#!/bin/sh
printf '%s\n' "$*" >> "$DIR/told"
case "$*" in
*"get secret"*) cat "$DIR/secret.json";;
*logs*) cat "$DIR/log";;
*annotate*) for last; do :; done; printf %s "${last#*=}" > "$DIR/answer";;
*patch*) for last; do :; done; printf %s "$last" > "$DIR/patch";;
esac
`

// TestKubectlApprove: what the pod has asked for, and what its agent only pretends it has, and an answer in the pod's
// annotation.
func TestKubectlApprove(t *testing.T) {
	r := newRig(t)
	put := func(name, text string, mode os.FileMode) {
		r.must(os.WriteFile(filepath.Join(r.dir, name), []byte(text), mode))
	}
	put("kubectl", fakeKubectl, 0o755)
	put("secret.json", `{"data": {"key": "`+base64.StdEncoding.EncodeToString([]byte(secret+"\n"))+`"}}`, 0o600)
	forged := r.ask
	forged.Target = "evil.example.com"
	put("log", fmt.Sprintf("hello\nlevel=WARN msg=\"people elsewhere may answer\" ask=%q\nlevel=WARN ask=%q\nask=%q\n", r.key.Line(r.ask),
		approval.Key("another key, of the same length.").Line(forged), strings.Replace(r.key.Line(r.ask), "|3|", "|4|", 1)), 0o600)
	run := func(code int, args ...string) string {
		t.Helper()
		c := exec.Command("python3", append([]string{"kubectl-approve"}, args...)...)
		c.Env = append(os.Environ(), "PATH="+r.dir+":"+os.Getenv("PATH"), "DIR="+r.dir, "LOGNAME=ann")
		out, _ := c.CombinedOutput()
		if got := c.ProcessState.ExitCode(); got != code {
			t.Fatalf("%q: exit %d: %s", args, got, out)
		}
		return string(out)
	}
	if out := run(0, "agent", "-n", "prod"); !strings.Contains(out, "3  api.example.com GET /v1/**  for 600 s at most") || strings.Contains(out, "evil") || strings.Count(out, "\n") != 1 {
		t.Errorf("it lists %q", out)
	}
	run(1, "agent", "4")
	run(0, "agent", "3", "--seconds", "9999", "--reason", "one | build")
	if a := r.judge(string(must(os.ReadFile(filepath.Join(r.dir, "answer"))))); !a.Allow || a.Seconds != 600 || a.Who != "kubectl:ann" {
		t.Errorf("%+v", a)
	}
	run(0, "agent", "3", "--deny", "--configmap", "agent-answers", "-c", "agent")
	var patch struct{ Data map[string]string }
	r.must(json.Unmarshal(must(os.ReadFile(filepath.Join(r.dir, "patch"))), &patch))
	if a := r.judge(patch.Data["answer"]); a.Allow {
		t.Errorf("%+v", a)
	}
	if told := string(must(os.ReadFile(filepath.Join(r.dir, "told")))); !strings.Contains(told, "-n prod logs agent") || !strings.Contains(told, "annotate --overwrite pod agent agent-init.org/answer=") {
		t.Errorf("kubectl was told %s", told)
	}
}

// TestManifest: the annotation and the ConfigMap come in where the policy looks, the key as the agent can't read it, and
// the role has the names that kubectl-approve uses.
func TestManifest(t *testing.T) {
	data := string(must(os.ReadFile("kubernetes.yaml")))
	for i, one := range strings.Split(data, "\n---\n") {
		var any map[string]any
		if err := yaml.Unmarshal([]byte(one), &any); err != nil || any["kind"] == nil {
			t.Errorf("document %d: %v", i, err)
		}
	}
	script := string(must(os.ReadFile("kubectl-approve")))
	for text, in := range map[string][]string{
		"agent-init.org/answer": {data, script}, "agent-init-approvals": {data, script}, "metadata.annotations['agent-init.org/answer']": {data},
		"defaultMode: 0400": {data}, "directory: /run/approvals": {data}, "mountPath: /run/approvals": {data},
	} {
		for _, where := range in {
			if !strings.Contains(where, text) {
				t.Errorf("no %q", text)
			}
		}
	}
}
