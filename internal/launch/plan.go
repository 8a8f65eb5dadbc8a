package launch

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/text"
)

// Plan is what a start does: the commands, in their order.
type Plan struct {
	Name  string // of the container
	Image string
	Notes []string // what the person should know
	steps []step
	last  step     // the container itself
	real  []string // directories that are mounted, by a path without a symbolic link
	asked Engine
	host  Host
}

// step is one command. What it reads is written to its standard input; the last has the person's terminal.
type step struct {
	words []string // the program first
	reads []input
	dir   string // to make, in the place of a command
	owner string // UID:GID of it; "": who starts
}

// input is what a step reads: a key behind the name of its route, or a file as it is.
type input struct {
	key  *secret
	file string
}

// Plan works out how to start an agent.
func (e Engine) Plan(ctx context.Context, o Options, h Host) (Plan, error) {
	if err := o.Check(); err != nil {
		return Plan{}, err
	}
	if st, err := os.Stat(o.Dir); err != nil || !st.IsDir() {
		return Plan{}, fault.New(fault.Usage, "name the directory to work in", "%s is no directory", o.Dir)
	}
	if dir, err := filepath.EvalSymlinks(o.Dir); err == nil { // one directory, one name
		o.Dir = dir
	}
	if err := shown(o.Dir); err != nil {
		return Plan{}, err
	}
	if h.livesIn(o.Dir) {
		return Plan{}, fault.New(fault.Usage, "name the directory of a project", "%s is or has your home directory: the agent would get all that is yours", o.Dir)
	}
	Distrust(o.Dir)
	if within(e.Path, o.Dir) {
		return Plan{}, fault.New(fault.Usage, "take that directory out of PATH", "%s is in the directory that the agent gets: it may have written it", e.Path)
	}
	image, err := e.choose(ctx, o)
	if err != nil {
		return Plan{}, err
	}
	command, err := image.command(o)
	if err != nil {
		return Plan{}, err
	}
	if err := e.ours(ctx, image); err != nil {
		return Plan{}, err
	}
	health, notes := image.health()
	p := Plan{Name: nameFor(o.Agent, o.Dir), Image: image.ref, Notes: notes, real: []string{o.Dir}, asked: e, host: h}
	mounts, err := p.mounted(o)
	if err != nil {
		return Plan{}, err
	}
	servers, err := serversOf(&o, image.Image, h.Env)
	if err != nil {
		return Plan{}, err
	}
	found, err := secretsOf(&o, image.Image, h.Env, servers)
	if err != nil {
		return Plan{}, err
	}
	p.Notes = append(p.Notes, unfollowed(o, h.Env)...)
	routes := p.led(servers)
	keys := p.keys(o, image.Image, found, keysVolume(o.Agent, servers))
	authority, err := p.authority(o)
	if err != nil {
		return Plan{}, err
	}
	p.last = step{words: slices.Concat(
		[]string{e.Name, "run"}, attached(o), []string{"--rm", "--name=" + p.Name},
		privileges(o, h, e), health, environment(ctx, o, h), keys, routes, authority, volumes(p.Name, o.Agent, image.Image), mounts, ports(o),
		[]string{p.Image, "run", "--"}, command)}
	return p, nil
}

// attached is how the container is at the person's terminal.
func attached(o Options) []string {
	switch {
	case o.Detach:
		return []string{"-d"}
	case o.Plain:
		return []string{"-i"}
	}
	return []string{"-it"}
}

// privileges are what README.md explains, and no others. The agent has none of them. Who starts what is not left to the
// image.
func privileges(o Options, h Host, e Engine) []string {
	words := []string{"--cap-drop=ALL", "--cap-add=NET_ADMIN", "--cap-add=SETUID", "--cap-add=SETGID", "--cap-add=SETPCAP"}
	if h.UID > 0 && h.UID != 1000 && !h.Rootless {
		words = append(words, "--cap-add=CHOWN")
	}
	return append(append(words, "--security-opt=no-new-privileges", "--entrypoint="+inside), asRoot(h, e)...)
}

// mapped has the person be the agent, where else the person's files would be root's in the container.
func mapped(h Host, e Engine) []string {
	if h.Rootless && e.Name == "podman" {
		return []string{"--userns=keep-id:uid=1000,gid=1000"}
	}
	return nil
}

