package container

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// row is what was found out about an agent.
type row struct {
	agent             agentSpec
	version           string
	size              int // of the image, in bytes
	packed            int // of the package that the image is made of, which is compressed
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

// changing are the columns of the second table, which differ from run to run.
func (r row) changing() string {
	size := "–"
	if r.real {
		size = fmt.Sprintf("%d MB, from %d", r.size/1e6, r.packed/1e6)
	}
	return fmt.Sprintf("| [%s](%s.md) | %s | %s | %s |", r.agent.name, r.agent.name, size, r.contacts(r.shipped), r.contacts(r.vendor))
}

// outcome is what came of an agent in a place.
func (r row) outcome(prompted, blocked bool) string {
	switch {
	case !blocked:
		return "**not blocked**"
	case !r.real:
		return "stand-in, blocked"
	case !prompted:
		return "**no answer**"
	}
	return "yes"
}

// size is that of an image, in bytes.
func (e *engine) size(t *testing.T, image string) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(e.must(t, "inspect", "--format", "{{.Size}}", image), &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// compressed is the size of what a registry would send of an image. It takes its time.
func (e *engine) compressed(t *testing.T, image string) (n int) {
	t.Helper()
	r := run("sh", "-c", `docker save "$0" | gzip | wc -c`, image)
	if _, err := fmt.Sscan(r.stdout, &n); err != nil || r.code != 0 {
		t.Fatalf("compress %s: exit %d, %v: %s", image, r.code, err, r.stderr)
	}
	return n
}

// packed is the size of the package that images/fetch.sh got for an agent, in bytes.
func packed(t *testing.T, agent string) (n int) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join("../../images", agent, "dist", agent+"-*.tgz"))
	if err != nil || len(found) == 0 {
		t.Fatalf("the package of %s is not there: %v", agent, err)
	}
	for _, name := range found {
		if st, err := os.Stat(name); err == nil {
			n = max(n, int(st.Size()))
		}
	}
	return n
}

// tableLines returns where the rows of the table begin that has such a header, and where they end.
func tableLines(t *testing.T, lines []string, header string) (begin, end int) {
	t.Helper()
	at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "|") && strings.Contains(l, header) })
	if at < 0 {
		t.Fatalf("%s has no table with %q", tableFile, header)
	}
	n := slices.IndexFunc(lines[at:], func(l string) bool { return !strings.HasPrefix(l, "|") })
	if n < 0 {
		t.Fatalf("%s: the table with %q has no end", tableFile, header)
	}
	return at + 2, at + n
}

// editTables has its caller read or change the lines of the documentation's tables, and writes them where
// AGENT_INIT_UPDATE=1 is set.
func editTables(t *testing.T, edit func(lines []string, update bool) []string) {
	t.Helper()
	data, err := os.ReadFile(tableFile)
	if err != nil {
		t.Fatal(err)
	}
	update := os.Getenv("AGENT_INIT_UPDATE") == "1"
	lines := edit(strings.Split(string(data), "\n"), update)
	if !update {
		return
	}
	if err := os.WriteFile(tableFile, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
}

// checkPlace compares one column of the table of agents and places with what was found in a test of that place, or
// writes it where AGENT_INIT_UPDATE=1 is set. The column is the one that has the place's name as its head.
func checkPlace(t *testing.T, place string, found map[string]string) {
	t.Helper()
	editTables(t, func(lines []string, update bool) []string {
		begin, end := tableLines(t, lines, "| "+place+" |")
		head := strings.Split(lines[begin-2], "|")
		column := slices.IndexFunc(head, func(c string) bool { return strings.TrimSpace(c) == place })
		for _, name := range slices.Sorted(maps.Keys(found)) {
			want := found[name]
			at := slices.IndexFunc(lines[begin:end], func(l string) bool { return strings.HasPrefix(l, "| "+name+" |") })
			if at < 0 && !update {
				t.Errorf("%s has no line for %s with a column %q", tableFile, name, place)
				continue
			}
			if at < 0 {
				at = end - begin
				lines = slices.Insert(lines, end, "| "+name+strings.Repeat(" | not tried", len(head)-3)+" |")
				end++
			}
			cells := strings.Split(lines[begin+at], "|")
			if got := strings.TrimSpace(cells[column]); got != want && !update {
				t.Errorf("%s says %q of %s in %s, and this run %q (AGENT_INIT_UPDATE=1 writes it)", tableFile, got, name, place, want)
			}
			cells[column] = " " + want + " "
			lines[begin+at] = strings.Join(cells, "|")
		}
		return lines
	})
}

// checkTable compares the first table of agents with what was found, or writes both where AGENT_INIT_UPDATE=1 is
// set. The size depends on the engine, and which names an agent asks for in one run on its timing: the second
// table, which has these, is written and not compared.
func checkTable(t *testing.T, rows []row) {
	t.Helper()
	editTables(t, func(lines []string, update bool) []string {
		for _, table := range []struct {
			header   string
			line     func(row) string
			compared bool
		}{{"| version |", row.stable, true}, {"| size |", row.changing, false}} {
			for _, r := range rows {
				begin, end := tableLines(t, lines, table.header)
				at := slices.IndexFunc(lines[begin:end], func(l string) bool { return strings.HasPrefix(l, "| ["+r.agent.name+"](") })
				switch want := table.line(r); {
				case update && at < 0:
					lines = slices.Insert(lines, end, want)
				case update:
					lines[begin+at] = want
				case at < 0:
					t.Errorf("%s has no line for %s beside %q", tableFile, r.agent.name, table.header)
				case table.compared && lines[begin+at] != want:
					t.Errorf("%s says\n%s\nand this run\n%s\n(AGENT_INIT_UPDATE=1 writes it)", tableFile, lines[begin+at], want)
				}
			}
		}
		return lines
	})
}
