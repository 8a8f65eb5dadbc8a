package top

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab/golden"
	"github.com/agent-init/agent-init/internal/text"
)

// TestFrames: a frame fits each width, and is the one that people have reviewed.
func TestFrames(t *testing.T) {
	for _, size := range [][2]int{{60, 24}, {80, 24}, {120, 40}, {200, 50}} {
		s := newScreen(size[0], size[1])
		v := &View{}
		frame := v.Frame(shown(t), size[0], size[1])
		if len(frame) != size[1] {
			t.Errorf("%v: %d lines", size, len(frame))
		}
		for y, l := range frame {
			if n := l.columns(); n != size[0] {
				t.Errorf("%v: line %d has %d columns: %q", size, y, n, l)
			}
		}
		golden.File(t, fmt.Sprintf("frame-%d.golden.txt", size[0]), []byte(s.draw(t, frame)))
	}
}

// TestFirstKey: the keys are for a list that has something, until somebody chooses another. Who may not decide is shown no
// key for it.
func TestFirstKey(t *testing.T) {
	s, v := shown(t), &View{}
	s.Connections = nil
	frame := v.Frame(s, 80, 24)
	if v.Key('a', &s); v.question == nil || v.question.act.Number != s.Requests[0].Number {
		t.Errorf("a asks %+v", v.question)
	}
	if foot := frame[23].String(); !strings.Contains(foot, "a allow") {
		t.Errorf("the keys: %q", foot)
	}
	v = &View{}
	v.Key(keyTab, &s)
	v.Key(keyBackTab, &s)
	if v.Frame(s, 80, 24); v.focus != connections {
		t.Errorf("the person has gone to the connections, and the keys are for list %d", v.focus)
	}
	s.Operator = false
	if foot := v.Frame(s, 80, 24)[23].String(); strings.Contains(foot, "allow") || !strings.Contains(foot, "e explain") {
		t.Errorf("the keys of who may not decide: %q", foot)
	}
}

// TestShownJSON: what programs read.
func TestShownJSON(t *testing.T) {
	s := shown(t)
	s.Parts = s.Parts[:1]
	golden.JSON(t, "shown.golden.json", s)
}

// TestFrameOfAnySize: whatever the size, a frame has just so many lines of just so many columns.
func TestFrameOfAnySize(t *testing.T) {
	s := shown(t)
	v := &View{}
	for width := 20; width < 230; width += 23 {
		for height := 5; height < 70; height += 7 {
			for v.focus = range paneName(panes) {
				frame := v.Frame(s, width, height)
				if len(frame) != height {
					t.Fatalf("%dx%d: %d lines", width, height, len(frame))
				}
				for _, l := range frame {
					if l.columns() != width || text.Columns(l.String()) != width {
						t.Fatalf("%dx%d: %q has %d columns", width, height, l, l.columns())
					}
				}
			}
		}
	}
}