// environment is the container's.
func environment(ctx context.Context, o Options, h Host) []string {
	var set []string
	if h.UID > 0 && !h.Rootless {
		set = append(set, "HOST_UID="+strconv.Itoa(h.UID), "HOST_GID="+strconv.Itoa(h.GID))
	}
	if o.Detach {
		set = append(set, "AGENT_INIT_SESSION=always")
	}
	allow := o.Allow
	if o.ModelFromHost != "" {
		at := "http://" + hostName + ":" + o.ModelFromHost
		allow = append(slices.Clone(allow), hostName+":"+o.ModelFromHost)
		// Programs want a key, and this one says that it is none.
		set = append(set, "ANTHROPIC_BASE_URL="+at, "ANTHROPIC_AUTH_TOKEN=none", "OPENAI_BASE_URL="+at+"/v1", "OPENAI_API_KEY=none")
	}
	if len(allow) > 0 {
		between := ","
		if strings.Contains(strings.Join(allow, ""), " ") { // an entry with words may have commas of its own
			between = "\n"
		}
		set = append(set, "AGENT_INIT_ALLOW="+strings.Join(allow, between))
	}
	if len(o.Inbound) > 0 {
		set = append(set, "AGENT_INIT_INBOUND="+strings.Join(o.Inbound, ","))
	}
	if h.Zone != "" {
		set = append(set, "TZ="+h.Zone)
	}
	if !o.Detach && !o.Plain {
		set = append(set, terminalOf(func(name string) string { return h.Env[name] })...)
	}
	var words []string
	for _, v := range slices.Concat(set, identity(ctx, o.Dir, h.Env), o.Env) {
		words = append(words, "-e", v)
	}
	return words
}

// hostName is what the engine calls the host, in the container's /etc/hosts.
const hostName = "host.docker.internal"

// ports are those that are published, and the name of the host if the agent's model is there.
func ports(o Options) (words []string) {
	for _, port := range o.Inbound {
		words = append(words, "-p", "127.0.0.1:"+port+":"+port)
	}
	if o.ModelFromHost != "" {
		words = append(words, "--add-host="+hostName+":host-gateway")
	}
	return words
}

// volumes keep what is to outlive the container: the agent's own state, which all containers of the agent share, and what
// a person has allowed for good in this directory.
func volumes(name, agent string, image Image) (words []string) {
	taken := map[string]bool{}
	for _, dir := range image.Volumes {
		if !plainWord().MatchString(dir) || strings.Contains(dir, ":") || !strings.HasPrefix(dir, "/") || confines(dir) {
			continue // of an image that nobody here has made; the engine gives it one without a name
		}
		volume := volumeFor(agent, dir)
		if taken[volume] {
			volume += "-" + tidy(filepath.Base(dir))
		}
		taken[volume] = true
		words = append(words, "-v", volume+":"+dir)
	}
	return append(words, "-v", name+"-grants:/var/lib/agent-init")
}

// mount is a file or a directory of the host's in the container. A path that the short form has no way to write goes into
// the long one, whose fields are those of a CSV file.
func mount(from, to string, readOnly bool) []string {
	short, long := "", ""
	if readOnly {
		short, long = ":ro", ",readonly"
	}
	if !strings.ContainsAny(from, `:,"`) {
		return []string{"-v", from + ":" + to + short}
	}
	source := `"` + strings.ReplaceAll("source="+from, `"`, `""`) + `"`
	return []string{"--mount=type=bind," + source + ",target=" + to + long}
}

// mounted is the directory as the workspace; or a worktree of its repository, which is made if there is none of that name.
func (p *Plan) mounted(o Options) ([]string, error) {
	if o.Worktree == "" {
		if mounts := p.linked(o.Dir); mounts != nil {
			return mounts, nil
		}
		return mount(o.Dir, workspace, false), nil
	}
	r, err := repoOf(o.Dir)
	if err != nil {
		return nil, err
	}
	dir, missing, empty, err := r.worktree(o.Worktree)
	if err != nil {
		return nil, err
	}
	mounts, err := r.mounts(dir)
	if err != nil {
		return nil, err
	}
	as, owner := p.person(), ""
	if p.host.UID == 0 { // the agent works as the owner, and root without a capability is nobody
		uid, gid := ownerOf(r.common)
		owner = fmt.Sprintf("%d:%d", uid, gid)
		as = []string{"--user=" + owner}
	}
	if missing {
		p.steps = append(p.steps, step{dir: dir, owner: owner})
	}
	if empty {
		p.steps = append(p.steps, step{words: p.helper(as, mounts, fill, r.common, dir, o.Worktree)})
	}
	p.Name = nameFor(o.Agent, dir)
	p.real = append(p.real, dir, r.common)
	return mounts, nil
}

// linked are the mounts of a directory that is a worktree already; nil of any other.
func (p *Plan) linked(dir string) []string {
	if st, err := os.Lstat(filepath.Join(dir, ".git")); err != nil || !st.Mode().IsRegular() {
		return nil
	}
	r, err := repoOf(dir)
	if err != nil || r.top != dir || r.top == r.main {
		return nil
	}
	mounts, err := r.mounts(dir)
	if err == nil {
		p.real = append(p.real, r.common)
		p.Notes = append(p.Notes, fmt.Sprintf("%s is a worktree: the agent gets its repository as well, %s", dir, text.Clean(r.common)))
	}
	return mounts
}

