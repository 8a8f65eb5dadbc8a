package main

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// model is how a program finds the API of a language model: where it is told to ask, and with what.
type model struct {
	base   []string // variables with a URL
	path   string   // that the URL ends in, and paths begin with
	keys   []string // variables with the key
	header func(http.Header, string)
}

var models = map[string]model{
	"anthropic": {base: []string{"ANTHROPIC_BASE_URL"}, keys: []string{"ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY"},
		header: func(h http.Header, key string) { h.Set("X-Api-Key", key) }},
	"openai": {base: []string{"OPENAI_BASE_URL"}, path: "/v1", keys: []string{"OPENAI_API_KEY"},
		header: func(h http.Header, key string) { h.Set("Authorization", "Bearer "+key) }},
	"gemini": {base: []string{"GOOGLE_GEMINI_BASE_URL"}, keys: []string{"GEMINI_API_KEY"},
		header: func(h http.Header, key string) { h.Set("X-Goog-Api-Key", key) }},
}

// settings are where agent-init's broker leaves its variables for programs that it does not start.
var settings = []string{"/run/agent-init/broker.env", "/run/agent-env/broker.env"}

func variables() map[string]string {
	out := map[string]string{}
	for _, v := range os.Environ() {
		name, value, _ := strings.Cut(v, "=")
		out[name] = value
	}
	for _, file := range settings {
		f, err := os.Open(file)
		if err != nil {
			continue
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if name, value, ok := strings.Cut(strings.TrimPrefix(lines.Text(), "export "), "="); ok {
				out[name] = strings.Trim(value, `'"`)
			}
		}
	}
	return out
}

func first(env map[string]string, names []string) (value string) {
	for _, n := range names {
		value = cmp.Or(value, env[n])
	}
	return value
}

// askModel asks the API of a model as a program of the agent's would.
func askModel(args []string) (detail, error) {
	fs := flags("model")
	body := fs.String("body", "", "")
	key := fs.String("key", "", "instead of the agent's own")
	none := fs.Bool("keyless", false, "without any")
	method := fs.String("method", "POST", "")
	host := fs.String("host", "", "Host header")
	zip := fs.Bool("gzip", false, "send the body compressed")
	timeout := fs.Duration("timeout", 10*time.Second, "in all")
	var heads list
	fs.Var(&heads, "header", "NAME: VALUE, besides")
	a, err := parse(fs, args, 2)
	if err != nil {
		return nil, err
	}
	m, known := models[a[0]]
	if !known {
		return nil, usage("no model %q", a[0])
	}
	env := variables()
	base := strings.TrimSuffix(first(env, m.base), m.path)
	base = cmp.Or(base, "https://"+a[0]+".model.test")
	send := []byte(*body)
	if *zip {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, _ = w.Write(send) // to memory
		_ = w.Close()
		send = packed.Bytes()
		heads = append(heads, "Content-Encoding: gzip")
	}
	req, err := http.NewRequest(*method, base+a[1], bytes.NewReader(send))
	if err != nil {
		return nil, usage("%v", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Anthropic-Version", "2023-06-01")
	if !*none {
		m.header(req.Header, cmp.Or(*key, first(env, m.keys)))
	}
	for _, h := range heads {
		name, value, _ := strings.Cut(h, ":")
		req.Header.Set(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	req.Host = cmp.Or(*host, req.Host)
	client := &http.Client{Timeout: *timeout, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	out := detail{"status": resp.StatusCode, "body": string(got)}
	if err == nil && resp.StatusCode >= 400 {
		err = fmt.Errorf("status %s", resp.Status)
	}
	if json.Valid(got) {
		out["json"] = json.RawMessage(got)
	}
	return out, err
}

// list is a flag that may be given several times.
type list []string

func (l *list) String() string     { return strings.Join(*l, ", ") }
func (l *list) Set(v string) error { *l = append(*l, v); return nil }
