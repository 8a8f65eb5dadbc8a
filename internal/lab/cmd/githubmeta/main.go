// Githubmeta brings a preset of GitHub's addresses up to date: githubmeta FILE. It is the
// one program here that asks the internet, for a release, and no test runs it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"
)

// source is where GitHub says which addresses it has,
// https://docs.github.com/en/rest/meta/meta. No account is needed.
const source = "https://api.github.com/meta"

// Limits of what is believed of an answer.
const (
	maxMeta         = 8 << 20 // bytes
	maxMetaPrefixes = 2000
	minMetaBits4    = 12 // a shorter prefix is no company's
	minMetaBits6    = 24
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("githubmeta FILE")
	}
	if err := refresh(os.Args[1], time.Now()); err != nil {
		log.Fatal("githubmeta: ", err)
	}
}

// refresh writes the preset anew if GitHub has other addresses than it says.
func refresh(file string, now time.Time) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	data, err := get(ctx, source)
	if err != nil {
		return err
	}
	prefixes, err := gitPrefixes(data)
	if err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	text := preset(prefixes, now)
	if slices.Equal(entries(text), entries(string(old))) {
		return nil
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

// preset is the file of these addresses.
func preset(prefixes []netip.Prefix, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# GitHub's addresses for git over SSH, of %s. \"make presets\" brings them up to date before a\n", now.Format(time.DateOnly))
	b.WriteString("# release; what GitHub has added since is refused. Write an entry of your own for it: 192.0.2.0/24:22\n")
	fmt.Fprintf(&b, "# Source: %s, its list \"git\" (read %s)\n\n# required:\n", source, now.Format("2006-01"))
	for _, p := range prefixes {
		entry := p.String() + ":22"
		if p.Addr().Is6() {
			entry = fmt.Sprintf("[%s]/%d:22", p.Addr(), p.Bits())
		}
		fmt.Fprintf(&b, "%-23s # git over SSH\n", entry)
	}
	return b.String()
}

// entries are the lines of a preset that are none of its comments.
func entries(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if line, _, _ = strings.Cut(line, "#"); strings.TrimSpace(line) != "" {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
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

// get gets a document, in a bounded time and size.
func get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "agent-init")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s says %s", url, res.Status)
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, maxMeta+1))
	if err == nil && len(data) > maxMeta {
		err = errors.New(url + " is larger than expected")
	}
	return data, err
}