// helper is a container that runs one script, as somebody, and nothing else.
func (p *Plan) helper(as, mounts []string, script string, args ...string) []string {
	words := []string{p.asked.Name, "run", "--rm", "-i", "--network=none", "--cap-drop=ALL", "--security-opt=no-new-privileges"}
	if len(args) > 0 {
		args = append([]string{"sh"}, args...)
	}
	return slices.Concat(words, as, mounts, []string{"--entrypoint=/bin/sh", p.Image, "-c", script}, args)
}

// asRoot has a container begin as root, who is mapped as in the agent's.
func asRoot(h Host, e Engine) []string {
	return append(mapped(h, e), "--user=0:0")
}

// person has a helper be who starts, for files of the host's.
func (p *Plan) person() []string {
	if as := mapped(p.host, p.asked); as != nil {
		return append(as, "--user=1000:1000")
	}
	if p.host.Rootless || p.host.UID < 0 {
		return []string{"--user=0:0"}
	}
	return []string{fmt.Sprintf("--user=%d:%d", p.host.UID, p.host.GID)}
}

// keys puts the keys into a volume, or mounts those that only root can read. No key is part of a command. What an earlier
// start has put there serves a start that has none.
func (p *Plan) keys(o Options, image Image, found []secret, volume string) (words []string) {
	s := step{words: p.helper(asRoot(p.host, p.asked), []string{"-v", volume + ":" + secretsDir}, keep)}
	for i, key := range found {
		if key.mounted {
			words = append(words, mount(key.file, secretsDir+"/"+key.route, true)...)
			continue
		}
		s.reads = append(s.reads, input{key: &found[i]})
		p.Notes = append(p.Notes, fmt.Sprintf("the key of %s is from %s, and kept in the volume %s", key.route, key.from(), volume))
	}
	switch {
	case words != nil:
		return words
	case s.reads != nil:
		p.steps = append(p.steps, s)
	case len(image.Routes) == 0 || o.ModelFromHost != "":
		return nil
	}
	return []string{"-v", volume + ":" + secretsDir + ":ro"}
}

// authority puts the image's certificates and the person's into a volume.
func (p *Plan) authority(o Options) ([]string, error) {
	if o.Authority == "" {
		return nil, nil
	}
	if _, err := checkAuthority(o.Authority); err != nil {
		return nil, err
	}
	volume := p.Name + "-ca"
	p.steps = append(p.steps, step{words: p.helper(asRoot(p.host, p.asked), []string{"-v", volume + ":/mnt"}, trust), reads: []input{{file: o.Authority}}})
	return []string{"-v", volume + ":" + certificates + ":ro"}, nil
}

// chosen is an image, and the name to start it by.
type chosen struct {
	Image
	ref string
}

// choose finds the image of the agent. Of several repositories none is taken: an image that says that it is the agent's
// would get the agent's key.
func (e Engine) choose(ctx context.Context, o Options) (chosen, error) {
	if o.Image != "" {
		all, err := inspected[imageJSON](ctx, e, "image", "images", "-q", "--no-trunc", o.Image)
		switch {
		case err != nil:
			return chosen{}, err
		case len(all) == 0:
			return chosen{}, fault.New(fault.Failure, e.Name+" pull "+o.Image, "%s has no image %s", e.Name, o.Image)
		}
		return chosen{all[0].image(), o.Image}, nil
	}
	images, err := e.Images(ctx, o.Agent)
	if err != nil {
		return chosen{}, err
	}
	var found []chosen
	for _, i := range images {
		for _, tag := range i.Tags {
			if repo := repository(tag); !slices.ContainsFunc(found, func(c chosen) bool { return repository(c.ref) == repo }) {
				found = append(found, chosen{i, tag})
			}
		}
	}
	switch own := slices.IndexFunc(found, func(c chosen) bool { return strings.TrimPrefix(repository(c.ref), "localhost/") == "agent-"+o.Agent }); {
	case len(found) == 1:
		return found[0], nil
	case own >= 0: // what make image-AGENT has built
		return found[own], nil
	case len(found) == 0:
		return chosen{}, fault.New(fault.Failure, cmp.Or(e.Silent(), "build it (make image-"+o.Agent+"), or name one: --image"+e.agents(ctx)),
			"%s has no image with the label %s=%s", e.Name, agentLabel, o.Agent)
	}
	return chosen{}, fault.New(fault.Usage, "--image "+found[0].ref, "several images say that they are %s's: %s", o.Agent, refs(found))
}

func refs(found []chosen) string {
	var all []string
	for _, c := range found {
		all = append(all, c.ref)
	}
	return strings.Join(all, ", ")
}

// repository is a reference without its tag.
func repository(ref string) string {
	if i := strings.LastIndexByte(ref, ':'); i > strings.LastIndexByte(ref, '/') {
		return ref[:i]
	}
	return ref
}
