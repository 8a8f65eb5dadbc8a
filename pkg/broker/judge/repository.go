package judge

import (
	"strings"

	"github.com/agent-init/agent-init/pkg/route"
)

// judgeRepository judges which repository is asked, and what for. path is canonical, and one of the endpoint's.
func judgeRepository(r *route.Route, e *route.Endpoint, path, rawQuery string) *Refusal {
	if !r.ServesGit() {
		return nil
	}
	writes := e.Body == route.GitReceive || e.Body == route.GitObject
	if strings.HasSuffix(e.Path, "/info/refs") {
		switch rawQuery {
		case "service=git-upload-pack":
		case "service=git-receive-pack":
			writes = true
		default: // the dumb protocol, which asks for files by their names
			return refuse("query", "git has to ask by its smart protocol (service=git-upload-pack)")
		}
	}
	name, ok := repository(e, path)
	if !ok {
		return refuse("repo", "%s is not the name of a repository", quote(name, 100))
	}
	if !r.Git.Has(name) {
		return refuse("repo", "repository %s is not on the list of route %s (repos)", name, r.Name)
	}
	if writes && !r.Git.Write {
		return refuse("repo", "route %s reads from repository %s, and does not push (git: write lets it)", r.Name, name)
	}
	return nil
}

// repository is the name in a path, without the .git that hosts take or leave.
func repository(e *route.Endpoint, path string) (name string, ok bool) {
	tail := e.Path[strings.LastIndexByte(e.Path, '*')+1:]
	name = strings.TrimSuffix(strings.TrimSuffix(path, tail)[1:], ".git")
	for segment := range strings.SplitSeq(name, "/") {
		if segment == "" || segment[0] == '.' || segment[0] == '-' || strings.ContainsFunc(segment, oddInName) {
			return name, false
		}
	}
	return name, true
}

// oddInName are characters that no host has in the name of a repository or its owner.
func oddInName(c rune) bool {
	return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("._-+~", c))
}
