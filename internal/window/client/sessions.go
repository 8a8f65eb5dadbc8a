package client

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/session/protocol"
)

// Sessions are the windows of a session, and who looks at them.
type Sessions struct {
	Version int `json:"version"`
	protocol.Info
}

// List asks the session server for them.
func List() (Sessions, error) {
	i, err := list()
	clean(&i)
	return Sessions{1, i}, err
}

const maxShownTitle = 40 // characters

// clean takes out of what programs chose what could make a line look like another.
func clean(i *protocol.Info) {
	for n := range i.Windows {
		w := &i.Windows[n]
		w.Title, w.Cwd = text.Clean(w.Title), text.Clean(w.Cwd)
	}
}

// shownTitle is a title in quotes, so that it is not taken for words of ours.
func shownTitle(title string) string {
	runes := []rune(text.Clean(title))
	if len(runes) == 0 {
		return ""
	}
	if len(runes) > maxShownTitle {
		runes = append(runes[:maxShownTitle-1], '…')
	}
	return strconv.QuoteToGraphic(string(runes))
}

// Write shows them.
func (s Sessions) Write(to io.Writer, now time.Time) error {
	fmt.Fprintf(to, "session %s\n", text.Clean(s.Name))
	table := text.NewTable(" NO", "NAME", "SIZE", "PROCESS", "SINCE", "TITLE")
	for _, x := range s.Windows {
		table.Row(fmt.Sprint(x.ID), text.Clean(x.Name), sized(x.Cols, x.Rows), fmt.Sprintf("pid %d", x.PID), text.Moment(x.Started, now), shownTitle(x.Title))
		for _, c := range x.Clients {
			who, how := fmt.Sprintf("uid %d, pid %d", c.UID, c.PID), ""
			if c.PID == 0 {
				who = "the container's terminal"
			}
			if c.Read {
				how = ", read-only"
			}
			if c.Leader && len(x.Clients) > 1 {
				how += ", typed last"
			}
			table.Note(fmt.Sprintf("attached: %s%s, %s, since %s", who, how, sized(c.Cols, c.Rows), text.Moment(c.Attached, now)))
		}
	}
	return table.Write(to)
}

func sized(cols, rows int) string {
	if cols == 0 || rows == 0 {
		return "-"
	}
	return fmt.Sprintf("%dx%d", cols, rows)
}
