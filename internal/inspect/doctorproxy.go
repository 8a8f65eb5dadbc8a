package inspect

import (
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/audit"
)

// byProxy says whether an event is of a connection that the upstream proxy did not make, or of a request that it refused.
func byProxy(e audit.Event) bool {
	return (e.Kind == audit.Connect && e.Verdict == audit.Deny || e.Kind == audit.Broker && e.Verdict == audit.Fault) && strings.Contains(e.Reason, "by the upstream proxy: ")
}

// checkProxy looks at the upstream proxy: whether it makes connections, and whether programs try to go around us to it.
func checkProxy(d *Diagnosis, p patient) string {
	if p.inForce == nil || p.inForce.Settings.UpstreamProxy.Host == "" {
		return ""
	}
	x := &p.inForce.Settings.UpstreamProxy
	if len(p.proxyVariables) > 0 {
		d.warn("take them out of the container: agent-init goes by the proxy for every program",
			"%s: programs that ask a proxy by themselves don't reach one", strings.Join(p.proxyVariables, ", "))
	}
	if p.proxyFailed > 0 {
		d.warn("see agent-init log --denied; docs/proxy.md has what each reason means", "%s not made since the start, the last at %s: %s",
			text.Counted(p.proxyFailed, "connection was", "connections were"), text.Moment(p.proxyLast.Time, time.Now()), text.Clean(p.proxyLast.Reason))
	}
	return x.String()
}
