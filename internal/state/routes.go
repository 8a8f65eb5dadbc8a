package state

import (
	"fmt"
	"net/url"

	"github.com/agent-init/agent-init/internal/metric"
	"github.com/agent-init/agent-init/internal/text"
)

// Keys says in a sentence for each route who holds the key of its API.
func (b *Broker) Keys() (out []string) {
	for _, r := range b.Routes {
		out = append(out, r.Name+": "+r.keeps())
	}
	return out
}

func (r *Route) keeps() string {
	host := r.To
	if u, err := url.Parse(r.To); err == nil && u.Host != "" {
		host = u.Host
	}
	switch {
	case r.Present && r.Source == "none":
		return fmt.Sprintf("the broker asks %s, without a key", host)
	case r.Present && r.Fingerprint != "":
		return fmt.Sprintf("the agent holds no key; the broker asks %s with that of %s (fingerprint %s)", host, r.Source, r.Fingerprint)
	case r.Present:
		return fmt.Sprintf("the agent holds no key; the broker asks %s with that of %s", host, r.Source)
	case r.ByName:
		return fmt.Sprintf("the agent reaches %s by name and holds what it logs in with (%s)", host, r.Why)
	}
	return fmt.Sprintf("nobody reaches %s (%s)", host, r.Why)
}

// rows shows the broker, and what went through it.
func (b *Broker) rows(row func(name, format string, args ...any)) {
	if b.UID == 0 {
		return
	}
	up := "down"
	if b.OK {
		up = "up"
	}
	row("broker", "%s (uid %d), at 127.0.0.1:%d, restarted %s", up, b.UID, b.Port, text.Times(b.Restarts))
	for _, r := range b.Routes {
		if !r.Present {
			continue
		}
		said := fmt.Sprintf("%s: %s, %d refused", r.Name, text.Counted(r.Requests, "request", "requests"), r.Refusals)
		if r.TokensIn+r.TokensOut > 0 { // repositories and registries have none
			said += fmt.Sprintf("; %s in, %d out", text.Counted(r.TokensIn, "token", "tokens"), r.TokensOut)
		}
		row("", "%s", said)
		if r.Fault != "" {
			row("", "its credential was not read again, the one before is used: %s", text.Clean(r.Fault))
		}
		if r.LastError != "" {
			row("", "its last error: %s", text.Clean(r.LastError))
		}
	}
}

// writeMetrics writes what went through the broker, if there is one.
func (b *Broker) writeMetrics(put func(name, kind, help string, points ...metric.Point)) {
	if b.UID == 0 {
		return
	}
	put("broker_up", "gauge", "1 if the broker serves.", metric.Is(number(b.OK)))
	put("broker_restarts_total", "counter", "How often the broker was restarted.", metric.Is(b.Restarts))
	var requests, refusals, tokens, present []metric.Point
	for _, r := range b.Routes {
		present = append(present, metric.Is(number(r.Present), "route", r.Name))
		requests, refusals = append(requests, metric.Is(r.Requests, "route", r.Name)), append(refusals, metric.Is(r.Refusals, "route", r.Name))
		for _, d := range []struct {
			direction string
			n         uint64
		}{{"in", r.TokensIn}, {"out", r.TokensOut}} {
			tokens = append(tokens, metric.Is(d.n, "route", r.Name, "direction", d.direction))
		}
	}
	put("broker_route_present", "gauge", "1 if the route has its credential, and is served.", present...)
	put("broker_requests_total", "counter", "Requests that went on.", requests...)
	put("broker_refusals_total", "counter", "Requests that did not, or failed.", refusals...)
	put("broker_tokens_total", "counter", "Tokens that the API has counted.", tokens...)
}
