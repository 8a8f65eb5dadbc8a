package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/session/protocol"
)

func sessionsCommand() command {
	return command{
		name: "sessions", alone: true, synopsis: "[--json]", json: "print JSON",
		summary: "list the session's windows, and who looks at them",
		example: "agent-init sessions --json | jq '.windows[].name'",
		run: func(_ context.Context, e environment, _ []string) error {
			i, err := listSession()
			if err != nil {
				return err
			}
			cleanSession(&i)
			return e.show(sessionsReport{1, i}, "      ", func(w io.Writer, _ bool) error { return writeSessions(w, i, time.Now()) })
		},
	}
}

// sessionsReport is what sessions --json prints.
type sessionsReport struct {
	Version int `json:"version"`
	protocol.Info
}

// maxShownTitle is how many characters of a title are shown.
const maxShownTitle = 40

// cleanSession takes out of what programs chose whatever could make a line look like
// another.
func cleanSession(i *protocol.Info) {
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

func writeSessions(to io.Writer, i protocol.Info, now time.Time) error {
	fmt.Fprintf(to, "session %s\n", text.Clean(i.Name))
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "  NO\tNAME\tSIZE\tPROCESS\tSINCE\tTITLE\n")
	for _, x := range i.Windows {
		fmt.Fprintf(w, "  %d\t%s\t%s\tpid %d\t%s\t%s\n", x.ID, text.Clean(x.Name), sized(x.Cols, x.Rows), x.PID, text.Moment(x.Started, now), shownTitle(x.Title))
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
			fmt.Fprintf(w, "\tattached: %s%s\t%s\t\t%s\t\n", who, how, sized(c.Cols, c.Rows), text.Moment(c.Attached, now))
		}
	}
	return w.Flush()
}

// sized is the size of a terminal, if it has said one.
func sized(cols, rows int) string {
	if cols == 0 || rows == 0 {
		return "-"
	}
	return fmt.Sprintf("%dx%d", cols, rows)
}
