package policy

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// key is one that a policy.yaml may have. A row more, its field in Settings, its default and its line in
// policy.schema.json are a key more. One value stands once, in one file; lists of several files are joined.
type key struct {
	name string
	read func(n node)
	keys []key // of a section, instead of read
}

func (ps *parser) keys() []key {
	s := &ps.settings
	return []key{
		{name: "services", read: ps.items(func(src Source, text string) { ps.preset(src, strings.TrimPrefix(text, "@"), false) })},
		{name: "domains", read: ps.items(func(src Source, text string) { ps.entry(&Rule{Source: src, Text: text}) })},
		{name: "networks", read: ps.items(ps.network)},
		{name: "deny", read: ps.items(func(src Source, text string) { ps.entry(&Rule{Source: src, Text: text, Deny: true}) })},
		{name: "inbound", read: list(ps, &s.Inbound, parsePort)},
		{name: "user", read: setting(ps, &s.User, user)},
		{name: "command", read: ps.command},
		{name: "env", read: ps.env},
		{name: "selftest", keys: []key{
			{name: "reach", read: list(ps, &s.SelfTest.Reach, probe)},
			{name: "block", read: list(ps, &s.SelfTest.Block, probe)},
		}},
		{name: "dns", keys: []key{
			{name: "upstream", read: list(ps, &s.DNS.Upstream, upstream)},
			{name: "max_ttl", read: setting(ps, &s.DNS.MaxTTL, span(time.Second, time.Hour))},
			{name: "qps", read: setting(ps, &s.DNS.QPS, number(1, 1_000_000))},
		}},
		{name: "limits", keys: []key{
			{name: "addrs_per_name", read: setting(ps, &s.Limits.AddrsPerName, number(1, 1024))},
			{name: "leases", read: setting(ps, &s.Limits.Leases, number(1, 1_000_000))},
			{name: "new_names_per_wildcard_per_minute", read: setting(ps, &s.Limits.NewNamesPerWildcardPerMinute, number(1, 1_000_000))},
		}},
		{name: "log", keys: []key{
			{name: "stdout", read: setting(ps, &s.Log.Stdout, boolean)},
			{name: "max_size", read: setting(ps, &s.Log.MaxSize, size)},
			{name: "files", read: setting(ps, &s.Log.Files, number(1, 1000))},
		}},
		{name: "session", keys: []key{{name: "clipboard", read: setting(ps, &s.Session.Clipboard, boolean)}}},
		{name: "notify", keys: []key{
			{name: "command", read: ps.notifyCommand},
			{name: "webhook", keys: ps.webhookKeys()},
		}},
		{name: "approvals", keys: ps.approvalKeys()},
		{name: "tls", keys: []key{{name: "ech", read: setting(ps, &s.TLS.ECH, oneOf("pass", "refuse"))}}},
		{name: "upstream_proxy", read: ps.upstreamProxy},
		{name: "broker", read: ps.broker},
		{name: "user_namespaces", read: setting(ps, &s.UserNamespaces, boolean)},
		{name: "nice", read: setting(ps, &s.Nice, number(0, 19))},
	}
}

// former are keys that an earlier agent-init had, with what to do instead.
var former = map[string]string{
	"agents":         "a gateway has one policy for all agents behind it: start another gateway for another policy, see docs/migrating.md",
	"telemetry":      "agent-init sends nothing: an OpenTelemetry Collector or Fluent Bit reads the log, and Prometheus the metrics, see docs/migrating.md",
	"approvals.poll": "agent-init polls for no answers: have them come as files (directory), or as the answer to the webhook, see docs/migrating.md",
}

func names(of []key) []string {
	names := make([]string, len(of))
	for i, k := range of {
		names[i] = k.name
	}
	return names
}

// section takes in the keys of the file, or of a section of it.
func (ps *parser) section(n node, of []key) {
	ps.mapping(n, names(of), func(name string, n node) {
		k := of[slices.IndexFunc(of, func(k key) bool { return k.name == name })]
		if k.keys != nil {
			ps.section(n, k.keys)
			return
		}
		k.read(n)
	})
}

// setting reads one value that is made once.
func setting[T any](ps *parser, to *T, parse func(key, text string) (v T, problem string)) func(node) {
	return func(n node) {
		text, ok := ps.value(n)
		if !ok {
			return
		}
		if v, problem := parse(n.name, text); problem != "" {
			ps.wrong(n, problem)
		} else {
			*to = v
		}
	}
}

// list reads the items of a setting that several files may have.
func list[T any](ps *parser, to *[]T, parse func(text string) (T, *fault)) func(node) {
	return func(n node) {
		ps.items(func(src Source, text string) {
			v, f := parse(text)
			if f != nil {
				ps.fault(src, f)
				return
			}
			ps.set[fmt.Sprint(n.name, " ", v)] = src
			*to = append(*to, v)
		})(n)
	}
}

// value returns the text of a setting that is made once.
func (ps *parser) value(n node) (string, bool) {
	text, ok := ps.scalar(n, n.name)
	return text, ok && ps.once(n.at(), n.name)
}

