package policy

import (
	"slices"
	"strings"
	"testing"
)

func TestEntryForms(t *testing.T) {
	for _, tt := range []struct {
		entry, rule string
		ports       string
	}{
		{"api.anthropic.com", "api.anthropic.com", "443/tcp 80/tcp"},
		{"API.Anthropic.COM.", "api.anthropic.com", "443/tcp 80/tcp"},
		{"api.anthropic.com.:443", "api.anthropic.com:443", "443/tcp"},
		{"*.githubusercontent.com", "*.githubusercontent.com", "443/tcp 80/tcp"},
		{"*.Example.com:8443", "*.example.com:8443", "8443/tcp"},
		{"localai:8080", "localai:8080", "8080/tcp"},
		{"my_service", "my_service", "443/tcp 80/tcp"},
		{"registry.corp.example:443 private", "registry.corp.example:443 private", "443/tcp"},
		{"registry.corp.example \t private  required", "registry.corp.example private required", "443/tcp 80/tcp"},
		{"ntp.corp.example:123/udp private", "ntp.corp.example:123/udp private", "123/udp"},
		{"example.com:53/TCP", "example.com:53", "53/tcp"},
		{"r3---sn-abc.example.com", "r3---sn-abc.example.com", "443/tcp 80/tcp"},
		{"münchen.example", "xn--mnchen-3ya.example", "443/tcp 80/tcp"},
		{"MÜNCHEN.example", "xn--mnchen-3ya.example", "443/tcp 80/tcp"},
		{"xn--mnchen-3ya.example", "xn--mnchen-3ya.example", "443/tcp 80/tcp"},
		{"*.bücher.example:443", "*.xn--bcher-kva.example:443", "443/tcp"},
		{"10.200.200.1:11434", "10.200.200.1:11434", "11434/tcp"},
		{"10.200.200.1:53/udp", "10.200.200.1:53/udp", "53/udp"},
		{"10.0.0.1 private", "10.0.0.1", "443/tcp 80/tcp"},
		{"10.0.0.0/8", "10.0.0.0/8", "443/tcp 80/tcp"},
		{"10.0.0.0/8:22", "10.0.0.0/8:22", "22/tcp"},
		{"10.0.0.0/8:53/udp", "10.0.0.0/8:53/udp", "53/udp"},
		{"2001:db8::1", "2001:db8::1", "443/tcp 80/tcp"},
		{"2001:DB8:0::1", "2001:db8::1", "443/tcp 80/tcp"},
		{"[2001:db8::1]", "2001:db8::1", "443/tcp 80/tcp"},
		{"[2001:db8::1]:443", "[2001:db8::1]:443", "443/tcp"},
		{"[2001:db8::]/32", "[2001:db8::]/32", "443/tcp 80/tcp"},
		{"2001:db8::/32", "[2001:db8::]/32", "443/tcp 80/tcp"},
		{"[2001:db8::/32]", "[2001:db8::]/32", "443/tcp 80/tcp"},
		{"[2001:db8::]/32:443", "[2001:db8::]/32:443", "443/tcp"},
		{"[2001:db8::/32]:53/udp", "[2001:db8::]/32:53/udp", "53/udp"},
		{"!gist.github.com", "!gist.github.com", ""},
		{"!example.com:22", "!example.com:22", "22/tcp"},
		{"!*.com", "!*.com", ""},
		{"!10.0.0.0/8", "!10.0.0.0/8", ""},
		{"!0.0.0.0/0:25", "!0.0.0.0/0:25", "25/tcp"},
		{"![2001:db8::1]:443", "![2001:db8::1]:443", "443/tcp"},
		{"!169.254.169.254", "!169.254.169.254", ""},
		{"*.lan private", "*.lan private", "443/tcp 80/tcp"},
		{"*.lan upgrade", "*.lan upgrade", "443/tcp 80/tcp"},
		{"a.example:80 connect upgrade", "a.example:80 upgrade connect", "80/tcp"},
		{"a.example upgrade required private connect", "a.example private required upgrade connect", "443/tcp 80/tcp"},
		{"a.example:443 upgrade", "a.example:443", "443/tcp"}, // with a warning, as the others below
		{"a.example:80/udp connect", "a.example:80/udp", "80/udp"},
		{"192.0.2.1 upgrade", "192.0.2.1", "443/tcp 80/tcp"},
		{"10.0.0.1:443 required", "10.0.0.1:443 required", "443/tcp"},
	} {
		p := parse(t, "a.txt", tt.entry)
		if len(p.rules) != 1 {
			t.Errorf("%q: rules %q", tt.entry, rules(p))
			continue
		}
		r := p.rules[0]
		var ports []string
		for _, port := range r.Ports {
			ports = append(ports, port.String())
		}
		if r.String() != tt.rule || strings.Join(ports, " ") != tt.ports {
			t.Errorf("%q: got %q with ports %q, want %q with %q", tt.entry, r, ports, tt.rule, tt.ports)
		}
		if again := parse(t, "a.txt", r.String()).rules[0]; again.String() != r.String() || !slices.Equal(again.Ports, r.Ports) {
			t.Errorf("%q reads as %q", r, again)
		}
	}
}

