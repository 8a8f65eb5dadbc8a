package launch

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/text"
)

const secretsDir = "/run/secrets"

// keep reads lines of a route and its key, and writes each key into a file that is whole at once, and root's alone.
const keep = `umask 377; cd ` + secretsDir + ` && while read -r r k; do rm -f .new; printf %s "$k" >.new && mv -f .new "$r" || exit 1; done`

// secret is the key of a route: in a variable of who starts, or in a file.
type secret struct {
	route, variable, file string
	mounted               bool // a file of root's, which who starts can't read
}

func (s secret) from() string {
	if s.variable != "" {
		return "$" + s.variable
	}
	return s.file
}

// secretsOf are the keys that a start hands over: those that a person names, and for the image's other routes those in
// the person's own environment. Of the host's other keys it knows nothing.
func secretsOf(o *Options, image Image, env map[string]string, servers []server) (found []secret, err error) {
	for _, s := range o.Secrets {
		name, file, _ := strings.Cut(s, "=")
		if slices.ContainsFunc(found, func(s secret) bool { return s.route == name }) {
			return nil, fault.New(fault.Usage, "give it once", "--secret %s was given twice", name)
		}
		st, err := os.Stat(file)
		if err != nil {
			return nil, noFile(name, err)
		}
		if !st.Mode().IsRegular() {
			return nil, noFile(name, errors.New("it is no regular file"))
		}
		f, err := os.Open(file)
		if err == nil {
			f.Close()
		}
		unreadable := os.IsPermission(err)
		if file, err := filepath.Abs(file); err == nil {
			found = append(found, secret{route: name, file: file, mounted: unreadable})
		}
	}
	if o.ModelFromHost != "" { // the image's routes lead elsewhere
		return found, nil
	}
	for _, name := range image.Routes {
		if !routeName().MatchString(name) || slices.ContainsFunc(found, func(s secret) bool { return s.route == name }) {
			continue
		}
		v := held(variables(name), env)
		if at := slices.IndexFunc(servers, func(s server) bool { return s.route == name }); at >= 0 && servers[at].bearer {
			v = bearerOf[name]
		}
		if v != "" {
			found = append(found, secret{route: name, variable: v})
		}
	}
	for _, s := range servers { // a key that is kept is another server's
		if !slices.ContainsFunc(found, func(k secret) bool { return k.route == s.route }) {
			return nil, without(o, s.variable+" names a server, and there is no key for it: "+strings.Join(variables(s.route), ", ")+" or --secret "+s.route+"=FILE", s.variable)
		}
	}
	mounted := func(s secret) bool { return s.mounted }
	if i := slices.IndexFunc(found, mounted); i >= 0 && !slices.ContainsFunc(found, func(s secret) bool { return !s.mounted }) {
		return found, nil
	} else if i >= 0 {
		return nil, fault.New(fault.Usage, "run it as root, or give the other keys in such files too (unset their variables)",
			"--secret: you may not read %s, and the engine can mount it only where all keys are in such files", found[i].file)
	}
	return found, nil
}

// noFile does not repeat the path: a person may have put the key itself in its place.
func noFile(name string, err error) error {
	return fault.New(fault.Usage, "name a file with the key in it", "--secret %s: %w", name, text.CauseOf(err))
}

// held is the first variable that has something.
func held(names []string, env map[string]string) string {
	i := slices.IndexFunc(names, func(v string) bool { return env[v] != "" })
	if i < 0 {
		return ""
	}
	return names[i]
}

// maxKey is the size of a key that agent-init takes, in bytes.
const maxKey = 64 << 10

// value reads the key. What can't be one is refused here, by its place alone.
func (s secret) value(env map[string]string) ([]byte, error) {
	key := []byte(env[s.variable])
	if s.file != "" {
		b, err := readAtMost(s.file, maxKey)
		if err != nil {
			return nil, noFile(s.route, err)
		}
		key = bytes.TrimRight(b, "\r\n")
	}
	printable := func(c rune) bool { return c > ' ' && c <= '~' }
	if len(key) == 0 || bytes.ContainsFunc(key, func(c rune) bool { return !printable(c) }) {
		return nil, fault.New(fault.Usage, "a key is one line of printable characters", "there is no key in %s", s.from())
	}
	return key, nil
}
