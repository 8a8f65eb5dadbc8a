package scorecard

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// details collects what the operations named op said, and the one that each was
// made around.
func (e *Evidence) details(op string) []map[string]any {
	var out []map[string]any
	for _, s := range e.Said {
		if s.Op == op {
			out = append(out, s.Detail)
		}
	}
	return out
}

// tooMany counts the addresses of one answer that could be reached: the policy's
// default allows 32 of a name.
func tooMany(e *Evidence) []string {
	reached := map[string]bool{}
	for _, p := range e.Packets {
		if a := p.Dst; a.Is4() && a.As4()[0] == 45 && a.As4()[1] == 33 {
			reached[a.String()] = true
		}
	}
	if len(reached) <= 32 {
		return nil
	}
	return []string{fmt.Sprintf("%d addresses of one name were reached", len(reached))}
}

// pinned finds times to live that keep an address for longer than it is the
// name's, or for no time at all.
func pinned(e *Evidence) []string {
	for _, d := range e.details("dns") {
		ttls, _ := d["ttls"].([]any)
		for _, v := range ttls {
			if ttl, _ := v.(float64); ttl > 300 || ttl < 1 {
				return []string{fmt.Sprintf("a name's address is to be kept for %.0f s", ttl)}
			}
		}
	}
	return nil
}

// early finds connections that came before what they were told of was open.
func early(e *Evidence) []string {
	var out []string
	for _, d := range e.details("loop") {
		outcomes, _ := d["outcomes"].(map[string]any)
		for outcome, n := range outcomes {
			if strings.HasPrefix(outcome, "connect") {
				out = append(out, fmt.Sprintf("%v connections were made before they were allowed: %s", n, outcome))
			}
		}
		if outcomes["ok"] == nil && e.Setting.Resolves { // names below a wildcard are limited, but not to none
			e.lack("no connection could be made")
		}
	}
	return out
}

// flooded counts the questions that got as far as a DNS server, and asks whether
// others were answered meanwhile.
func flooded(e *Evidence) []string {
	var out []string
	if n := len(e.Queries); n > 100 {
		out = append(out, fmt.Sprintf("%d questions of a flood", n))
	}
	for _, s := range e.Said {
		if s.Op == "resolve" && !s.OK && e.Setting.Resolves {
			e.lack("a question that was not answered: %s", s.Err)
		}
	}
	return out
}

// received finds what came in from outside.
func received(e *Evidence) []string {
	for _, d := range e.details("collect") {
		if r, _ := d["result"].(map[string]any); r["ok"] == true {
			return []string{"a datagram from outside came in"}
		}
	}
	return nil
}

// endless serves bytes until somebody ends it.
func endless(bad) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, "more\n"); err != nil {
				return
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
}

// elsewhere sends its clients to the attack's own server, by all means of HTTP.
func elsewhere(b bad) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Alt-Svc", fmt.Sprintf(`h2="%s:443"`, b.name))
		scheme := "http"
		if r.TLS != nil {
			scheme = "https"
		}
		http.Redirect(w, r, scheme+"://"+b.name+"/", http.StatusFound)
	})
}

// livedOn finds what a flow sends that has lost its permission.
func livedOn(addr string) func(*Evidence) []string {
	return func(e *Evidence) []string {
		for _, p := range e.Packets {
			if p.Proto == unix.IPPROTO_TCP && p.Dst.String() == addr {
				return []string{"packets of a connection whose name is allowed no more"}
			}
		}
		return nil
	}
}

// forged finds lines of the log that the agent has written.
func forged(e *Evidence) []string {
	text, found, err := e.logWith("comm." + e.Attack.bad().name)
	switch {
	case err != nil:
		return []string{"the log can't be read: " + err.Error()}
	case !found:
		e.lack("a log that doesn't have it")
		return nil
	}
	return forgery(text)
}

// forgery finds in a log what is no event, or one of the agent's making.
func forgery(text string) []string {
	for line := range strings.Lines(text) {
		var event struct{ Event, Name string }
		err := json.Unmarshal([]byte(line), &event)
		switch {
		case !strings.HasSuffix(line, "\n"): // the last one, which is being written
		case err != nil:
			return []string{fmt.Sprintf("a torn line in the log: %.80q", line)}
		case event.Name == "forged" || event.Event == "forged" || event.Event == "x":
			return []string{"a line of the agent's in the log"}
		}
	}
	return nil
}

// drowned finds a log that lacks what was done after a flood, or has grown with it.
func drowned(e *Evidence) []string {
	text, found, err := e.logWith("after." + e.Attack.bad().name)
	switch {
	case err != nil:
		return []string{"the log can't be read: " + err.Error()}
	case !found:
		e.lack("a log that lacks what came after a flood")
		return nil
	case len(text) > 4<<20:
		return []string{fmt.Sprintf("a log of %d MiB", len(text)>>20)}
	}
	return nil
}

// logWith is the log as soon as it has a text, which is written in its own time.
func (e *Evidence) logWith(text string) (log string, found bool, err error) {
	for deadline := time.Now().Add(90 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		log, err = e.Setting.Log()
		if found = strings.Contains(log, text); err != nil || found || time.Now().After(deadline) {
			return log, found, err
		}
	}
}
