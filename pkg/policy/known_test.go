package policy

import (
	"fmt"
	"strings"
	"testing"
)

// TestBrief: a long list is not sent twice, and one that the reader does not have is refused.
func TestBrief(t *testing.T) {
	list := strings.Repeat("a.test\n", 1000)
	files := []File{{Name: "list.txt", Data: []byte(list)}, {Name: "policy.yaml", Data: []byte("domains: [b.test]\n")}}
	b := &Bundle{Files: files, Phase: Setup, Phases: map[string][]File{Setup: {{Name: "phases/setup/list.txt", Data: []byte("c.test\n")}}}}
	p, err := Parse(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	next := *b
	next.Files = append(files[:2:2], File{Name: "grant-1", Data: []byte("!b.test\n")})
	brief := p.Brief(&next)
	if len(brief.Known) != 2 || brief.Files[0].Data != nil || brief.Phases[Setup][0].Data != nil || brief.Files[1].Data == nil || brief.Files[2].Data == nil {
		t.Errorf("brief is %+v", brief)
	}
	if next.Known != nil || next.Files[0].Data == nil || next.Phases[Setup][0].Data == nil {
		t.Error("the bundle itself has changed")
	}
	got, err := p.Next(brief, nil)
	if err != nil || !got.Lookup("a.test").Allowed || got.Lookup("b.test").Allowed || !got.Lookup("c.test").Allowed {
		t.Errorf("%+v, %v", got, err)
	}
	// What follows a brief one is brief as well.
	if again := got.Brief(&next); len(again.Known) != 3 {
		t.Errorf("brief is %+v", again)
	}

	other, err := Parse(&Bundle{Files: []File{{Name: "list.txt", Data: []byte("other.test\n")}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	sum := brief.Known["list.txt"]
	for what, wrong := range map[string]struct {
		reader *Policy
		b      *Bundle
	}{
		"never read":    {new(Policy), brief},
		"another list":  {other, &Bundle{Files: []File{{Name: "list.txt"}}, Known: map[string][]byte{"list.txt": sum}}},
		"no sum":        {p, &Bundle{Files: []File{{Name: "list.txt"}}, Known: map[string][]byte{"list.txt": nil}}},
		"twice":         {p, &Bundle{Files: []File{{Name: "list.txt"}, {Name: "list.txt"}}, Known: map[string][]byte{"list.txt": sum}}},
		"read as YAML":  {p, &Bundle{Files: []File{{Name: "policy.yaml"}}, Known: map[string][]byte{"policy.yaml": sum}}},
		"another's sum": {p, &Bundle{Files: []File{{Name: "phases/setup/list.txt"}}, Known: map[string][]byte{"phases/setup/list.txt": sum}}},
	} {
		if p, err := wrong.reader.Next(wrong.b, nil); err == nil || !strings.Contains(fmt.Sprint(err), notKnown) {
			t.Errorf("%s: %+v, %v", what, p, err)
		}
	}
}
