package policy

import (
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// key is one that a policy.yaml may have. The table below is all that reads them: a row more, its field in Settings, its
// default and its line in policy.schema.json are a key more. What is one value stands once, in one file; lists of several
// files are joined.
type key struct {
	name string
	read func(ps *parser, file, name string, v *yaml.Node) // name has its section in front: "dns.qps"
	keys []key                                             // of a section, instead of read
}

// keys is no variable: a preset that a file names is read as a file is.
func keys() []key {
	return []key{
		{name: "services", read: items(func(ps *parser, src Source, text string) { ps.preset(src, strings.TrimPrefix(text, "@"), false) })},
		{name: "domains", read: items(func(ps *parser, src Source, text string) { ps.entry(src, text, false) })},
		{name: "networks", read: items((*parser).network)},
		{name: "deny", read: items(func(ps *parser, src Source, text string) { ps.entry(src, text, true) })},
		{name: "inbound", read: items((*parser).inbound)},
		{name: "user", read: (*parser).user},
		{name: "command", read: func(ps *parser, file, _ string, v *yaml.Node) { ps.command(file, v) }},
		{name: "env", read: (*parser).env},
		{name: "selftest", keys: []key{
			{name: "reach", read: items(func(ps *parser, src Source, text string) { ps.probe(src, text, &ps.settings.SelfTest.Reach) })},
			{name: "block", read: items(func(ps *parser, src Source, text string) { ps.probe(src, text, &ps.settings.SelfTest.Block) })},
		}},
		{name: "dns", keys: []key{
			{name: "upstream", read: items((*parser).upstream)},
			{name: "max_ttl", read: duration(time.Second, time.Hour, func(s *Settings) *time.Duration { return &s.DNS.MaxTTL })},
			{name: "qps", read: number(1_000_000, func(s *Settings) *int { return &s.DNS.QPS })},
		}},
		{name: "limits", keys: []key{
			{name: "addrs_per_name", read: number(1024, func(s *Settings) *int { return &s.Limits.AddrsPerName })},
			{name: "leases", read: number(1_000_000, func(s *Settings) *int { return &s.Limits.Leases })},
			{name: "new_names_per_wildcard_per_minute",
				read: number(1_000_000, func(s *Settings) *int { return &s.Limits.NewNamesPerWildcardPerMinute })},
		}},
		{name: "log", keys: []key{
			{name: "stdout", read: boolean(func(s *Settings) *bool { return &s.Log.Stdout })},
			{name: "max_size", read: size(64<<10, 1<<40, func(s *Settings) *int64 { return &s.Log.MaxSize })},
			{name: "files", read: number(1000, func(s *Settings) *int { return &s.Log.Files })},
		}},
		{name: "session", keys: []key{{name: "clipboard", read: boolean(func(s *Settings) *bool { return &s.Session.Clipboard })}}},
		{name: "tls", keys: []key{{name: "ech", read: (*parser).ech}}},
		{name: "user_namespaces", read: boolean(func(s *Settings) *bool { return &s.UserNamespaces })},
	}
}

func names(of []key) []string {
	names := make([]string, len(of))
	for i, k := range of {
		names[i] = k.name
	}
	return names
}

// section takes in the keys of the file, or of a section of it.
func (ps *parser) section(file, section string, v *yaml.Node, of []key) {
	what, prefix := section, section+"."
	if section == "" {
		what, prefix = "the file", ""
	}
	ps.mapping(file, v, what, names(of), func(name string, v *yaml.Node) {
		k := of[slices.IndexFunc(of, func(k key) bool { return k.name == name })]
		if k.keys != nil {
			ps.section(file, prefix+name, v, k.keys)
			return
		}
		k.read(ps, file, prefix+name, v)
	})
}

// items reads a list.
func items(read func(ps *parser, src Source, text string)) func(*parser, string, string, *yaml.Node) {
	return func(ps *parser, file, name string, v *yaml.Node) {
		ps.each(file, v, name, func(src Source, text string) { read(ps, src, text) })
	}
}

// number reads one from 1 to high.
func number(high int, of func(*Settings) *int) func(*parser, string, string, *yaml.Node) {
	return func(ps *parser, file, name string, v *yaml.Node) { ps.number(file, name, v, 1, high, of(&ps.settings)) }
}

func boolean(of func(*Settings) *bool) func(*parser, string, string, *yaml.Node) {
	return func(ps *parser, file, name string, v *yaml.Node) { ps.boolean(file, name, v, of(&ps.settings)) }
}

func duration(low, high time.Duration, of func(*Settings) *time.Duration) func(*parser, string, string, *yaml.Node) {
	return func(ps *parser, file, name string, v *yaml.Node) {
		ps.duration(file, name, v, low, high, of(&ps.settings))
	}
}

func size(low, high int64, of func(*Settings) *int64) func(*parser, string, string, *yaml.Node) {
	return func(ps *parser, file, name string, v *yaml.Node) { ps.size(file, name, v, low, high, of(&ps.settings)) }
}
