package session

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/agent-init/agent-init/internal/mustrun"
)

// record is a file that a window was recorded to, as it is outside of the box.
func (r *rig) record(path string) string {
	return fmt.Sprintf("/proc/%d/root%s", r.keeper(), path)
}

// plays holds a record against asciinema, which prints what it shows, and plays it on a
// terminal.
func (r *rig) plays(path string) string {
	r.Helper()
	mustrun.Tool(r.T, "asciinema")
	// It goes on while it is read: what is complete counts.
	data, err := os.ReadFile(r.record(path))
	must(r.T, err)
	data = data[:strings.LastIndexByte(string(data), '\n')+1]
	name := filepath.Join(r.dir, filepath.Base(path))
	must(r.T, os.WriteFile(name, data, 0o600))
	run := "LC_ALL=C.UTF-8 TERM=xterm-256color HOME=" + r.dir + " asciinema "
	p := r.pane(120, 40, run+"cat "+name+" >"+name+".shown && "+run+"play -i 0.001 -s 10000 "+name+" && echo played to the end")
	r.shows(p, "played to the end")
	out, err := os.ReadFile(name + ".shown")
	must(r.T, err)
	return string(out)
}

// Every window has a record of its own, and a record that is full makes room for another.
func TestLabSessionRecords(t *testing.T) {
	r := newRig(t)
	cast := "/var/log/agent-init/session.cast"
	p := r.start(80, 24, "--record-limit 1 --record "+cast, prompt)
	r.shows(p, ">")
	for i, place := range []string{"w1", "w2"} {
		r.must("root", "new", "other", "--", "sh", "-c", fmt.Sprintf("echo this is ünïcödé number %d; exec sleep 1000", i+1))
		r.eventually("it is not recorded", func() bool {
			data, _ := os.ReadFile(r.record(cast + "." + place))
			return strings.Contains(string(data), fmt.Sprintf("number %d", i+1))
		})
		if out := r.plays(cast + "." + place); !strings.Contains(out, fmt.Sprintf("this is ünïcödé number %d", i+1)) {
			t.Errorf("asciinema shows %q", out)
		}
	}
	// The place of one that has ended is the next one's.
	r.must("root", "kill", "1")
	r.eventually("the window stays", func() bool { return !strings.Contains(r.must("root", "sessions"), "\n  1 ") })
	r.must("root", "new", "again", "--", "sh", "-c", "echo this is number 3; exec sleep 1000")
	r.eventually("it is not recorded", func() bool {
		data, _ := os.ReadFile(r.record(cast + ".w1"))
		return strings.Contains(string(data), "number 3")
	})
	if data, err := os.ReadFile(r.record(cast + ".w1.1")); err != nil || !strings.Contains(string(data), "number 1") {
		t.Errorf("the record before: %v %s", err, data)
	}

	// A mebibyte is soon full, also while nobody looks; five are kept of it.
	r.keys(p, "C-]", "d")
	r.shows(p, "detached")
	r.must("root", "new", "much", "--", "sh", "-c", `while :; do seq -f "%.0f of a lot of lines, as many as it takes" 25000; sleep 1; done`)
	last := cast + ".w3"
	for i := 1; i <= 4; i++ {
		name := fmt.Sprintf("%s.%d", last, i)
		r.eventually("nothing is put aside as "+name, func() bool { _, err := os.Stat(r.record(name)); return err == nil })
	}
	var was os.FileInfo // none has the number while they are being renamed
	r.eventually("there is no third", func() bool {
		var err error
		was, err = os.Stat(r.record(last + ".3"))
		return err == nil
	})
	r.eventually("the oldest one stays", func() bool {
		is, err := os.Stat(r.record(last + ".4"))
		return err == nil && os.SameFile(was, is)
	})
	r.must("root", "kill", "much")
	r.eventually("the window stays", func() bool { return !strings.Contains(r.must("root", "sessions"), "much") })
	r.eventually("a number is missing", func() bool { // the last renaming may not be done
		for i := 1; i <= 4; i++ {
			if _, err := os.Stat(r.record(fmt.Sprintf("%s.%d", last, i))); err != nil {
				return false
			}
		}
		return true
	})
	found, err := filepath.Glob(r.record(cast) + "*")
	must(t, err)
	rotated := 0
	for _, f := range found {
		info, err := os.Stat(f)
		must(t, err)
		if st := info.Sys().(*syscall.Stat_t); info.Mode().Perm() != 0o600 || st.Uid != 0 || st.Gid != 0 {
			t.Errorf("%s is %v, of %d:%d", f, info.Mode(), st.Uid, st.Gid)
		}
		if strings.Contains(f, ".w3.") {
			rotated++
		}
	}
	if rotated != 4 {
		t.Errorf("%d records were kept, want 4: %v", rotated, found)
	}
	if out := r.plays(last + ".1"); !strings.Contains(out, "of a lot of lines") {
		t.Error("there is something else in the record")
	}
	for _, user := range []string{agentUID, "12345"} {
		line := r.enter(user, "cat", cast)
		if out, err := exec.Command(line[0], line[1:]...).CombinedOutput(); err == nil || !strings.Contains(string(out), "denied") {
			t.Errorf("uid %s reads the record: %s", user, out)
		}
	}
}
