package inspect

import (
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/route"
)

// trusting is what is known of programs that ask inspected names.
type trusting struct {
	unknown bool              // the agent's environment names no file with the authority's certificate
	own     []string          // variables of it by which some programs take another list
	refused map[string]uint64 // connections whose client did not accept the certificate, by name
}

// ownLists are variables that go before SSL_CERT_FILE for those that read them: pip, the SDKs of AWS, npm.
var ownLists = []string{"PIP_CERT", "AWS_CA_BUNDLE", "NPM_CONFIG_CAFILE", "npm_config_cafile"}

// trustingBy reads what the agent's programs trust from its environment; nil if others have started it.
func trustingBy(env map[string]string) trusting {
	t := trusting{refused: map[string]uint64{}}
	if env == nil {
		return t
	}
	ours := func(file string) bool { return slices.Contains([]string{"trust.pem", "trust.jks"}, path.Base(file)) }
	t.unknown = !ours(env["SSL_CERT_FILE"])
	for _, variable := range ownLists {
		if value := env[variable]; value != "" && !ours(value) {
			t.own = append(t.own, variable)
		}
	}
	if _, store, ok := strings.Cut(env["JAVA_TOOL_OPTIONS"], "-Djavax.net.ssl.trustStore="); ok && !ours(strings.SplitN(store, " ", 2)[0]) {
		t.own = append(t.own, "JAVA_TOOL_OPTIONS")
	}
	return t
}

// distrusts says whether an event is of a client that did not accept the certificate.
func distrusts(e audit.Event) bool {
	return e.Kind == audit.Broker && e.Route == "" && e.Method == "" && e.Name != "" && strings.HasPrefix(e.Reason, "client: ")
}

// checkInspected looks for programs that can't ask inspected names, since they don't know the certificate.
func checkInspected(d *Diagnosis, p patient) string {
	if p.inForce == nil || p.state == nil {
		return ""
	}
	all := p.inForce.Settings.Inspected
	if !slices.ContainsFunc(all, func(i route.Inspected) bool { return !i.Plain }) {
		return ""
	}
	const see = "; docs/certificates.md says what each takes"
	if p.trusts.unknown {
		d.warn("start the container again", "the agent was started while no name was inspected: its programs don't know the certificate")
	}
	for _, variable := range p.trusts.own {
		d.warn("take it out, or add authority.pem of the runtime directory to what it names"+see,
			"%s names a list of its own: what reads it does not know the certificate of inspected names", variable)
	}
	names := slices.Sorted(maps.Keys(p.trusts.refused))
	const shown = 3
	if len(names) > 0 {
		n, list := uint64(0), strings.Join(names[:min(len(names), shown)], ", ")
		for _, count := range p.trusts.refused {
			n += count
		}
		if len(names) > shown {
			list += ", …"
		}
		d.warn("agent-init log --denied has the times"+see+"; for one that pins a certificate, take the request words out of the entry",
			"%s to %s: the program did not accept the certificate. It has a list of its own, or pins one",
			text.Counted(n, "connection", "connections"), list)
	}
	return text.Counted(len(all), "name with a port", "names with a port") + "; programs know the certificate that have their list from SSL_CERT_FILE, NODE_EXTRA_CA_CERTS and the like"
}
