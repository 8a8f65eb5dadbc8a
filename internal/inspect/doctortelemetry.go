package inspect

import "github.com/agent-init/agent-init/internal/text"

// checkTelemetry looks at where the log is sent, and whether it arrives.
func checkTelemetry(d *Diagnosis, p patient) string {
	if p.state == nil || p.state.Telemetry.UID == 0 {
		return ""
	}
	t := p.state.Telemetry
	if why := t.Trouble(); why != "" {
		d.warn("look at the collector, its certificate and the headers; docs/telemetry.md has what is kept meanwhile", "%s", text.Clean(why))
	}
	if t.Lost+t.Refused > 0 {
		d.warn("make log.max_size larger, or see why the collector refuses what it is sent", "%s lost before they were sent, %d refused by the collector",
			text.Counted(t.Lost, "event was", "events were"), t.Refused)
	}
	return t.To
}
