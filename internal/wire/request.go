package wire

import (
	"errors"
	"strings"
	"time"
)

// How often the agent may propose something.
const (
	RequestBurst = 5
	RequestEvery = 10 * time.Second
)

// PlainText is s as ASCII, in single blanks: what the agent says is shown to a
// person, and a run of blanks could make a row of its own on the screen.
func PlainText(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s)
	return strings.TrimSpace(s[:min(len(s), MaxText)])
}

// CheckRequest says what is wrong with a request that the guard, which may have
// been taken over, has sent.
func CheckRequest(m Message) error {
	// In single blanks: a run of them could make a row of its own on a screen.
	if m.Name == "" || strings.Trim(m.Name, "abcdefghijklmnopqrstuvwxyz0123456789.*-_:[]/@ ") != "" || strings.Join(strings.Fields(m.Name), " ") != m.Name {
		return errors.New("not the target of a request")
	}
	if PlainText(m.Text) != m.Text {
		return errors.New("not the reason of a request")
	}
	return nil
}
