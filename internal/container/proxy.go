package container

import (
	"net/url"
	"strconv"
	"strings"
)

// ProxyVariables are those of an environment by which programs ask a proxy.
func ProxyVariables(env map[string]string) (names []string) {
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"} {
		if env[name] != "" {
			names = append(names, name)
		}
	}
	return names
}

// ProxyOf is the host and port that such a variable names, as curl(1) reads it; "" if it names none.
func ProxyOf(value string) (host string, port uint16) {
	if !strings.Contains(value, "://") {
		value = "http://" + value
	}
	u, err := url.Parse(value)
	if err != nil {
		return "", 0
	}
	port = map[string]uint16{"http": 80, "https": 443}[strings.ToLower(u.Scheme)]
	if port == 0 {
		port = 1080 // of SOCKS, and of curl where there is none
	}
	if n, err := strconv.ParseUint(u.Port(), 10, 16); err == nil {
		port = uint16(n)
	}
	return u.Hostname(), port
}
