package control

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestParseRequest(t *testing.T) {
	for name, tc := range map[string]struct {
		line string
		ok   bool
	}{
		"whole":                   {`{"version":1,"verb":"allow","target":"api.example.com:443","reason":"why","seconds":600,"number":3}`, true},
		"least":                   {`{"version":1,"verb":"grants"}`, true},
		"blanks around":           {" {\"version\":1,\"verb\":\"grants\"} \r\n", true},
		"letters of others":       {`{"version":1,"verb":"allow","target":"münchen.example"}`, true},
		"empty":                   {``, false},
		"null":                    {`null`, false},
		"list":                    {`[{"version":1,"verb":"grants"}]`, false},
		"no version":              {`{"verb":"grants"}`, false},
		"another version":         {`{"version":2,"verb":"grants"}`, false},
		"no verb":                 {`{"version":1}`, false},
		"verb with a slash":       {`{"version":1,"verb":"../x"}`, false},
		"long verb":               {`{"version":1,"verb":"` + strings.Repeat("a", 17) + `"}`, false},
		"unknown field":           {`{"version":1,"verb":"grants","uid":0}`, false},
		"two requests":            {`{"version":1,"verb":"grants"}{"version":1,"verb":"grants"}`, false},
		"cut off":                 {`{"version":1,"verb":"gr`, false},
		"long target":             {`{"version":1,"verb":"allow","target":"` + strings.Repeat("a", maxTarget+1) + `"}`, false},
		"line in a target":        {`{"version":1,"verb":"allow","target":"a.example\n*.example.com"}`, false},
		"escape in reason":        {`{"version":1,"verb":"allow","target":"a.example","reason":"\u001b[2J"}`, false},
		"c1 in reason":            {`{"version":1,"verb":"allow","reason":"\u009b2J"}`, false},
		"order of letters":        {`{"version":1,"verb":"allow","reason":"\u202e"}`, false},
		"long reason":             {`{"version":1,"verb":"allow","reason":"` + strings.Repeat("a", maxReason+1) + `"}`, false},
		"until it ends":           {`{"version":1,"verb":"allow","target":"a.example","seconds":-1}`, true},
		"for good":                {`{"version":1,"verb":"allow","target":"a.example","save":true}`, true},
		"for good and for a time": {`{"version":1,"verb":"allow","target":"a.example","save":true,"seconds":60}`, false},
		"negative time":           {`{"version":1,"verb":"allow","seconds":-2}`, false},
		"time for ever":           {`{"version":1,"verb":"allow","seconds":9223372036854775807}`, false},
		"time overflows":          {`{"version":1,"verb":"allow","seconds":92233720368547758070}`, false},
		"negative number":         {`{"version":1,"verb":"allow","number":-1}`, false},
		"number overflows":        {`{"version":1,"verb":"allow","number":4294967296}`, false},
		"too long":                {`{"version":1,"verb":"grants"}` + strings.Repeat(" ", maxRequest), false},
		"deep":                    {strings.Repeat(`{"verb":`, 400), false},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := parseRequest([]byte(tc.line))
			if (err == nil) != tc.ok {
				t.Errorf("got %+v, %v", r, err)
			}
		})
	}
}

func FuzzParseRequest(f *testing.F) {
	for _, s := range []string{
		`{"version":1,"verb":"allow","target":"api.example.com:443","reason":"why","seconds":600,"number":3}`,
		`{"version":1,"verb":"request","target":"[2001:db8::1]:53/udp private"}`,
		`{"Version":1,"VERB":"grants"}`, `{"version":1e0,"verb":"a"}`, `null`, `{}`, `{"version":1,"verb":"a"} x`,
		`{"version":1,"verb":"a","reason":"\ud800"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := parseRequest(line)
		if err != nil {
			if r != (Request{}) {
				t.Errorf("an error, and %+v", r)
			}
			return
		}
		if len(line) > maxRequest || len(r.Target) > maxTarget || len(r.Reason) > maxReason || r.Seconds < 0 || r.Version != 1 || r.Verb == "" {
			t.Errorf("out of bounds: %+v", r)
		}
		for _, s := range []string{r.Verb, r.Target, r.Reason} {
			if strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c == 0x7f || c >= 0x80 && c < 0xa0 }) {
				t.Errorf("a control character in %q", s)
			}
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := parseRequest(again); err != nil || back != r {
			t.Errorf("%+v becomes %+v, %v", r, back, err)
		}
	})
}
