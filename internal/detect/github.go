package detect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	web "net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// githubMeta is where GitHub says which addresses it has,
// https://docs.github.com/en/rest/meta/meta. No account is needed.
const githubMeta = "https://api.github.com/meta"

// Limits of what is believed of an answer.
const (
	maxMeta         = 8 << 20 // bytes
	maxMetaPrefixes = 2000
	minMetaBits4    = 12 // a shorter prefix is no company's
	minMetaBits6    = 24
)

// errUnreachable says that there was no answer, as opposed to a wrong one.
var errUnreachable = errors.New("no answer")

// detectGitHubMeta is the one detector that asks the network: for the addresses
// of git, on the port of SSH, where no name inside a connection could be checked. Without
// an answer it is the built-in copy, and says so; a wrong answer is an error.
func detectGitHubMeta(im *image) ([]origin, error) {
	data, err := im.fetch(githubMeta)
	if errors.Is(err, errUnreachable) {
		return []origin{{url: "@github-meta", what: "git over SSH", from: "the built-in copy, since " + err.Error()}}, nil
	}
	if err != nil {
		return nil, err
	}
	prefixes, err := gitPrefixes(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", githubMeta, err)
	}
	var origins []origin
	for _, p := range prefixes {
		entry := p.String() + ":22"
		if p.Addr().Is6() {
			entry = fmt.Sprintf("[%s]/%d:22", p.Addr(), p.Bits())
		}
		origins = append(origins, origin{entry: entry, what: "git over SSH", from: githubMeta})
	}
	return origins, nil
}

// gitPrefixes are the addresses of git, each once, without those that lie within another.
func gitPrefixes(data []byte) ([]netip.Prefix, error) {
	var meta struct {
		Git []string `json:"git"`
	}
	if err := json.Unmarshal(data, &meta); err != nil {
		return nil, fmt.Errorf("not the JSON that is expected")
	}
	if len(meta.Git) == 0 || len(meta.Git) > maxMetaPrefixes {
		return nil, fmt.Errorf("it lists %d addresses of git", len(meta.Git))
	}
	var all []netip.Prefix
	for _, text := range meta.Git {
		p, err := netip.ParsePrefix(text)
		least := minMetaBits4
		if err == nil && p.Addr().Is6() {
			least = minMetaBits6
		}
		if err != nil || p != p.Masked() || p.Addr().Is4In6() || p.Bits() < least || !p.Addr().IsGlobalUnicast() || p.Addr().IsPrivate() {
			return nil, fmt.Errorf("it lists %q, which is no range of public addresses", text)
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b netip.Prefix) int {
		if c := a.Addr().Compare(b.Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
	var out []netip.Prefix
	for _, p := range all {
		if n := len(out); n == 0 || !out[n-1].Contains(p.Addr()) {
			out = append(out, p)
		}
	}
	return out, nil
}

// fetcher gets a document by HTTPS, in a bounded time and size.
func fetcher(ctx context.Context, client *web.Client) func(url string) ([]byte, error) {
	return func(url string) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		req, err := web.NewRequestWithContext(ctx, web.MethodGet, url, nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("User-Agent", "agent-init")
		res, err := client.Do(req)
		if err != nil {
			return nil, fmt.Errorf("%w from %s", errUnreachable, strings.TrimPrefix(url, "https://"))
		}
		defer res.Body.Close()
		if res.StatusCode != web.StatusOK {
			return nil, fmt.Errorf("%w from %s but %s", errUnreachable, strings.TrimPrefix(url, "https://"), res.Status)
		}
		data, err := io.ReadAll(io.LimitReader(res.Body, maxMeta+1))
		switch {
		case err != nil:
			return nil, fmt.Errorf("%w in full from %s", errUnreachable, strings.TrimPrefix(url, "https://"))
		case len(data) > maxMeta:
			return nil, fmt.Errorf("%s is larger than %d MiB", url, maxMeta>>20)
		}
		return data, nil
	}
}
