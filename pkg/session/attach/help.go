package attach

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/session/internal/frame"
	"github.com/agent-init/agent-init/pkg/session/protocol"
)

// help lists the keys, and the windows that there are. A key that it lists does what it does after the prefix.
type help struct {
	a       *attachment
	windows []protocol.WindowInfo
}

func (a *attachment) help() *help {
	a.send(frame.Ask, []byte{frame.AskWindows})
	return &help{a: a}
}

const maxTitle = 40

func (h *help) draw(columns, lines int) []row {
	p := h.a.o.Prefix.String()
	rows := []row{line(inverse, " %s, and then", p)}
	keys := [][2]string{{"d", "leave; the session goes on"}}
	if h.a.o.Requests.List != nil {
		keys = append(keys, [2]string{"a", "what the agent asks for, and answers"})
	}
	for _, k := range append(keys, [][2]string{
		{"t", "the network, live: agent-init top"},
		{"[", "scroll back, and search"},
		{"c", "new window"},
		{"n p", "next, previous window"},
		{"0-9", "that window"},
		{"x", "end this window"},
		{p, "type " + p},
	}...) {
		rows = append(rows, row{{text: " " + k[0], width: 10, style: strong}, {text: k[1]}})
	}
	if len(h.windows) > 0 {
		rows = append(rows, nil)
	}
	for i, w := range h.windows {
		if left := lines - len(rows) - 1; left <= 1 && i < len(h.windows)-1 {
			rows = append(rows, line(faint, " and %s more", text.Counted(len(h.windows)-i, "window", "windows")))
			break
		}
		mark, style := "  ", ""
		if fmt.Sprint(w.ID) == h.a.result.Window {
			mark, style = " >", strong
		}
		title := ""
		if w.Title != "" {
			title = fmt.Sprintf("%q", strings.TrimRight(text.Fit(tame(w.Title), maxTitle), " "))
		}
		rows = append(rows, row{{text: fmt.Sprintf("%s %d", mark, w.ID), width: 6, style: style}, {text: w.Name, width: 22, style: style}, {text: title}})
	}
	return append(rows, line(faint, " %dx%d, window %s; any other key goes back", h.a.cols, h.a.rows, h.a.result.Window))
}

func (h *help) press(key string) bool {
	if len(key) == 1 && strings.Contains("dat[cnpx0123456789", key) {
		h.a.command(key[0])
		return h.a.over != nil && h.a.over.view == view(h) // which the command may have replaced
	}
	return true
}

func (h *help) answered(b []byte) {
	var i protocol.Info
	if json.Unmarshal(b, &i) == nil { // a server that says something else shows nothing
		h.windows = i.Windows
	}
}

func (h *help) look() {}

// ending asks whether the window's program is to be ended.
type ending struct{ a *attachment }

func (e *ending) draw(columns, _ int) []row {
	name := e.a.result.Window
	if e.a.name != "" {
		name += ", " + e.a.name
	}
	rows := []row{line(inverse, " end window %s?", name), nil}
	rows = append(rows, words("", "Its program is asked to end, and ended after five seconds. With the last window the session ends.", " ", columns)...)
	return append(append(rows, nil), keysOf(columns, "y end it", "any other key goes back")...)
}

func (e *ending) press(key string) bool {
	if key == "y" {
		e.a.send(frame.Switch, []byte{'x'})
	}
	return true
}

func (e *ending) answered([]byte) {}
func (e *ending) look()           {}
