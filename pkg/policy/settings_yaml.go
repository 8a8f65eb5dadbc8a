package policy

import (
	"net"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// network reads an address or a block.
func (ps *parser) network(src Source, text string) {
	var r Rule
	if preset, f := parseEntry(text, &r); f == nil && (preset != "" || r.Name != "") {
		ps.fault(src, &fault{0, text, "networks are addresses; names stand under domains", ""})
		return
	}
	ps.entry(src, text, false)
}

func (ps *parser) inbound(src Source, text string) {
	p, f := parsePort(text)
	if f != nil {
		ps.fault(src, f)
		return
	}
	ps.settings.Inbound = append(ps.settings.Inbound, p...)
}

func (ps *parser) user(file, name string, v *yaml.Node) {
	text, ok := ps.value(file, name, v)
	switch {
	case !ok:
	case text == "" || strings.ContainsAny(text, " \t\r\n\x00,/"):
		ps.wrong(file, v, "a user is NAME, UID or UID:GID")
	default:
		ps.settings.User = text
	}
}

func (ps *parser) env(file, name string, v *yaml.Node) {
	ps.mapping(file, v, name, nil, func(variable string, v *yaml.Node) {
		text, ok := ps.value(file, name+"."+variable, v)
		switch {
		case !ok:
		case variable == "" || strings.ContainsAny(variable, "=\x00") || strings.ContainsRune(text, 0):
			ps.wrong(file, v, "not a valid environment variable")
		default:
			if ps.settings.Env == nil {
				ps.settings.Env = map[string]string{}
			}
			ps.settings.Env[variable] = text
		}
	})
}

// ech reads what to do with an Encrypted ClientHello.
func (ps *parser) ech(file, name string, v *yaml.Node) {
	text, ok := ps.value(file, name, v)
	if !ok {
		return
	}
	if text != "pass" && text != "refuse" {
		ps.wrong(file, v, name+" is pass or refuse")
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
