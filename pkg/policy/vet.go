package policy

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/publicsuffix"
)

// finding is what is to be said about a parsed rule: it may not be, or has no effect, or else is probably not meant.
type finding struct {
	text, message string // "": nothing
	wrong, idle   bool
}

func wrong(text, message string) finding { return finding{text, message, true, false} }

func vet(r *Rule) finding {
	if f := vetCarried(r); f.wrong {
		return f
	}
	switch address := r.Name == ""; {
	case r.Deny: // denying too much is safe
		return finding{}
	case r.Required && r.Wildcard:
		return wrong(r.Target(), "a wildcard can't be required: name what the self-test must reach")
	case r.Required && address && !r.Prefix.IsSingleIP():
		return wrong(r.Target(), "a block can't be required: name the address that the self-test must reach")
	case r.Required && len(r.Ports) == 1 && r.Ports[0].Proto == UDP:
		return wrong(r.Target(), "only TCP can be required: nothing has to answer over UDP")
	case r.Connect && r.Wildcard:
		return wrong(r.Target(), "a wildcard can't be a proxy: name the proxy")
	case r.Wildcard:
		return vetWildcard(r.Name)
	case address:
		return vetAddress(r)
	}
	return finding{}
}

// usualPorts are those that a last group which reads like one was meant for.
var usualPorts = []string{"22", "53", "80", "443", "853", "993", "3000", "3128", "3306", "5000", "5432", "6379", "8000", "8080", "8443", "9000"}

// endsInPort says whether r is an IPv6 address that names no port, and looks as if it did.
func endsInPort(r *Rule) bool {
	if !r.Prefix.IsSingleIP() || strings.Contains(r.Text, "[") || len(r.Ports) == 1 {
		return false
	}
	word, _ := field(r.Text)
	host, port := cutLast(word)
	return slices.Contains(usualPorts, port) && strings.Contains(host, "::") && !strings.HasSuffix(host, ":")
}

// cutLast cuts s around its last colon.
func cutLast(s string) (before, after string) {
	i := strings.LastIndexByte(s, ':')
	return s[:max(i, 0)], s[i+1:]
}

// siteTLDs will never be in the public DNS (RFC 6761, RFC 6762 appendix G, ICANN's reservations).
var siteTLDs = [...]string{"corp", "home", "internal", "intranet", "lan", "local", "private", "test"}

//go:embed strangers.txt
var strangersText string

// strangers are the domains below which anybody can have a name, and those above them.
var strangers = sync.OnceValue(func() map[string]bool {
	set := map[string]bool{}
	eachLine(strangersText, func(_, _ int, name string) {
		for more := true; more; _, name, more = strings.Cut(name, ".") {
			set[name] = true
		}
	})
	return set
})

func vetWildcard(name string) finding {
	covers := wrong("*."+name, "the wildcard covers a public suffix, under which anyone can register: name the domain")
	suffix, icann := publicsuffix.PublicSuffix(name)
	// Some rules of the list are wildcards themselves: *.kawasaki.jp.
	below, belowICANN := publicsuffix.PublicSuffix("a." + name)
	switch {
	case suffix == name && icann, suffix != name && belowICANN && below == "a."+name:
		return covers
	case slices.Contains(siteTLDs[:], name):
		return finding{}
	case suffix == name && !strings.Contains(name, "."): // not listed at all
		return covers
	case suffix == name || strangers()[name]:
		return finding{message: "anyone can have a name below " + name + ": list the names that the agent needs"}
	}
	return finding{}
}

func vetAddress(r *Rule) finding {
	p, least := r.Prefix, 16
	if p.Addr().Is6() {
		least = 32
	}
	class, partly := classOf(p)
	switch {
	case p.Bits() == 0:
		return wrong(p.String(), "this allows everything: name the blocks that the agent needs")
	case !p.IsSingleIP() && p.Overlaps(siteNAT64):
		// Where in it an IPv4 address stands is the site's choice: no rule for packets can leave out metadata services.
		return wrong(p.String(), "any IPv4 address may be behind this block, denied ones and metadata too: name single addresses")
	case class == Never:
		return wrong(p.String(), "metadata, multicast and reserved addresses can't be allowed")
	case class == Loopback:
		return finding{message: "loopback needs no entry: it is free inside the container, and never the answer to a name", idle: true}
	case partly:
		return finding{message: "the block holds metadata, multicast or reserved addresses: those stay out of reach"}
	case r.Preset != "": // was written with care
	case p.Bits() < least && class == Public:
		return finding{message: "a block as wide as this belongs to many, and no name is checked there: name smaller blocks, or names"}
	case endsInPort(r):
		host, port := cutLast(p.Addr().String())
		return finding{message: fmt.Sprintf("this is an address by itself, on ports 443 and 80: for a port write [%s]:%s", host, port)}
	}
	return finding{}
}
