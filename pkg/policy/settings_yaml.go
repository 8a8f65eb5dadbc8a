package policy

import (
	"net"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// setting takes in one key of a file that is not about rules. A setting is made
// once, in one file; lists of several files are joined.
func (ps *parser) setting(file, key string, v *yaml.Node) {
	s := &ps.settings
	switch key {
	case "inbound":
		ps.each(file, v, key, func(src Source, text string) {
			p, f := parsePort(text)
			if f != nil {
				ps.fault(src, f)
				return
			}
			s.Inbound = append(s.Inbound, p...)
		})
	case "user":
		if text, ok := ps.value(file, key, v); ok {
			if text == "" || strings.ContainsAny(text, " \t\r\n\x00,/") {
				ps.wrong(file, v, "a user is NAME, UID or UID:GID")
				return
			}
			s.User = text
		}
	case "command":
		ps.command(file, v)
	case "env":
		ps.mapping(file, v, key, nil, func(name string, v *yaml.Node) {
			text, ok := ps.value(file, "env."+name, v)
			switch {
			case !ok:
			case name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(text, 0):
				ps.wrong(file, v, "not a valid environment variable")
			default:
				if s.Env == nil {
					s.Env = map[string]string{}
				}
				s.Env[name] = text
			}
		})
	case "selftest":
		ps.mapping(file, v, key, sectionKeys[key], func(name string, v *yaml.Node) {
			list := &s.SelfTest.Reach
			if name == "block" {
				list = &s.SelfTest.Block
			}
			ps.each(file, v, "selftest."+name, func(src Source, text string) { ps.probe(src, text, list) })
		})
	case "dns":
		ps.mapping(file, v, key, sectionKeys[key], func(name string, v *yaml.Node) {
			switch name {
			case "upstream":
				ps.each(file, v, "dns.upstream", ps.upstream)
			case "max_ttl":
				ps.duration(file, "dns.max_ttl", v, time.Second, time.Hour, &s.DNS.MaxTTL)
			case "qps":
				ps.number(file, "dns.qps", v, 1, 1_000_000, &s.DNS.QPS)
			}
		})
	case "limits":
		ps.mapping(file, v, key, sectionKeys[key], func(name string, v *yaml.Node) {
			switch name {
			case "addrs_per_name":
				ps.number(file, "limits."+name, v, 1, 1024, &s.Limits.AddrsPerName)
			case "leases":
				ps.number(file, "limits."+name, v, 1, 1_000_000, &s.Limits.Leases)
			case "new_names_per_wildcard_per_minute":
				ps.number(file, "limits."+name, v, 1, 1_000_000, &s.Limits.NewNamesPerWildcardPerMinute)
			}
		})
	case "log":
		ps.mapping(file, v, key, sectionKeys[key], func(name string, v *yaml.Node) {
			switch name {
			case "stdout":
				ps.boolean(file, "log.stdout", v, &s.Log.Stdout)
			case "max_size":
				ps.size(file, "log.max_size", v, 64<<10, 1<<40, &s.Log.MaxSize)
			case "files":
				ps.number(file, "log.files", v, 1, 1000, &s.Log.Files)
			}
		})
	case "session":
		ps.mapping(file, v, key, sectionKeys[key], func(_ string, v *yaml.Node) {
			ps.boolean(file, "session.clipboard", v, &s.Session.Clipboard)
		})
	case "tls":
		ps.mapping(file, v, key, sectionKeys[key], func(_ string, v *yaml.Node) { ps.ech(file, v) })
	case "user_namespaces":
		ps.boolean(file, key, v, &s.UserNamespaces)
	}
}

// ech reads what to do with an Encrypted ClientHello.
func (ps *parser) ech(file string, v *yaml.Node) {
	text, ok := ps.value(file, "tls.ech", v)
	if !ok {
		return
	}
	if text != "pass" && text != "refuse" {
		ps.wrong(file, v, "tls.ech is pass or refuse")
		return
	}
	ps.settings.TLS.RefuseECH = text == "refuse"
}

// value returns the text of a setting that is made once.
func (ps *parser) value(file, key string, v *yaml.Node) (string, bool) {
	text, ok := ps.scalar(file, v, key)
	return text, ok && ps.once(at(file, v), key)
}

// command reads a list of arguments, or one line for the shell.
func (ps *parser) command(file string, v *yaml.Node) {
	if v.Kind == yaml.ScalarNode {
		if text, ok := ps.value(file, "command", v); ok {
			if strings.TrimSpace(text) == "" || strings.ContainsRune(text, 0) {
				ps.wrong(file, v, "the command is empty")
				return
			}
			ps.settings.Command = []string{"/bin/sh", "-c", text}
		}
		return
	}
	if v.Kind != yaml.SequenceNode || len(v.Content) == 0 {
		ps.wrong(file, v, "a command is a list of arguments, or one line for the shell")
		return
	}
	if !ps.once(at(file, v), "command") {
		return
	}
	for i, item := range v.Content {
		text, ok := ps.scalar(file, item, "an argument")
		switch {
		case !ok:
		case strings.ContainsRune(text, 0) || i == 0 && text == "":
			ps.wrong(file, item, "not a valid argument")
		default:
			ps.settings.Command = append(ps.settings.Command, text)
		}
	}
}

// probe reads a target of the self-test.
func (ps *parser) probe(src Source, text string, list *[]string) {
	var r Rule
	preset, f := parseEntry(text, &r)
	switch {
	case f != nil:
		ps.fault(src, f)
		return
	case preset != "", r.Deny, r.Private, r.Required, r.Wildcard, r.Name == "" && !r.Prefix.IsSingleIP(),
		r.Ports != nil && r.Ports[0].Proto != TCP:
		ps.fault(src, &fault{0, text, "a probe is one name or address, with a TCP port if it is not 443", ""})
		return
	}
	port := uint16(443)
	if r.Ports != nil {
		port = r.Ports[0].Number
	}
	target := net.JoinHostPort(r.Target(), strconv.Itoa(int(port)))
	ps.set["probe "+target] = src
	*list = append(*list, target)
}

// upstream reads a DNS server.
func (ps *parser) upstream(src Source, text string) {
	u, err := ParseUpstream(text)
	if err != nil {
		ps.fault(src, &fault{0, text, err.Error(), ""})
		return
	}
	ps.settings.DNS.Upstream = append(ps.settings.DNS.Upstream, u.String())
}

func (ps *parser) number(file, key string, v *yaml.Node, low, high int, to *int) {
	text, ok := ps.value(file, key, v)
	if !ok {
		return
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		ps.wrong(file, v, key+" is a number from "+strconv.Itoa(low)+" to "+strconv.Itoa(high))
		return
	}
	*to = n
}

func (ps *parser) boolean(file, key string, v *yaml.Node, to *bool) {
	text, ok := ps.value(file, key, v)
	if !ok {
		return
	}
	if text != "true" && text != "false" {
		ps.wrong(file, v, key+" is true or false")
		return
	}
	*to = text == "true"
}

// duration reads seconds, or a number with a unit.
func (ps *parser) duration(file, key string, v *yaml.Node, low, high time.Duration, to *time.Duration) {
	text, ok := ps.value(file, key, v)
	if !ok {
		return
	}
	if _, err := strconv.Atoi(text); err == nil {
		text += "s"
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < low || d > high {
		ps.wrong(file, v, key+" is a time from "+low.String()+" to "+high.String()+", as in 300s or 5m")
		return
	}
	*to = d
}

// size reads bytes, or a number with a binary unit.
func (ps *parser) size(file, key string, v *yaml.Node, low, high int64, to *int64) {
	text, ok := ps.value(file, key, v)
	if !ok {
		return
	}
	digits := strings.TrimRight(text, "kKMGiB")
	n, err := strconv.ParseInt(digits, 10, 64)
	shift, known := map[string]int{"": 0, "B": 0, "KiB": 10, "K": 10, "k": 10, "MiB": 20, "M": 20, "GiB": 30, "G": 30}[text[len(digits):]]
	if err != nil || !known || n < 0 || n > high>>shift || n<<shift < low {
		ps.wrong(file, v, key+" is a size of at least 64KiB, as in 16MiB")
		return
	}
	*to = n << shift
}
