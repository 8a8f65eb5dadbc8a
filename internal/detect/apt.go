package detect

import (
	"errors"
	"fmt"
	"os/exec"
	"path"
	"strings"

	"github.com/agent-init/agent-init/internal/text"
)

// aptTargets asks apt for each index that "apt-get update" would fetch, whether or not
// it has fetched one: for the line, or stanza, that names the source, and its URI.
func aptTargets() []string {
	return []string{"indextargets", "--no-release-info", "--format", "$(SOURCESENTRY) $(REPO_URI)"}
}

// detectApt asks apt, which reads both formats of sources.list(5) from where its own
// configuration says that they are, and tells what is wrong with them.
func detectApt(im *image) ([]origin, error) {
	out, ok, err := im.ask("apt for its sources", []string{"/usr/bin/apt-get"}, aptTargets()...)
	switch {
	case !ok:
		return nil, errors.New("apt-get is not there: this image has no apt")
	case err != nil:
		return nil, fmt.Errorf("%w%s", err, complaint(err))
	}
	var origins []origin
	for line := range strings.Lines(out) {
		from, uri, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			continue
		}
		if strings.HasPrefix(uri, "cdrom:") { // may hold blanks
			uri = "cdrom:/"
		}
		expanded, err := aptMirrors(im, origin{place, uri, "packages", from})
		if err != nil {
			return nil, err
		}
		origins = append(origins, expanded...)
	}
	if len(origins) == 0 {
		return nil, errors.New("apt has no source of packages")
	}
	proxies, err := aptProxies(im)
	return append(origins, proxies...), err
}

// complaint is what apt says first of sources that it can't read: the file and what is wrong, without a URI.
func complaint(err error) string {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return ""
	}
	line, _, _ := strings.Cut(string(exit.Stderr), "\n")
	return ": " + text.Clean(line)
}

// aptProxies are the proxies of apt.conf: for a scheme, or for one host of it.
func aptProxies(im *image) ([]origin, error) {
	out, _, err := im.ask("apt for its settings", []string{"/usr/bin/apt-config"}, "dump", "--no-empty") // apt-get's own package has it
	if err != nil {
		return nil, err
	}
	var origins []origin
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSuffix(strings.TrimSpace(line), ";"), " ")
		value = strings.Trim(value, `"`)
		rest, ok := strings.CutPrefix(strings.ToLower(key), "acquire::") // apt's keys have no case
		_, what, isProxy := strings.Cut(rest, "::")
		if !ok || !isProxy || value == "" || strings.EqualFold(value, "DIRECT") || value == "false" {
			continue
		}
		from := "apt-config dump: " + key
		switch {
		case what == "proxy" || strings.HasPrefix(what, "proxy::"):
			origins = append(origins, origin{proxy, value, "proxy", from})
		case what == "proxy-auto-detect" || what == "proxyautodetect":
			origins = append(origins, origin{kind: note, what: "a program chooses a proxy", from: from})
		}
	}
	return origins, nil
}

// aptMirrors puts the mirrors of a list in the place of the list, apt-transport-mirror(1).
// One that is itself fetched from a server can't be read here.
func aptMirrors(im *image, o origin) ([]origin, error) {
	scheme, rest, _ := strings.Cut(o.url, ":")
	inner, ok := strings.CutPrefix(strings.ToLower(scheme), "mirror+")
	switch {
	case strings.EqualFold(scheme, "mirror") || ok && inner != "file":
		return nil, fmt.Errorf("%s: the mirrors are named by a server, which is not asked", o.from)
	case !ok:
		return []origin{o}, nil
	}
	file := path.Clean("/" + rest)
	data, there, err := im.read(file)
	if err == nil && !there {
		err = fmt.Errorf("%s: the list of mirrors %s is missing", o.from, file)
	}
	if err != nil {
		return nil, err
	}
	var origins []origin
	for i, line := range strings.Split(data, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if fields := strings.Fields(line); len(fields) > 0 { // URI, then its properties
			origins = append(origins, origin{place, fields[0], o.what, fmt.Sprintf("%s:%d", file, i+1)})
		}
	}
	if len(origins) == 0 {
		return nil, fmt.Errorf("%s: the list of mirrors %s is empty", o.from, file)
	}
	return origins, nil
}
