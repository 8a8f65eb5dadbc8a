package keeper

import (
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

// TestElsewhere: the key to another server, or one that is reached through a proxy, is not taken for an image's route.
func TestElsewhere(t *testing.T) {
	r, _ := route.Builtin("anthropic")
	written := r
	r.Optional = true
	for _, tt := range []struct {
		route   route.Route
		environ map[string]string
		want    string // part of the reason
	}{
		{r, map[string]string{"ANTHROPIC_API_KEY": "k"}, ""},
		{r, map[string]string{"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "https://api.anthropic.com"}, ""},
		{r, map[string]string{"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "https://api.anthropic.com/v1/"}, ""},
		{r, map[string]string{"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "https://user:pass@gateway.example/anthropic"}, "ANTHROPIC_BASE_URL names another"},
		{r, map[string]string{"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "gateway.example"}, "ANTHROPIC_BASE_URL names another"},
		{r, map[string]string{"ANTHROPIC_API_KEY": "k", "ANTHROPIC_HOST": "https://api.anthropic.com.gateway.example"}, "ANTHROPIC_HOST names another"},
		{r, map[string]string{"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "https://%zz"}, "ANTHROPIC_BASE_URL names another"},
		{r, map[string]string{"ANTHROPIC_API_KEY": "k", "OPENAI_BASE_URL": "https://gateway.example"}, ""},
		{r, map[string]string{"ANTHROPIC_API_KEY": "k", "HTTPS_PROXY": "http://user:pass@proxy"}, "HTTPS_PROXY names a proxy"},
		{r, map[string]string{"ANTHROPIC_API_KEY": "k", "http_proxy": "http://proxy"}, "http_proxy names a proxy"},
		{written, map[string]string{"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": "https://gateway.example"}, ""},
	} {
		c := &credentials{environ: tt.environ, held: map[string]credential{}, why: map[string]string{}, to: map[string]string{}}
		why, err := c.look(tt.route)
		if err != nil || (why == "") != (tt.want == "") || !strings.Contains(why, tt.want) || strings.Contains(why, "pass") {
			t.Errorf("%v: %q, %v, want %q", tt.environ, why, err, tt.want)
		}
		if held := c.of(tt.route).secret; (string(held) == "k") != (tt.want == "") {
			t.Errorf("%v: %q is held", tt.environ, held)
		}
	}
}
