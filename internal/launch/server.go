package launch

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/lazy"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/route"
)

// server is where a person's environment has an API asked, in the place of the route's own.
type server struct {
	route, variable string
	to              string // "": the route's own
	bearer          bool   // the key is shown as a token: ANTHROPIC_AUTH_TOKEN
}

// bearerOf are the variables whose key clients show as a bearer's token, where the route has a header of its own. They
// come before the others.
var bearerOf = map[string]string{"anthropic": "ANTHROPIC_AUTH_TOKEN"}

// plainURL is an address that means the same to whoever reads it.
var plainURL = lazy.Pattern(`^https?://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[A-Za-z0-9._~-]+)*/?$`)

// serversOf are the image's routes that lead elsewhere, by what the person's environment says. What can't be followed is
// refused: a prompt must not go to another server than the person has named, nor a key.
func serversOf(o *Options, image Image, env map[string]string) (found []server, err error) {
	if o.ModelFromHost != "" { // which says it
		return nil, nil
	}
	if err := strangers(o, image, env); err != nil {
		return nil, err
	}
	said := maps.Clone(env)
	if said == nil {
		said = map[string]string{}
	}
	for _, v := range o.Env {
		name, value, _ := strings.Cut(v, "=")
		said[name] = value
	}
	for _, name := range image.Routes {
		r, ok := route.Builtin(name)
		if !ok {
			continue
		}
		s := server{route: name, bearer: env[bearerOf[name]] != "" && !slices.ContainsFunc(o.Secrets, func(s string) bool { return strings.HasPrefix(s, name+"=") })}
		for _, variable := range slices.Sorted(maps.Keys(r.Env)) {
			ending, ok := strings.CutPrefix(r.Env[variable], "{base}")
			value := said[variable]
			if !ok || value == "" {
				continue
			}
			to, err := serverIn(variable, value, ending)
			if err != nil {
				return nil, without(o, err.Error(), variable)
			}
			if s.variable != "" && to != s.to {
				return nil, without(o, s.variable+" and "+variable+" name two servers", variable)
			}
			s.variable, s.to = variable, to
		}
		if s.to == r.To {
			s.to = ""
		}
		if s.to != "" || s.bearer {
			found = append(found, s)
		}
	}
	return found, nil
}

