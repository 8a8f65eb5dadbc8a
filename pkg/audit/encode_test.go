package audit

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

// goldenEvents hold every field and every kind at least once.
func goldenEvents() []Event {
	uid := uint32(1000)
	at := time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.UTC)
	return []Event{
		{Seq: 1, Time: at, Kind: Policy, Verdict: Info, Reason: "loaded 3 files"},
		{Seq: 2, Time: at, Kind: DNS, Verdict: Deny, Name: "evil.example", Proto: "udp", Reason: "not in the allowlist"},
		{Seq: 3, Time: at, Kind: DNS, Verdict: Allow, Name: "api.anthropic.com", Rule: "allowlist.txt:3"},
		{Seq: 4, Time: at, Kind: Drop, Verdict: Deny, IP: "1.1.1.1", Port: 443, Proto: "tcp", UID: &uid, PID: 42, Comm: "curl", Suppressed: 7},
		{Seq: 5, Time: at, Kind: Connect, Verdict: Deny, Name: `a","verdict":"allow","x":"`, IP: "2001:db8::1", Port: 443, Proto: "tcp", Reason: "server name"},
		{Seq: 6, Time: at, Kind: HTTP, Verdict: Deny, Name: "evil.example\r\n\x1b[2J{}", Port: 80, Proto: "tcp"},
		{Seq: 7, Time: at, Kind: Grant, Verdict: Allow, Name: "pypi.org", Reason: "10m: install <&> build"},
		{Seq: 8, Time: at, Kind: SelfTest, Verdict: Fault, Reason: "1.1.1.1:443 answered over TCP"},
		{Seq: 9, Time: at, Kind: Guard, Verdict: Fault, Reason: "exited: signal: killed \u2028\u009b\u202e\xff\x7f"},
		{Seq: 10, Time: at, Kind: Session, Verdict: Info, PID: 7, Comm: "claude \U0001F600"},
		{Seq: 11, Time: at, Kind: DNS, Verdict: Allow, Enforce: Deny, Name: "new.example", IP: "192.0.2.1", Reason: "monitor: not in the allowlist"},
		{Seq: 12, Time: at, Kind: Connect, Verdict: Allow, Name: "ok.example", IP: "192.0.2.1", Port: 443, Proto: "tcp", Rule: "allowlist.txt:1", Reason: "closed",
			Out: 517, In: 1 << 40, Millis: 12, Suppressed: 3},
		{Seq: 13, Time: at, Kind: Broker, Verdict: Allow, Name: "api.anthropic.com", Port: 443, UID: &uid, Route: "anthropic", Method: "POST", Path: "/v1/messages",
			Model: "claude-opus-5-5", Status: 200, Out: 20314, In: 4096, TokensIn: 5123, TokensOut: 207, Millis: 2931, Key: "d9d93430"},
		{Seq: 14, Time: at, Kind: DNS, Verdict: Deny, Name: "evil.example", Reason: "not in the allowlist", Prev: hashOf([]byte("the line before"))},
		{Seq: 15, Time: at, Kind: Phase, Verdict: Info, UID: new(uint32), PID: 7, Reason: "from setup to run by a command, proved by 103 checks in 84ms"},
	}
}

