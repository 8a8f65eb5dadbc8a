package main

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestGitPrefixes(t *testing.T) {
	got, err := gitPrefixes([]byte(`{"web":["1.2.3.4/32"],"git":["140.82.114.0/24","4.208.26.197/32","140.82.112.0/20","2a0a:a440::/29","4.208.26.197/32","2a0a:a441::/32"]}`))
	want := []netip.Prefix{netip.MustParsePrefix("4.208.26.197/32"), netip.MustParsePrefix("140.82.112.0/20"), netip.MustParsePrefix("2a0a:a440::/29")}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for text, fails := range map[string]string{
		"<html>":                              "not the JSON",
		`{"web":["1.2.3.0/24"]}`:              "lists 0 addresses",
		`{"git":["0.0.0.0/0"]}`:               "no range of public",
		`{"git":["16.0.0.0/11"]}`:             "no range of public",
		`{"git":["2a00::/20"]}`:               "no range of public",
		`{"git":["10.1.0.0/16"]}`:             "no range of public",
		`{"git":["140.82.112.1/20"]}`:         "no range of public",
		`{"git":["140.82.112.1"]}`:            "no range of public",
		`{"git":["169.254.169.254/32"]}`:      "no range of public",
		`{"git":["::ffff:140.82.112.0/116"]}`: "no range of public",
		`{"git":["1.2.3.0/24"` + strings.Repeat(`,"1.2.3.0/24"`, maxMetaPrefixes) + `]}`: "lists 2001 addresses",
	} {
		if _, err := gitPrefixes([]byte(text)); err == nil || !strings.Contains(err.Error(), fails) {
			t.Errorf("%.40s: %v, want %q", text, err, fails)
		}
	}
}

// TestPreset: the preset that is there is what would be written of its addresses.
func TestPreset(t *testing.T) {
	file := "../../../../allowlist.d/github-meta.txt"
	there, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var prefixes []netip.Prefix
	for _, e := range entries(string(there)) {
		p, err := netip.ParsePrefix(strings.NewReplacer("[", "", "]", "").Replace(strings.TrimSuffix(e, ":22")))
		if err != nil {
			t.Fatal(err)
		}
		prefixes = append(prefixes, p)
	}
	if len(prefixes) == 0 || !slices.Equal(entries(preset(prefixes, time.Unix(0, 0))), entries(string(there))) {
		t.Errorf("%d addresses make another file than %s", len(prefixes), file)
	}
}
