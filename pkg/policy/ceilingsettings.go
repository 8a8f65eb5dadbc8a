package policy

import (
	"reflect"
	"slices"
	"strings"
)

// within is the settings that a ceiling leaves of a policy's. What opens something (inbound, dns.upstream, the host of a
// webhook) is there only if the ceiling names it; a limit is the lower one; all else is as the ceiling fixes it.
func (c *Ceiling) within(s Settings, ps *parser, cut func(*Cut)) Settings {
	s.Inspected, s.Broker = nil, nil // they are made of what is left
	took := func(key, text, left, why string) {
		src := ps.set[key]
		if src == (Source{}) {
			src = ps.set[key+" "+text]
		}
		by := ""
		if at, ok := c.set[key]; ok {
			by = at.String()
		}
		cut(&Cut{Source: src, Text: strings.TrimSpace(key + " " + text), By: by, Left: left, Why: why})
	}
	s.Inbound = slices.DeleteFunc(slices.Clone(s.Inbound), func(p Port) bool {
		is := !slices.Contains(c.settings.Inbound, p)
		if is {
			took("inbound", p.String(), "", "no line of it has this port")
		}
		return is
	})
	s.DNS.Upstream = slices.DeleteFunc(slices.Clone(s.DNS.Upstream), func(u string) bool {
		is := !slices.Contains(c.settings.DNS.Upstream, u)
		if is {
			took("dns.upstream", u, "", "no line of it has this server")
		}
		return is
	})
	if len(s.DNS.Upstream) == 0 {
		s.DNS.Upstream = c.settings.DNS.Upstream
	}
	c.fix(&s, ps, took)
	c.proxy(&s, ps, took)
	if w := s.Notify.Webhook; w.To != "" {
		host := &Rule{Source: ps.set["notify.webhook.to"], Text: w.host, Name: w.host, Ports: []Port{w.port}}
		host.Private = w.Private
		if left, narrowed := c.narrow(host); narrowed != nil || slices.ContainsFunc(left, (*Rule).Inspects) {
			took("notify.webhook.to", "", "", "no line of it admits "+host.String())
			s.Notify.Webhook = Webhook{}
		}
	}
	return s
}

// proxy has what goes out go by the ceiling's proxy, by which an organisation sees it. One that the ceiling does not have
// is an error: without it, what should go by a proxy would go straight.
func (c *Ceiling) proxy(s *Settings, ps *parser, took func(key, text, left, why string)) {
	top, mine := c.settings.UpstreamProxy, s.UpstreamProxy
	switch at := ps.set["upstream_proxy.to"]; {
	case reflect.DeepEqual(top, mine):
	case top.Host == "":
		ps.errs.add(Error{Source: at, Text: "upstream_proxy", Message: "above the ceiling: no line of it has an upstream proxy"})
	default:
		if s.UpstreamProxy = top; mine.Host != "" {
			took("upstream_proxy.to", "", "what the ceiling says", "it fixes this")
		}
	}
}

// fix puts what the ceiling says in the place of what may not exceed it.
func (c *Ceiling) fix(s *Settings, ps *parser, took func(key, text, left, why string)) {
	top := c.settings
	for _, f := range []struct {
		key string
		do  func() (changed bool)
	}{
		{"dns.max_ttl", func() bool { return lowered(&s.DNS.MaxTTL, top.DNS.MaxTTL) }},
		{"dns.qps", func() bool { return lowered(&s.DNS.QPS, top.DNS.QPS) }},
		{"limits.addrs_per_name", func() bool { return lowered(&s.Limits.AddrsPerName, top.Limits.AddrsPerName) }},
		{"limits.leases", func() bool { return lowered(&s.Limits.Leases, top.Limits.Leases) }},
		{"limits.new_names_per_wildcard_per_minute", func() bool {
			return lowered(&s.Limits.NewNamesPerWildcardPerMinute, top.Limits.NewNamesPerWildcardPerMinute)
		}},
		{"log.stdout", func() bool { return replace(&s.Log.Stdout, top.Log.Stdout) }},
		{"log.max_size", func() bool { return replace(&s.Log.MaxSize, top.Log.MaxSize) }},
		{"log.files", func() bool { return replace(&s.Log.Files, top.Log.Files) }},
		{"session.clipboard", func() bool { return replace(&s.Session.Clipboard, s.Session.Clipboard && top.Session.Clipboard) }},
		{"tls.ech", func() bool { return top.TLS.ECH == "refuse" && replace(&s.TLS.ECH, top.TLS.ECH) }},
		{"user_namespaces", func() bool { return replace(&s.UserNamespaces, s.UserNamespaces && top.UserNamespaces) }},
		{"nice", func() bool { return replace(&s.Nice, max(s.Nice, top.Nice)) }},
	} {
		if _, fixed := c.set[f.key]; !fixed {
			continue
		}
		if _, said := ps.set[f.key]; f.do() && said {
			took(f.key, "", "what the ceiling says", "it fixes this")
		}
	}
}

// lowered and replace say whether they changed anything.
func lowered[T ~int | ~int64](to *T, top T) bool { return replace(to, min(*to, top)) }

func replace[T comparable](to *T, with T) bool {
	was := *to
	*to = with
	return was != with
}
