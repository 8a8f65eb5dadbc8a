package webpage

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/report/film"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/session/terminal"
)

const stills = 4 // that are shown where no script runs

// screening is the record: stills for who has no script, and the data for who has.
func screening(f *film.Film) []*node {
	about := fmt.Sprintf("%s at %d×%d, %d pictures", text.Shortly(time.Duration(f.Seconds)*time.Second), f.Cols, f.Rows, len(f.Pictures))
	s := section("record", "The recorded session", "What the first window showed. Input was never recorded. Without script there are a few stills.", el("p", about, word(", from "), el("code", f.File)))
	s = s.add(el("div.player",
		el("div.screen").with("id", "screen"),
		el("div.controls",
			el("button", word("Play")).with("id", "play").with("type", "button"),
			el("input").with("id", "seek").with("type", "range").with("min", 0).with("max", len(f.Pictures)-1).with("value", 0).with("aria-label", "place in the record"),
			el("output", word("0:00")).with("id", "time"),
			el("button", word("1×")).with("id", "speed").with("type", "button").with("aria-label", "speed"),
		)).with("id", "player").with("hidden", ""))
	frames := el("div.stills").with("id", "stills")
	for _, i := range moments(len(f.Pictures)) {
		at := text.Shortly(time.Duration(f.Pictures[i].At) * time.Second)
		frames = frames.add(el("figure", picture(f, i), el("figcaption", word("after "), at)))
	}
	data, err := json.Marshal(f.Pictures) // which writes no < into it
	if err != nil {
		return []*node{s.add(frames)}
	}
	return []*node{s.add(frames, el("script", raw(data)).with("id", "film").with("type", "application/json").with("data-rows", f.Rows))}
}

// moments are which of n pictures are shown: evenly apart, and the last.
func moments(n int) (list []int) {
	for i := 1; i <= stills; i++ {
		if k := n*i/stills - 1; k >= 0 && (len(list) == 0 || list[len(list)-1] != k) {
			list = append(list, k)
		}
	}
	return list
}

func picture(f *film.Film, n int) *node {
	screen := el("div.screen")
	for _, line := range f.Screen(n) {
		row := el("div")
		for _, run := range line {
			class := fmt.Sprintf("k%d", run.Look)
			if run.Wide {
				class += " w"
			}
			row = row.add(el("span", run.Text).with("class", class))
		}
		screen = screen.add(row)
	}
	return screen
}

// looks are the classes of a record's looks. All that stands in them is numbers.
func looks(f *film.Film) string {
	var b strings.Builder
	for i, s := range f.Looks {
		fg, bg := paint(s.FG, "var(--fg)"), paint(s.BG, "var(--bg)")
		if s.Bold && s.FG.Set && !s.FG.RGB && s.FG.Value < 8 {
			fg = paint(terminal.Color{Set: true, Value: s.FG.Value + 8}, "")
		}
		if s.Reverse {
			fg, bg = bg, fg
		}
		fmt.Fprintf(&b, ".k%d{color:%s", i, fg)
		if s.BG.Set || s.Reverse {
			fmt.Fprintf(&b, ";background:%s", bg)
		}
		for _, a := range []struct {
			is  bool
			css string
		}{{s.Bold, "font-weight:700"}, {s.Faint, "opacity:.6"}, {s.Italic, "font-style:italic"}, {s.Underline, "text-decoration:underline"}, {s.Strike, "text-decoration:line-through"}} {
			if a.is {
				b.WriteString(";" + a.css)
			}
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// basic are the first 16 colours, which each terminal has its own of: these are VS Code's.
var basic = [16]uint32{
	0x1e1e1e, 0xcd3131, 0x0dbc79, 0xe5e510, 0x2472c8, 0xbc3fbc, 0x11a8cd, 0xe5e5e5,
	0x666666, 0xf14c4c, 0x23d18b, 0xf5f543, 0x3b8eea, 0xd670d6, 0x29b8db, 0xffffff,
}

// paint is a colour in CSS. Those from 16 on are xterm's cube of 6×6×6, and its 24 greys.
func paint(c terminal.Color, usual string) string {
	if !c.Set {
		return usual
	}
	v := c.Value
	switch {
	case c.RGB:
	case v < 16:
		v = basic[v]
	case v < 232:
		level := func(n uint32) uint32 {
			if n == 0 {
				return 0
			}
			return 55 + 40*n
		}
		v -= 16
		v = level(v/36)<<16 | level(v/6%6)<<8 | level(v%6)
	default:
		v = 0x010101 * (8 + 10*(v-232))
	}
	return fmt.Sprintf("#%06x", v&0xffffff)
}