func TestEntryErrors(t *testing.T) {
	for _, tt := range []struct{ entry, want string }{
		{"https://api.example.com/v1", `f:1:1: an entry is a name, not a URL: "https://api.example.com/v1" (did you mean api.example.com?)`},
		{"https://me:pw@api.example.com:8443/v1?x", `f:1:1: an entry is a name, not a URL: "https://me:pw@api.example.com:8443/v1?x" (did you mean api.example.com:8443?)`},
		{"http://10.0.0.1:80/", `f:1:1: an entry is a name, not a URL: "http://10.0.0.1:80/" (did you mean 10.0.0.1?)`},
		{"https://[2001:db8::1]/", `f:1:1: an entry is a name, not a URL: "https://[2001:db8::1]/" (did you mean [2001:db8::1]?)`},
		{"github.com/anthropics", `f:1:1: an entry is a name; which requests pass stands behind it: "github.com/anthropics" (did you mean github.com read /anthropics?)`},
		{"github.com/a/**/b", `f:1:1: an entry is a name; which requests pass stands behind it: "github.com/a/**/b"`},
		{"example.com/udp", `f:1:1: a protocol stands after a port, as in host:53/udp: "example.com/udp"`},
		{"git@github.com", `f:1:1: an entry is a name, without a user: "git@github.com" (did you mean github.com?)`},
		{"a.example,b.example", `f:1:1: one entry per line: "a.example,b.example"`},
		{"a.example b.example", `f:1:11: one entry per line; behind it stand only METHODS /PATH, and words such as private: "b.example"`},
		{"  a.example privat", `f:1:13: unknown flag: "privat" (did you mean private?)`},
		{"a.example optional", `f:1:11: unknown flag: "optional"`},
		{"!a.example upgrade", `f:1:12: a deny entry takes no flags: "upgrade"`},
		{"a.example upgrades", `f:1:11: unknown flag: "upgrades" (did you mean upgrade?)`},
		{"*.a.example connect", `f:1:1: a wildcard can't be a proxy: name the proxy: "*.a.example"`},
		{"!a.example private", `f:1:12: a deny entry takes no flags: "private"`},
		{"!", `f:1:2: the name is missing`},
		{"! a.example", `f:1:2: the name is missing`},
		{"!!a.example", `f:1:2: a name can't contain '!': "!a.example"`},
		{"a.example:0", `f:1:11: a port is one number from 1 to 65535: "0"`},
		{"a.example:65536", `f:1:11: a port is one number from 1 to 65535: "65536"`},
		{"a.example:+80", `f:1:11: a port is one number from 1 to 65535: "+80"`},
		{"a.example:80,443", `f:1:11: a port is one number from 1 to 65535: "80,443"`},
		{"a.example:*", `f:1:11: a port is one number from 1 to 65535: "*"`},
		{"a.example:", `f:1:11: a port is one number from 1 to 65535`},
		{"a.example:443/tpc", `f:1:11: unknown protocol: "443/tpc" (did you mean tcp?)`},
		{":443", `f:1:1: the name is missing`},
		{"*", `f:1:1: this allows everything: name what the agent needs: "*"`},
		{"*.com", `f:1:1: the wildcard covers a public suffix, under which anyone can register: name the domain: "*.com"`},
		{"*.co.uk", `f:1:1: the wildcard covers a public suffix, under which anyone can register: name the domain: "*.co.uk"`},
		{"*.kawasaki.jp", `f:1:1: the wildcard covers a public suffix, under which anyone can register: name the domain: "*.kawasaki.jp"`},
		{"*.notalisted", `f:1:1: the wildcard covers a public suffix, under which anyone can register: name the domain: "*.notalisted"`},
		{"**.example.com", `f:1:1: a * may only be the whole first label: "**.example.com" (did you mean *.example.com?)`},
		{"a.*.example.com", `f:1:1: a * may only be the whole first label: "a.*.example.com" (did you mean *.example.com?)`},
		{"*.*.example.com", `f:1:1: a * may only be the whole first label: "*.*.example.com" (did you mean *.example.com?)`},
		{"*foo.com", `f:1:1: a * may only be the whole first label: "*foo.com" (did you mean *.foo.com?)`},
		{"*-x.example.com", `f:1:1: a * may only be the whole first label: "*-x.example.com" (did you mean *.example.com?)`},
		{".example.com", `f:1:1: the name has an empty label: ".example.com" (did you mean *.example.com?)`},
		{"*.", `f:1:1: the name is missing: "*."`},
		{"a..example", `f:1:1: the name has an empty label: "a..example"`},
		{"-a.example", `f:1:1: a label begins or ends with a hyphen: "-a.example"`},
		{"a b\x00", `f:1:3: unknown flag: "b\x00"`},
		{"a\x00b", `f:1:1: a name can't contain '\x00': "a\x00b"`},
		{strings.Repeat("a", 64) + ".example", `f:1:1: a label is longer than 63 characters: "` + strings.Repeat("a", 64) + `.example"`},
		{strings.Repeat("abcdefg.", 32) + "example", `f:1:1: the name is longer than 253 characters: "` + strings.Repeat("abcdefg.", 9) + `abcdefg…"`},
		{"xn--zzzzzzzzzzz.example", `f:1:1: not a valid internationalised name: "xn--zzzzzzzzzzz.example"`},
		{"a\ufffdb.example", `f:1:1: not a valid internationalised name: "a�b.example"`},
		{"2130706433", `f:1:1: an address is written as four decimal numbers: "2130706433" (did you mean 127.0.0.1?)`},
		{"0x7f.1", `f:1:1: an address is written as four decimal numbers: "0x7f.1" (did you mean 127.0.0.1?)`},
		{"0x7f.1:80", `f:1:1: an address is written as four decimal numbers: "0x7f.1:80" (did you mean 127.0.0.1:80?)`},
		{"017700000001", `f:1:1: an address is written as four decimal numbers: "017700000001" (did you mean 127.0.0.1?)`},
		{"1.2.3.4.5.6", `f:1:1: a name can't end in a number: it would be read as an address: "1.2.3.4.5.6"`},
		{"1.300.3.4", `f:1:1: not a valid address: "1.300.3.4"`},
		{"*a..b.example", `f:1:1: a * may only be the whole first label: "*a..b.example"`},
		{"127.1", `f:1:1: an address is written as four decimal numbers: "127.1" (did you mean 127.0.0.1?)`},
		{"010.0.0.1", `f:1:1: not a valid address: "010.0.0.1" (did you mean 8.0.0.1?)`},
		{"0xA9FEA9FE", `f:1:1: an address is written as four decimal numbers: "0xA9FEA9FE" (did you mean 169.254.169.254?)`},
		{"１２７.0.0.1", `f:1:1: a name can't end in a number: it would be read as an address: "１２７.0.0.1"`},
		{"example.123", `f:1:1: a name can't end in a number: it would be read as an address: "example.123"`},
		{"example.0x1f", `f:1:1: a name can't end in a number: it would be read as an address: "example.0x1f"`},
		{"*.10.0.0.1", `f:1:1: a name can't end in a number: it would be read as an address: "*.10.0.0.1"`},
		{"10.0.0.256", `f:1:1: not a valid address: "10.0.0.256"`},
		{"10.0.0.1/33", `f:1:1: not a valid address block: "10.0.0.1/33"`},
		{"fd00::/8:80", `f:1:1: not a valid address block: "fd00::/8:80" (did you mean [fd00::]/8:80?)`},
		{"10.0/8", `f:1:1: not a valid address block: "10.0/8"`},
		{"10.1.2.3/8", `f:1:1: the address has bits beyond its prefix length: "10.1.2.3/8" (did you mean 10.0.0.0/8?)`},
		{"::ffff:10.0.0.1", `f:1:1: an IPv4 address is written as such: "::ffff:10.0.0.1" (did you mean 10.0.0.1?)`},
		{"::ffff:10.0.0.0/104", `f:1:1: an IPv4 block is written as such: "::ffff:10.0.0.0/104"`},
		{"fe80::1%eth0", `f:1:1: an address here has no zone: "fe80::1%eth0" (did you mean fe80::1?)`},
		{"[2001:db8::1", `f:1:1: the ] is missing: "[2001:db8::1"`},
		{"[example.com]:443", `f:1:1: only an IPv6 address stands in brackets: "[example.com]:443"`},
		{"[2001:db8::1]443", `f:1:1: only an IPv6 address stands in brackets: "[2001:db8::1]443"`},
		{"0.0.0.0/0", `f:1:1: this allows everything: name the blocks that the agent needs: "0.0.0.0/0"`},
		{"::/0", `f:1:1: this allows everything: name the blocks that the agent needs: "::/0"`},
		{"169.254.169.254", `f:1:1: metadata, multicast and reserved addresses can't be allowed: "169.254.169.254/32"`},
		{"169.254.170.0/24:80", `f:1:1: metadata, multicast and reserved addresses can't be allowed: "169.254.170.0/24"`},
		{"168.63.129.16", `f:1:1: metadata, multicast and reserved addresses can't be allowed: "168.63.129.16/32"`},
		{"fd00:ec2::254", `f:1:1: metadata, multicast and reserved addresses can't be allowed: "fd00:ec2::254/128"`},
		{"64:ff9b::169.254.0.0/112", `f:1:1: metadata, multicast and reserved addresses can't be allowed: "64:ff9b::a9fe:0/112"`},
		{"2002:a9fe::/32", `f:1:1: metadata, multicast and reserved addresses can't be allowed: "2002:a9fe::/32"`},
		{"4000::/3", `f:1:1: metadata, multicast and reserved addresses can't be allowed: "4000::/3"`},
		{"*.example.com required", `f:1:1: a wildcard can't be required: name what the self-test must reach: "*.example.com"`},
		{"10.0.0.0/8 required", `f:1:1: a block can't be required: name the address that the self-test must reach: "10.0.0.0/8"`},
		{"a.example:53/udp required", `f:1:1: only TCP can be required: nothing has to answer over UDP: "a.example"`},
		{"@gihub", `f:1:1: unknown preset: "gihub" (did you mean github?)`},
		{"@", `f:1:1: the name of the preset is missing: "@"`},
		{"@../claude", `f:1:1: unknown preset: "../claude"`},
		{"@github required", `f:1:9: a preset takes no flags: "required"`},
	} {
		if got := failure(t, "f", tt.entry); got != tt.want {
			t.Errorf("%q:\n got %s\nwant %s", tt.entry, got, tt.want)
		}
	}
}

