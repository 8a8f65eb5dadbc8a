package container

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// row is what was found out about an agent.
type row struct {
	agent             agentSpec
	version           string
	size              int // of the image, in bytes
	real              bool
	imaged, versioned bool
	prompted, blocked bool
	shipped, vendor   []string
}

const tableFile = "../../docs/agents/README.md"

// stable are the columns that are the same on every run.
func (r row) stable() string {
	yes := func(ok bool) string {
		if ok {
			return "yes"
		}
		return "**no**"
	}
	image, prompt := yes(r.imaged), yes(r.prompted)
	if !r.real {
		image, prompt = "from a stand-in for the package of "+r.agent.from, "not tried"
	}
	return fmt.Sprintf("| [%s](%s.md) | %s | %s | %s | %s | %s |", r.agent.name, r.agent.name, r.version, image, yes(r.versioned), prompt, yes(r.blocked))
}

// contacts are the names of a run, but for the provider that was chosen for it.
func (r row) contacts(names []string) string {
	var out []string
	for _, name := range names {
		switch name {
		case r.agent.allow:
			name = "the provider"
		case npmRegistry:
		default:
			name = "`" + name + "`"
		}
		out = append(out, name)
	}
	if !r.real {
		return "not tried"
	}
	return strings.Join(out, ", ")
}

func (r row) String() string {
	size := "–"
	if r.real {
		size = fmt.Sprintf("%d MB", r.size/1e6)
	}
	return fmt.Sprintf("%s %s | %s | %s |", r.stable(), size, r.contacts(r.shipped), r.contacts(r.vendor))
}

// checkTable compares the table of the documentation with what was found, or writes it where
// AGENT_INIT_UPDATE=1 is set. The size depends on the engine, and which names an agent asks for in one run
// on its timing: these columns are written, and not compared.
func checkTable(t *testing.T, rows []row) {
	t.Helper()
	data, err := os.ReadFile(tableFile)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(data), "\n")
	for _, r := range rows {
		found := false
		for i, line := range lines {
			if !strings.HasPrefix(line, "| ["+r.agent.name+"](") {
				continue
			}
			found = true
			if os.Getenv("AGENT_INIT_UPDATE") == "1" {
				lines[i] = r.String()
			} else if !strings.HasPrefix(line, r.stable()) {
				t.Errorf("%s says\n%s\nand this run\n%s\n(AGENT_INIT_UPDATE=1 writes it)", tableFile, line, r)
			}
		}
		if !found {
			t.Errorf("%s has no line for %s", tableFile, r.agent.name)
		}
	}
	if os.Getenv("AGENT_INIT_UPDATE") == "1" {
		if err := os.WriteFile(tableFile, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