// serverIn is the base of a route, by what a variable says whose clients add nothing to ending.
func serverIn(variable, value, ending string) (string, error) {
	u, err := url.Parse(value)
	if err != nil || !plainURL().MatchString(value) {
		return "", fmt.Errorf("%s is no plain address of a server: https://HOST/PATH", variable)
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil && (ip.IsLoopback() || ip.IsUnspecified()) || u.Hostname() == "localhost" || strings.HasSuffix(u.Hostname(), ".localhost") {
		return "", fmt.Errorf("%s names a server of this machine's own, which a container reaches by --model-from-host PORT alone", variable)
	}
	base, ok := strings.CutSuffix(strings.TrimRight(value, "/"), ending)
	if !ok {
		return "", fmt.Errorf("%s does not end in %s, where the broker asks", variable, ending)
	}
	return base + "/", nil
}

// strangers refuses what sends the agent elsewhere by a way that no route of the image has: a cloud's, a gateway's.
func strangers(o *Options, image Image, env map[string]string) error {
	vendors := map[string]bool{regexp.QuoteMeta(strings.ToUpper(strings.ReplaceAll(image.Agent, "-", "_"))): true}
	own := map[string]bool{}
	for _, name := range image.Routes {
		r, _ := route.Builtin(name)
		for variable, value := range r.Env {
			if !strings.HasPrefix(value, "{") {
				continue
			}
			vendor, _, _ := strings.Cut(variable, "_")
			vendors[vendor], own[variable] = true, strings.HasPrefix(value, "{base}")
		}
		if name == "anthropic" {
			vendors["CLAUDE_CODE"] = true
		}
		if name == "openai" {
			vendors["AZURE_OPENAI"], vendors["AZURE_API"] = true, true
		}
		if name == "gemini" {
			vendors["CODE_ASSIST"] = true // where the Gemini CLI asks for who has logged in
		}
	}
	delete(vendors, "")
	pattern := regexp.MustCompile(`^(` + strings.Join(slices.Sorted(maps.Keys(vendors)), "|") + `)(_[A-Z0-9_]+)?(_BASE_URL|_API_BASE|_BASE|_API_URL|_ENDPOINT|_HOST|_FOUNDRY_RESOURCE|_USE_(BEDROCK|MANTLE|VERTEX|VERTEXAI|FOUNDRY|ANTHROPIC_AWS))$`)
	var found []string
	for _, variable := range slices.Sorted(maps.Keys(env)) {
		switch value := strings.ToLower(env[variable]); {
		case own[variable] || !pattern.MatchString(variable) || value == "" || value == "0" || value == "false":
		case slices.ContainsFunc(o.Env, func(v string) bool { return strings.HasPrefix(v, variable+"=") }): // it goes along
		default:
			found = append(found, variable)
		}
	}
	if found == nil {
		return nil
	}
	return without(o, strings.Join(found, " and ")+" would have the agent ask a server that no route of the image leads to", found...)
}

// unfollowed says which of a person's settings of the network do not go along, and what does in their place.
func unfollowed(o Options, env map[string]string) (notes []string) {
	if v := held([]string{"HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"}, env); v != "" {
		notes = append(notes, v+" does not go along: a proxy stands in the image's policy (upstream_proxy)")
	}
	if v := held([]string{"NODE_EXTRA_CA_CERTS"}, env); v != "" && o.Authority == "" {
		notes = append(notes, v+" does not go along: --ca FILE has the container trust it")
	}
	return notes
}

// without is an error whose remedy is the same start without some variables.
func without(o *Options, cause string, variables ...string) error {
	words := []string{"env"}
	for _, v := range variables {
		words = append(words, "-u", v)
	}
	return fault.New(fault.Usage, "leave it out: "+strings.Join(append(words, "agent-init", "launch", o.Agent), " ")+
		"; or write the route into the image's policy: docs/launch.md#another-server", "%s", text.Clean(cause))
}

// keysVolume is where the keys of a start are kept. A server that a person names has a volume of its own: no start that
// does not name it may show its keys to another one.
func keysVolume(agent string, servers []server) string {
	name := "agent-" + agent + "-keys"
	var all strings.Builder
	for _, s := range servers {
		all.WriteString(s.route + " " + s.to + " " + map[bool]string{true: "bearer"}[s.bearer] + "\n")
	}
	if all.Len() == 0 {
		return name
	}
	sum := sha256.Sum256([]byte(all.String()))
	return name + "-" + hex.EncodeToString(sum[:4])
}

// lead copies the image's policy, and has routes in it lead elsewhere. What the image has in other words than ours is not
// changed.
const lead = `umask 022; cd /mnt && find . -mindepth 1 -delete && cp -a ` + policyDir + `/. . && while [ $# -gt 0 ]; do ` +
	`f=$(grep -rlxF "  $1: {optional: true}" .) || { echo "the image's policy has the route $1 in words of its own" >&2; exit 1; }; ` +
	`sed -i "s|^  $1: {optional: true}\$|  $1: {$2}|" "$f" && shift 2 || exit 1; done && ` +
	inside + ` check --config /mnt >/dev/null`

// policyDir is where an image has its policy.
const policyDir = "/etc/agent-init"

// led has the container's routes lead where the person's environment says.
func (p *Plan) led(servers []server) (words []string) {
	if len(servers) == 0 {
		return nil
	}
	var args []string
	for _, s := range servers {
		var says []string
		if s.to != "" {
			says = []string{`to: "` + s.to + `"`, "private: true"}
			if strings.HasPrefix(s.to, "http:") {
				says = append(says, "plaintext: true")
			}
			p.Notes = append(p.Notes, "the API of "+s.route+" is asked at "+s.to+", as "+s.variable+" says")
		}
		if s.bearer {
			says = append(says, `inject: {header: Authorization, value: "Bearer {}"}`)
		}
		args = append(args, s.route, strings.Join(says, ", "))
	}
	volume := p.Name + "-routes"
	p.steps = append(p.steps, step{words: p.helper(asRoot(p.host, p.asked), []string{"-v", volume + ":/mnt"}, lead, args...)})
	return []string{"-v", volume + ":" + policyDir + ":ro"}
}