// Without presets there is none to take.
func TestNoPresets(t *testing.T) {
	_, err := Parse(&Bundle{Files: []File{{Name: "f", Data: []byte("@github")}}}, nil)
	if err == nil || err.Error() != `f:1:1: unknown preset: "github"` {
		t.Errorf("got %v", err)
	}
}

func TestEntryWarnings(t *testing.T) {
	for _, tt := range []struct{ entry, want string }{
		{"*.github.io", `f:1:1: anyone can have a name below github.io: list the names that the agent needs: "*.github.io"`},
		{"*.s3.amazonaws.com", `f:1:1: anyone can have a name below s3.amazonaws.com: list the names that the agent needs: "*.s3.amazonaws.com"`},
		{"160.0.0.0/3", `f:1:1: the block holds metadata, multicast or reserved addresses: those stay out of reach: "160.0.0.0/3"`},
		{"fd00::/8", `f:1:1: the block holds metadata, multicast or reserved addresses: those stay out of reach: "fd00::/8"`},
		{"127.0.0.1:3000", `f:1:1: loopback needs no entry: it is free inside the container, and never the answer to a name: "127.0.0.1:3000"`},
		{"::1", `f:1:1: loopback needs no entry: it is free inside the container, and never the answer to a name: "::1"`},
		{"a.example:443 upgrade", `f:1:1: upgrade has no effect here: it is about HTTP on port 80 of a name: "a.example:443 upgrade"`},
		{"a.example:3128 connect", `f:1:1: connect has no effect here: it is about HTTP on port 80 of a name: "a.example:3128 connect"`},
		{"10.0.0.1:80 connect", `f:1:1: connect has no effect here: it is about HTTP on port 80 of a name: "10.0.0.1:80 connect"`},
		{"a.example upgrade connect", ``},
		{"10.0.0.0/8", ``},
		{"*.amazonaws.com", `f:1:1: anyone can have a name below amazonaws.com: list the names that the agent needs: "*.amazonaws.com"`},
		{"*.windows.net", `f:1:1: anyone can have a name below windows.net: list the names that the agent needs: "*.windows.net"`},
		{"*.sentry.io", `f:1:1: anyone can have a name below sentry.io: list the names that the agent needs: "*.sentry.io"`},
		{"*.mine.zendesk.com", ``},
		{"16.0.0.0/4", `f:1:1: a block as wide as this belongs to many, and no name is checked there: name smaller blocks, or names: "16.0.0.0/4"`},
		{"[2a00::]/31:443", `f:1:1: a block as wide as this belongs to many, and no name is checked there: name smaller blocks, or names: "[2a00::]/31:443"`},
		{"8.8.0.0/16", ``},
		{"[2a00::]/32", ``},
		{"2001:db8::1:443", `f:1:1: this is an address by itself, on ports 443 and 80: for a port write [2001:db8::1]:443: "2001:db8::1:443"`},
		{"2001:db8::443", ``},
		{"2001:db8:0:0:0:0:0:443", ``},
		{"[2001:db8::1:443]:443", ``},
		{"2001:db8::1:444", ``},
		{"2001:db8::a9fe:a900/120", ``}, // no IPv4 is in there
		{"*.example.com", ``},
		{"*.corp.example", ``},
	} {
		p := parse(t, "f", tt.entry)
		if got := warnings(p); got != tt.want {
			t.Errorf("%q:\n got %s\nwant %s", tt.entry, got, tt.want)
		}
	}
	if p := parse(t, "f", "160.0.0.0/3"); p.DecideAddr(addr("169.254.169.254"), tcp(80)).Allowed {
		t.Error("a wide block opens the metadata address")
	}
	if p := parse(t, "f", "127.0.0.1:3000"); len(p.Static) != 0 {
		t.Error("a loopback entry has an effect")
	}
}

