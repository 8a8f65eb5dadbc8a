package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab/scorecard"
)

// TestSubjects: docs/subjects.md is what the results beside each set-up say, and each set-up can be read.
func TestSubjects(t *testing.T) {
	const root = "../../../../"
	results, err := filepath.Glob(root + "test/subjects/*/result.json")
	if err != nil {
		t.Fatal(err)
	}
	page, err := subjectsFrom(results)
	if err != nil {
		t.Fatal(err)
	}
	made, err := os.ReadFile(root + "docs/subjects.md")
	if err != nil || string(made) != page {
		t.Errorf("docs/subjects.md is not what make scorecard SUBJECTS=… would make: %v", err)
	}
	dirs, err := filepath.Glob(root + "test/subjects/*")
	if err != nil || len(dirs) != len(results) {
		t.Errorf("%d results of %d subjects: %v", len(results), len(dirs), err)
	}
	for _, dir := range dirs {
		s, err := scorecard.ReadSubject(dir + "/subject.json")
		if err != nil {
			t.Error(err)
		} else if s.Name == "" || s.VersionFrom == "" || s.Settings == "" || s.Promises == "" || !strings.HasPrefix(s.Source, "https://") {
			t.Errorf("%s does not say enough: %+v", dir, s)
		}
	}
}

// TestSubjectThatCantWork: what has not let the agent reach what is allowed is nobody's result.
func TestSubjectThatCantWork(t *testing.T) {
	column := scorecard.Column{Title: "shut", Subject: &scorecard.Subject{}, Results: [][]scorecard.Result{make([]scorecard.Result, len(scorecard.Attacks()))}}
	data, err := scorecard.NewReport("", []scorecard.Column{column}).JSON()
	file := filepath.Join(t.TempDir(), "result.json")
	if err == nil {
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := subjectsFrom([]string{file}); err == nil {
		t.Error("it stands on the page")
	}
	unknown := filepath.Join(t.TempDir(), "subject.json")
	if err := os.WriteFile(unknown, []byte(`{"name": "x", "prxoy": "y"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := scorecard.ReadSubject(unknown); err == nil || !strings.Contains(err.Error(), "prxoy") {
		t.Errorf("a word that is none: %v", err)
	}
}
