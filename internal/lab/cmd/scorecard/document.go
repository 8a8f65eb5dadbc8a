package main

import (
	_ "embed"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/template"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab/scorecard"
)

//go:embed page.tmpl
var page string

// document is docs/scorecard.md, of what became of the attacks in the modes of
// agent-init, in other places, and behind gateways.
func document(modes, others, gateways []scorecard.Column) (string, error) {
	t, err := template.New("page").Parse(page)
	if err != nil {
		return "", err
	}
	var rest, keys []scorecard.Column
	for _, c := range others {
		if c.Title != aloneTitle {
			rest = append(rest, c)
		}
		if c.Title == aloneTitle || len(keys) == 0 { // beside Docker's first
			keys = append(keys, c)
		}
	}
	var out strings.Builder
	err = t.Execute(&out, map[string]string{
		"Date": time.Now().Format(time.DateOnly), "Kernel": kernel(),
		"Modes": scorecard.Table(modes, true), "Gateways": scorecard.Table(gateways, false), "Others": scorecard.Table(rest, false), "Keys": scorecard.TableOf("KPR", keys, false), "Open": scorecard.Advice(),
		"Rest": scorecard.Rest(),
	})
	return out.String(), err
}

// made says whether a section of the page has results of others than gateways in it: the first one has their date.
func made(section string) bool {
	return slices.ContainsFunc([]string{"# Scorecard\n", "In agent-init's modes\n", "In Docker, and with other means\n", "Keys, providers and rules, without the broker\n"},
		func(title string) bool { return strings.HasPrefix(section, title) })
}

// updated is a new page with the results of an old one, but for those of gateways.
func updated(file, page string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	const heading = "\n## "
	kept := map[string]string{}
	for section := range strings.SplitSeq(string(data), heading) {
		title, _, _ := strings.Cut(section, "\n")
		kept[title] = section
	}
	sections := strings.Split(page, heading)
	for i, section := range sections {
		title, _, _ := strings.Cut(section, "\n")
		if !made(section) {
			continue
		}
		if kept[title] == "" {
			return "", fmt.Errorf("%s has no results of %q", file, title)
		}
		sections[i] = kept[title]
	}
	return strings.Join(sections, heading), nil
}

// kernel is the release without what a vendor adds to it.
func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "of an unknown release"
	}
	release, _, _ := strings.Cut(unix.ByteSliceToString(u.Release[:]), "-")
	return release + " on " + strings.TrimSpace(unix.ByteSliceToString(u.Machine[:]))
}
