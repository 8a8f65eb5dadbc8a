package launch

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/text"
)

// baseLabel is on each image that Dockerfile.base was built into.
const baseLabel = "org.agent-init.base"

// module is what agent-init is built from. A program's build information says so, whatever its version is.
const module = "github.com/agent-init/agent-init"

// maxProgram bounds what is read of an image's program, in bytes.
const maxProgram = 128 << 20

// ours refuses an image that is not made of our base: nothing in it would confine the agent. Who makes an image can put
// any label on it, so the program that will be started is read as well. Nothing of the image runs for that.
func (e Engine) ours(ctx context.Context, c chosen) error {
	strange := func(why string) error {
		build := e.Name + " build -f Dockerfile.base --target debian --build-arg DEBIAN=" + quote(c.ref) + " -t agent-" + cmp.Or(tidy(path.Base(repository(c.ref))), "mine") + " ."
		return fault.New(fault.Usage, "name another image; or build one on it, in agent-init's source: "+build, "the image %s is not made of agent-init's base (%s): nothing in it would confine the agent", c.ref, why)
	}
	if c.base == "" {
		return strange("it has no label " + baseLabel)
	}
	out, err := e.ask(ctx, "create", "--network=none", "--label="+agentLabel+"=", "--entrypoint="+inside, c.ref)
	if err != nil {
		return err
	}
	id := strings.TrimSpace(string(out))
	defer e.ask(context.WithoutCancel(ctx), "rm", "-v", id)
	if out, err = e.ask(ctx, "cp", id+":"+inside, "-"); err != nil {
		return strange("it has no " + inside)
	}
	if !isOurs(out) {
		return strange("its " + inside + " is another program")
	}
	return nil
}

// isOurs says whether an archive holds an agent-init, and nothing else.
func isOurs(archive []byte) bool {
	r := tar.NewReader(bytes.NewReader(archive))
	h, err := r.Next()
	if err != nil || h.Typeflag != tar.TypeReg || h.Size > maxProgram {
		return false
	}
	program, err := io.ReadAll(r)
	if err != nil {
		return false
	}
	info, err := buildinfo.Read(bytes.NewReader(program))
	return err == nil && info.Main.Path == module
}

// weaker are the variables by which agent-init confines less, and what they may say in an image.
var weaker = map[string]string{"AGENT_INIT_MODE": "enforce", "AGENT_INIT_SELFTEST": "require", "AGENT_INIT_UNSAFE_NO_FIREWALL": "false"}

// command is what the agent runs: what the person says, else what the image would start. The engine is told to start
// agent-init in any case. What of the image would weaken that is refused, since only a person chooses a weaker mode.
func (i Image) command(o Options) ([]string, error) {
	for _, v := range i.env {
		name, value, _ := strings.Cut(v, "=")
		said := slices.ContainsFunc(o.Env, func(v string) bool { return strings.HasPrefix(v, name+"=") })
		if strict, ok := weaker[name]; ok && value != strict && !said {
			return nil, fault.New(fault.Usage, "leave it out of the image; or say so yourself: --env "+quote(text.Clean(v)),
				"the image sets %s, which confines the agent less", text.Clean(v))
		}
	}
	if len(o.Command) > 0 {
		return o.Command, nil
	}
	if slices.Equal(i.entrypoint, []string{inside, "run", "--"}) {
		return i.cmd, nil
	}
	if slices.ContainsFunc(i.entrypoint, func(word string) bool { return strings.Contains(word, fault.Program) }) {
		return nil, fault.New(fault.Usage, "leave ENTRYPOINT out of the image, and write its flags as ENV AGENT_INIT_…; or name the command: -- CMD",
			"the image starts agent-init in its own way: %s", text.Clean(strings.Join(i.entrypoint, " ")))
	}
	return slices.Concat(i.entrypoint, i.cmd), nil
}

// health leaves out a health check that is not the base's: the engine would run it as root, with the capabilities that
// confine the agent, and it may be a program of the agent's.
func (i Image) health() (words, notes []string) {
	if len(i.healthcheck) == 0 || i.healthcheck[0] == "NONE" || slices.Equal(i.healthcheck, []string{"CMD", inside, "status", "--quiet"}) {
		return nil, nil
	}
	return []string{"--no-healthcheck"}, []string{"the image's HEALTHCHECK is left out: the engine would run it as root"}
}

// confines says whether a directory of the image has what confines the agent, or is above or below such a one. What an
// earlier container left there must not come before what the image has.
func confines(dir string) bool {
	return slices.ContainsFunc([]string{path.Dir(inside), "/etc", "/run", "/var/log", "/var/lib/agent-init", "/proc", "/sys", "/dev"}, func(ours string) bool {
		dir := path.Clean(dir)
		return dir == "/" || dir == ours || strings.HasPrefix(dir, ours+"/") || strings.HasPrefix(ours, dir+"/")
	})
}
