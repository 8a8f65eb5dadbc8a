package scorecard

import (
	"slices"
	"strings"
	"testing"
)

// TestProxied: what a proxy could do for an attacker is asked of it, in each way.
func TestProxied(t *testing.T) {
	s := &Setting{Allowed: "api.anthropic.com", Wildcard: "cdn.test", Proxies: []string{"P"}}
	for op, want := range map[string][]string{
		"tcp 45.31.21.1:443":                         {"tcp -proxy P 45.31.21.1:443"},
		"tcp -hex 16 45.30.0.1:443":                  {"tcp -proxy P -hex 16 45.30.0.1:443", "tcp -proxy P -hex 16 api.anthropic.com:443"},
		"tcp [2a0f:30::1]:22":                        {"tcp -proxy P [2a0f:30::1]:22", "tcp -proxy P api.anthropic.com:22"},
		"tcp -opt 1:36:1 45.31.1.1:80":               nil,
		"tcp -esc GET_/ 45.30.0.1:80":                {"tcp -proxy P -esc GET_/ 45.30.0.1:80", "tcp -proxy P -esc GET_/ api.anthropic.com:80", "tcp -proxy P -bare -esc GET_/ 45.30.0.1:80", "tcp -proxy P -bare -esc GET_http://api.anthropic.com/ 45.30.0.1:80"},
		"http -addr 45.30.0.1:443 https://x/":        {"http -proxy P -addr 45.30.0.1:443 https://x/", "http -proxy P -addr api.anthropic.com:443 https://x/"},
		"dns -n 40 9.9.9.9:53 a{n}.x A":              {"tcp -proxy P a0.x:443", "http -proxy P http://a0.x/"},
		"dns -raw c0ff 9.9.9.9:53":                   nil,
		"resolve x":                                  {"tcp -proxy P x:443", "http -proxy P http://x/"},
		"run bash -c exec_3<>/dev/tcp/::ffff:1/443'": {"tcp -proxy P [::ffff:1]:443"},
		"resolve e72.cdn.test":                       nil,
		"dns 9.9.9.9:53 api.anthropic.com TXT":       nil,
		"dns 9.9.9.9:53 ApI.anthropic.com A":         {"tcp -proxy P ApI.anthropic.com:443", "http -proxy P http://ApI.anthropic.com/"},
		"dns 9.9.9.9:53 data.e03.cdn.test A":         {"tcp -proxy P data.e03.cdn.test:443", "http -proxy P http://data.e03.cdn.test/"},
		"udp 45.31.1.1:53":                           nil,
		"self":                                       nil,
	} {
		var got []string
		args := strings.Fields(op)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "_", " ")
		}
		for _, p := range s.proxied(args) {
			for i := range p {
				p[i] = strings.ReplaceAll(p[i], " ", "_")
			}
			got = append(got, strings.Join(p, " "))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s:\n got %q\nwant %q", op, got, want)
		}
	}
	if got := (&Setting{}).proxied([]string{"tcp", "45.31.21.1:443"}); got != nil {
		t.Errorf("without a proxy: %q", got)
	}
}
