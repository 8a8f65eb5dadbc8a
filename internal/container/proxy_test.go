package container

import (
	"slices"
	"testing"
)

func TestProxy(t *testing.T) {
	env := map[string]string{"https_proxy": "http://p.test:3128", "HTTP_PROXY": "", "ALL_PROXY": "socks5h://s.test", "NO_PROXY": "x"}
	if names := ProxyVariables(env); !slices.Equal(names, []string{"https_proxy", "ALL_PROXY"}) {
		t.Errorf("%q", names)
	}
	type at struct {
		host string
		port uint16
	}
	for value, want := range map[string]at{
		"http://p.test:3128": {"p.test", 3128}, "https://u:p@p.test": {"p.test", 443}, "HTTP://p.test/": {"p.test", 80}, "p.test:8080": {"p.test", 8080},
		"socks5h://s.test": {"s.test", 1080}, "http://[2001:db8::1]:3128": {"2001:db8::1", 3128}, "http://p.test:x": {"", 0}, "://": {"", 0},
	} {
		if host, port := ProxyOf(value); (at{host, port}) != want {
			t.Errorf("%q: %q, %d", value, host, port)
		}
	}
}
