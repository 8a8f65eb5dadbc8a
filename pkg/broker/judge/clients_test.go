package judge

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// sent is a request as a client has sent it, with its texts cut short.
type sent struct {
	Client, Route, Path string
	Body                json.RawMessage
}

// clients are requests of testdata/clients.jsonl: a prompt by which a command was run, by each client and each API.
func clients(t testing.TB) []sent {
	t.Helper()
	f, err := os.Open("testdata/clients.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []sent
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var s sent
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	if lines.Err() != nil || len(all) < 60 {
		t.Fatal(len(all), lines.Err())
	}
	return all
}

// TestClients lets pass what clients send.
func TestClients(t *testing.T) {
	for _, s := range clients(t) {
		var top struct{ Model string }
		if err := json.Unmarshal(s.Body, &top); err != nil {
			t.Fatal(err)
		}
		want := Told{Model: top.Model, Stream: true, CountsUsage: true}
		if _, after, ok := strings.Cut(s.Path, "/models/"); ok {
			want.Model, _, _ = strings.Cut(after, ":")
		}
		a := asked{route: s.Route, path: s.Path, body: string(s.Body)}
		a.passes(t, s.Client+" by "+s.Route, want)
	}
}
