package keeper

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/pkg/policy"
)

// exporterName is the program of the exporter, beside this one: what speaks the protocol is as large as all of agent-init.
const exporterName = "agent-init-exporter"

// exporterProgram is its path. It is nobody's but root's to write: it reads the log, and speaks to the collector.
func exporterProgram() (string, error) {
	self, err := os.Readlink(stage.Self)
	if err != nil {
		return "", fault.New(fault.Policy, "mount /proc in the container", "find this program's own file: %w", err)
	}
	path := filepath.Join(filepath.Dir(self), exporterName)
	err = policy.CheckProgram(path)
	if bad, ok := errors.AsType[*policy.FileError](err); ok {
		return "", fault.New(fault.Policy, bad.Remedy, "telemetry: %s", bad.What())
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "", fault.New(fault.Policy, "copy it out of a release or of the image agent-base: COPY --from=agent-base "+path+" "+path+
			"; or take telemetry out of policy.yaml", "telemetry: the image has no %s", path)
	}
	return path, err
}

// judgeTelemetry says why what p says of telemetry can't be done here.
func (b *base) judgeTelemetry(p *policy.Policy, reduced bool) error {
	if p.Exporter == nil {
		return nil
	}
	if reduced {
		return fault.New(fault.Policy, "use another runtime than gVisor, or take telemetry out",
			"telemetry: inside gVisor nothing can tell the exporter's connections from the agent's")
	}
	if _, err := exporterProgram(); err != nil {
		return err
	}
	_, err := b.telemetryConfig(p)
	return err
}

// exportable says why there is nobody to send what p says.
func (r *rules) exportable(p *policy.Policy) error {
	switch {
	case p.Exporter != nil && r.exporter.uid == 0:
		return fault.New(fault.Policy, "start the container again to have it sent", "telemetry: there was no collector when agent-init was started")
	case p.Settings.Telemetry.Prometheus != r.scraped && p.Settings.Telemetry.Prometheus != "":
		return fault.New(fault.Policy, "start the container again to have the metrics asked for there", "telemetry.prometheus is another than when agent-init was started")
	}
	return nil
}

// ofTelemetry are the variables that are agent-init's alone, if p has them count.
func ofTelemetry(p *policy.Policy, environ map[string]string) (names []string) {
	if !p.Settings.Telemetry.Environment {
		return nil
	}
	for name := range environ {
		if policy.TelemetryVariable(name) {
			names = append(names, name)
		}
	}
	return names
}

// telemetryConfig is what an exporter is told under p, but for its place. It has what the files have now.
func (b *base) telemetryConfig(p *policy.Policy) (c stage.ExporterConfig, err error) {
	t := p.Settings.Telemetry
	c = stage.ExporterConfig{
		Protocol: t.Protocol, Timeout: time.Duration(t.Timeout), Compression: t.Compression, LogLevel: b.config.level(), Resource: b.resource(p),
		Version: b.config.Version, Metrics: time.Duration(t.Metrics), Started: b.status().Started,
	}
	if c.Host, c.Port = p.CollectorHost(); c.Host == "" { // it was taken out: nothing is sent
		return c, nil
	}
	c.Endpoint = t.Endpoint
	wrong := func(what string, err error) error {
		if bad, ok := errors.AsType[*policy.FileError](err); ok {
			return fault.New(fault.Policy, bad.Remedy, "telemetry: %s: %s", what, bad.What())
		}
		return fault.New(fault.Policy, "mount the file (docker run -v, mode 0400 and root's), or take it out of telemetry", "telemetry: %s: %w", what, err)
	}
	switch value := b.config.Environ[policy.HeadersVariable]; {
	case t.Headers != "":
		data, err := policy.ReadSecret(t.Headers, !b.shared())
		if err != nil {
			return c, wrong("the headers can't be used", err)
		}
		c.Headers = string(data)
	case t.Environment && value != "":
		if b.mode == "up" && b.shownToAll(policy.HeadersVariable) {
			return c, fault.New(fault.Policy, "use a file: telemetry: {headers: file:/PATH}",
				"telemetry: the variable %s is one of the container's, so the agent has it, too", policy.HeadersVariable)
		}
		c.Headers = value
	}
	if !strings.HasPrefix(t.Endpoint, "https:") {
		return c, nil
	}
	if t.CA != "" {
		if c.Roots, err = policy.ReadTrusted(t.CA); err == nil && len(certificatesIn(c.Roots)) == 0 {
			err = &policy.FileError{Path: t.CA, Cause: "it has no certificate", Remedy: "put the collector's authority there, as PEM"}
		}
		if err != nil {
			return c, wrong("the authority can't be used", err)
		}
		return c, nil
	}
	r := newRoots(b.config.Environ)
	if err := r.read(); err != nil {
		f := fault.Of(err, "read the certificate authorities")
		return c, fault.New(f.Code, cmp.Or(f.Remedy, "install the package ca-certificates in the image"), "telemetry: %w", f.Cause)
	}
	c.Roots = r.pem
	return c, nil
}

// ownPrefixes are the addresses of this network namespace: who asks from one is in here.
func ownPrefixes() (out []netip.Prefix, err error) {
	addrs, err := net.InterfaceAddrs()
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, netip.PrefixFrom(p.Addr(), p.Addr().BitLen()))
		}
	}
	return append(out, netip.MustParsePrefix("127.0.0.0/8")), err
}

// shownToAll says whether a variable is one of the container's own, whoever starts the agent.
func (b *base) shownToAll(name string) bool {
	data, _ := os.ReadFile("/proc/1/environ")
	for v := range strings.SplitSeq(string(data), "\x00") {
		if strings.HasPrefix(v, name+"=") {
			return true
		}
	}
	return false
}

// agentFile has the name of the agent that the image was made for.
const agentFile = "/usr/share/agent-init/agent"

// resource are the attributes of all that is sent. What the policy says counts more.
func (b *base) resource(p *policy.Policy) map[string]string {
	host, _ := os.Hostname()
	r := map[string]string{"service.name": p.Settings.Telemetry.Service, "service.version": b.config.Version, "agent_init.mode": b.mode}
	put := func(name, value string) {
		if value != "" {
			r[name] = value
		}
	}
	put("host.name", host)
	if b.config.Environ["KUBERNETES_SERVICE_HOST"] != "" { // a pod's host name is the pod's (pod.spec.hostname)
		put("k8s.pod.name", host)
	} else if len(host) == 12 && strings.Trim(host, "0123456789abcdef") == "" { // Docker's and Podman's, unless one says another
		put("container.id", host)
	}
	if name, err := policy.ReadTrusted(agentFile); err == nil {
		put("agent_init.agent", strings.TrimSpace(string(name)))
		put("container.image.name", "agent-"+strings.TrimSpace(string(name)))
	}
	put("agent_init.user", b.status().Agent.User)
	maps.Copy(r, p.Settings.Telemetry.Resource)
	return r
}