func user(_, text string) (string, string) {
	if text == "" || strings.ContainsAny(text, " \t\r\n\x00,/") {
		return "", "a user is NAME, UID or UID:GID"
	}
	return text, ""
}

func boolean(key, text string) (bool, string) {
	if text != "true" && text != "false" {
		return false, key + " is true or false"
	}
	return text == "true", ""
}

// number reads one from low to high.
func number[T int | int64](low, high T) func(key, text string) (T, string) {
	return func(key, text string) (T, string) {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < int64(low) || n > int64(high) {
			return 0, fmt.Sprintf("%s is a number from %d to %d", key, low, high)
		}
		return T(n), ""
	}
}

// pathOf reads file:/PATH.
func pathOf(what string) func(key, text string) (string, string) {
	return func(_, text string) (string, string) {
		path, isFile := strings.CutPrefix(text, "file:")
		if !isFile || !filepath.IsAbs(path) {
			return "", what + " is file:/PATH"
		}
		return path, ""
	}
}

// span reads seconds, or a number with a unit.
func span(low, high time.Duration) func(key, text string) (ttl, string) {
	return func(key, text string) (ttl, string) {
		if _, err := strconv.Atoi(text); err == nil {
			text += "s"
		}
		d, err := time.ParseDuration(text)
		if err != nil || d < low || d > high {
			return 0, fmt.Sprintf("%s is a time from %v to %v, as in 300s or 5m", key, low, high)
		}
		return ttl(d), ""
	}
}

// size reads bytes, or a number with a binary unit.
func size(key, text string) (int64, string) {
	n, ok := bytesOf(text)
	if !ok || n < 64<<10 {
		return 0, key + " is a size of at least 64KiB, as in 16MiB"
	}
	return n, ""
}

// bytesOf reads bytes, or a number with a binary unit, up to a tebibyte.
func bytesOf(text string) (n int64, ok bool) {
	const high = 1 << 40
	digits := strings.TrimRight(text, "kKMGiB")
	n, err := strconv.ParseInt(digits, 10, 64)
	shift, known := map[string]int{"": 0, "B": 0, "KiB": 10, "K": 10, "k": 10, "MiB": 20, "M": 20, "GiB": 30, "G": 30}[text[len(digits):]]
	if err != nil || !known || n < 0 || n > high>>shift {
		return 0, false
	}
	return n << shift, true
}

func (ps *parser) network(src Source, text string) {
	var r Rule
	if preset, f := parseEntry(text, &r); f == nil && (preset != "" || r.Name != "") {
		ps.fault(src, &fault{0, text, "networks are addresses; names stand under domains", ""})
		return
	}
	ps.entry(&Rule{Source: src, Text: text})
}

func (ps *parser) env(n node) {
	ps.mapping(n, nil, func(variable string, n node) {
		text, ok := ps.value(n)
		switch {
		case !ok:
		case variable == "" || strings.ContainsAny(variable, "=\x00") || strings.ContainsRune(text, 0):
			ps.wrong(n, "not a valid environment variable")
		default:
			if ps.settings.Env == nil {
				ps.settings.Env = map[string]string{}
			}
			ps.settings.Env[variable] = text
		}
	})
}

// command reads a list of arguments, or one line for the shell.
func (ps *parser) command(n node) {
	switch {
	case n.Kind == yaml.ScalarNode:
		setting(ps, &ps.settings.Command, func(_, text string) ([]string, string) {
			if strings.TrimSpace(text) == "" || strings.ContainsRune(text, 0) {
				return nil, "the command is empty"
			}
			return []string{"/bin/sh", "-c", text}, ""
		})(n)
		return
	case n.Kind != yaml.SequenceNode || len(n.Content) == 0:
		ps.wrong(n, "a command is a list of arguments, or one line for the shell")
		return
	case !ps.once(n.at(), n.name):
		return
	}
	for i, item := range n.Content {
		text, ok := ps.scalar(n.of(item), "an argument")
		switch {
		case !ok:
		case strings.ContainsRune(text, 0) || i == 0 && text == "":
			ps.wrong(n.of(item), "not a valid argument")
		default:
			ps.settings.Command = append(ps.settings.Command, text)
		}
	}
}

func probe(text string) (string, *fault) {
	var r Rule
	preset, f := parseEntry(text, &r)
	switch {
	case f != nil:
		return "", f
	case preset != "", r.Deny, r.Private, r.Required, r.Wildcard, r.Inspects(), r.Name == "" && !r.Prefix.IsSingleIP(),
		r.Ports != nil && r.Ports[0].Proto != TCP:
		return "", &fault{0, text, "a probe is one name or address, with a TCP port if it is not 443", ""}
	case r.Ports == nil:
		r.Ports = []Port{HTTPS}
	}
	r.Flags = Flags{}
	return r.String(), nil
}

func upstream(text string) (string, *fault) {
	u, err := ParseUpstream(text)
	if err != nil {
		return "", &fault{0, text, err.Error(), ""}
	}
	return u.String(), nil
}
