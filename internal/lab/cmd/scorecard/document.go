package main

import (
	_ "embed"
	"strings"
	"text/template"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab/scorecard"
)

//go:embed page.tmpl
var page string

// document is docs/scorecard.md, of what became of the attacks in the modes of
// agent-init, and in other places.
func document(modes, others []scorecard.Column) (string, error) {
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
		"Modes": scorecard.Table(modes, true), "Others": scorecard.Table(rest, false), "Keys": scorecard.TableOf("KPR", keys, false), "Open": scorecard.Advice(),
		"Rest": scorecard.Rest(),
	})
	return out.String(), err
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