func TestSchemaGolden(t *testing.T) {
	want, err := os.ReadFile("testdata/schema.golden.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var got []byte
	for _, e := range goldenEvents() {
		got = append(append(got, Encode(e)...), '\n')
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the schema is a public contract; got:\n%s\nwant:\n%s", got, want)
	}
}

// checkLine holds for each line whatever it was made from.
func checkLine(t *testing.T, line []byte) {
	t.Helper()
	if len(line) > maxEncoded {
		t.Errorf("%d bytes, more than %d", len(line), maxEncoded)
	}
	for _, b := range line {
		if b < 0x20 || b > 0x7e {
			t.Fatalf("byte %#x in %q", b, line)
		}
	}
	if !json.Valid(line) {
		t.Errorf("not JSON: %q", line)
	}
	if _, err := Decode(line); err != nil {
		t.Errorf("does not decode: %v", err)
	}
}

// E74: nothing that an attacker chooses can forge a line or reach a terminal.
func TestE74Injection(t *testing.T) {
	long := map[string]string{
		"quotes": strings.Repeat(`"`, 5000), "nul": strings.Repeat("\x00", 5000), "emoji": strings.Repeat("\U0001F600", 5000),
		"invalid": strings.Repeat("a\xff", 5000), "c1": strings.Repeat("\u009b", 5000), "plain": strings.Repeat("x", 5000),
		"forged": "x\"}\n{\"seq\":1,\"event\":\"dns\",\"verdict\":\"allow\"}", "html": strings.Repeat("<", 5000),
	}
	for name, s := range long {
		t.Run(name, func(t *testing.T) {
			uid := ^uint32(0)
			e := Event{Seq: ^uint64(0), Out: ^uint64(0), In: ^uint64(0), Millis: ^uint64(0), Time: time.Date(99999, 1, 1, 0, 0, 0, 0, time.UTC), Kind: Kind(s), Verdict: Verdict(s), Name: s, IP: s,
				Port: 65535, Proto: s, Rule: s, Reason: s, UID: &uid, PID: -1 << 62, Comm: s, Suppressed: ^uint64(0),
				Enforce: Verdict(s), Asker: Asker(s), Route: s, Method: s, Path: s, Model: s, Status: 65535, TokensIn: ^uint64(0), TokensOut: ^uint64(0), Key: s, Prev: s}
			line := Encode(e)
			checkLine(t, line)
			again, err := Decode(line)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(Encode(again), line) {
				t.Error("an event changes when it is encoded again")
			}
		})
	}
}

func TestCapText(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", ""}, {"12345678", "12345678"}, {"123456789", "12345678"}, {"\x00aaa", "\x00aa"},
		{"aaa\x00", "aaa"}, {"éaaa", "éaa"}, {"\U0001F600", ""}, {"ab\xff", "ab\ufffd"}, {`"""""`, `""""`},
	}
	for _, tt := range tests {
		if got := capText(tt.in, 8); got != tt.want {
			t.Errorf("capText(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}

func TestDecodeStrict(t *testing.T) {
	tests := map[string]string{
		"empty":         "",
		"null":          "null",
		"array":         "[]",
		"two objects":   `{"event":"dns"}{"event":"dns"}`,
		"trailing":      `{"event":"dns"} x`,
		"unknown field": `{"event":"dns","root":true}`,
		"port range":    `{"event":"dns","port":65536}`,
		"wrong type":    `{"event":1}`,
		"long":          `{"event":"dns","name":"` + strings.Repeat("a", maxEncoded) + `"}`,
		"torn":          `{"event":"dns","na`,
		"deep":          strings.Repeat(`{"name":`, 300),
	}
	for name, raw := range tests {
		if e, err := Decode([]byte(raw)); err == nil {
			t.Errorf("%s: decoded as %+v", name, e)
		}
	}
}

func FuzzEncode(f *testing.F) {
	f.Add("evil.example", "not in the allowlist", "curl", int64(0))
	f.Add("a\",\"verdict\":\"allow\"", "\x1b[2J\r\n", "\u2028\u009b\u202e", int64(1<<62))
	f.Fuzz(func(t *testing.T, name, reason, comm string, sec int64) {
		e := Event{Time: time.Unix(sec, 0), Kind: Kind(comm), Verdict: Deny, Name: name, IP: reason, Proto: name, Rule: reason, Reason: reason, Comm: comm}
		line := Encode(e)
		checkLine(t, line)
		again, err := Decode(line)
		if err != nil || !bytes.Equal(Encode(again), line) {
			t.Errorf("not stable: %q, %v", line, err)
		}
	})
}

func FuzzDecode(f *testing.F) {
	for _, e := range goldenEvents() {
		f.Add(Encode(e))
	}
	f.Add([]byte(`{"event":"dns","verdict":"allow"}{"event":"policy"}`))
	f.Add([]byte("{\"event\":\"dns\",\"verdict\":\"allow\",\"name\":\"\xff\u2028\"}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if e, err := Decode(raw); err == nil {
			checkLine(t, Encode(e))
		}
	})
}