func TestListsOfOtherTools(t *testing.T) {
	data := "\ufeff# a heading\r\n\r\napi.example.com   # why\r\n\t*.example.org\t\r\n#off.example\r\nlast.example"
	want := []string{"api.example.com", "*.example.org", "last.example"}
	if got := rules(parse(t, "a.txt", data)); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAllErrorsAtOnce(t *testing.T) {
	_, err := Parse(&Bundle{Files: []File{
		{Name: "allowlist.txt", Data: []byte("ok.example\nhttps://x.example/\nb ad\n")},
		{Name: "policy.yaml", Data: []byte("domain: [a]\n")},
		{Name: "latin1.txt", Data: []byte("m\xfcnchen.example\n")},
	}}, nil)
	want := join(
		`allowlist.txt:2:1: an entry is a name, not a URL: "https://x.example/" (did you mean x.example?)`,
		`allowlist.txt:3:3: unknown flag: "ad"`,
		`policy.yaml:1:1: unknown key: "domain" (did you mean domains?)`,
		`latin1.txt: the file is not UTF-8 text`)
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestErrorsAreBounded(t *testing.T) {
	_, err := Parse(&Bundle{Files: []File{{Name: "f", Data: []byte(strings.Repeat("*\n", 1234))}}}, nil)
	list, ok := err.(ErrorList)
	if !ok || len(list) != maxErrors+1 || list[maxErrors].Error() != "and 1134 more" {
		t.Errorf("got %d errors of type %T, the last %v", len(list), err, list[len(list)-1])
	}
}

// What is quoted is cut between characters, whatever it consists of: the name of
// a file may be any bytes.
func TestShorten(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"short":              {strings.Repeat("a", 80), strings.Repeat("a", 80)},
		"long":               {strings.Repeat("a", 81), strings.Repeat("a", 79) + "…"},
		"within a character": {strings.Repeat("a", 78) + "äöü", strings.Repeat("a", 78) + "…"},
		"behind a character": {strings.Repeat("a", 77) + "äöü", strings.Repeat("a", 77) + "ä…"},
		"no character":       {strings.Repeat("\x80", 100), "…"},
	} {
		if got := shorten(tc.text); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	_, err := Parse(&Bundle{Files: []File{{Name: strings.Repeat("\x80", 100) + "\x01"}}}, nil)
	if err == nil {
		t.Error("a file of such a name is read")
	}
}
