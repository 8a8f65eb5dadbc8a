package route

import (
	"slices"
	"strings"
)

// github, gitlab, bitbucket, gitea and git are repositories, asked by what git calls the smart HTTP protocol:
// https://git-scm.com/docs/http-protocol. On the same hosts and with the same credential stay closed their pages, their
// REST and GraphQL APIs, releases and archives. The token is the password; the user is one that the host takes for
// any token, or asks for.
func github() Route {
	// https://docs.github.com/en/rest/authentication/authenticating-as-a-github-app-installation
	r := repositories("github", "x-access-token", "GH_TOKEN", "GITHUB_TOKEN")
	r.To, r.Endpoints = "https://github.com/", gitEndpoints("/*/*")
	// What the servers of LFS tell: https://docs.github.com/en/actions/reference/runners/self-hosted-runners
	for _, at := range []struct{ host, method string }{
		{"github-cloud.githubusercontent.com", "GET"}, {"github-cloud.s3.amazonaws.com", "GET"}, {"github-cloud.s3.amazonaws.com", "PUT"},
		{"lfs.github.com", "POST"},
	} {
		r.Endpoints = append(r.Endpoints, lfsObjects("/*/*", at.host, "https://"+at.host, at.method)...)
	}
	return r
}

func gitlab() Route {
	// https://docs.gitlab.com/user/profile/personal_access_tokens/#clone-repository-using-personal-access-token
	r := repositories("gitlab", "oauth2", "GITLAB_TOKEN")
	r.To, r.Endpoints = "https://gitlab.com/", gitEndpoints("/**/*") // a group has groups in it
	return r
}

func bitbucket() Route {
	// https://support.atlassian.com/bitbucket-cloud/docs/using-access-tokens/
	r := repositories("bitbucket", "x-token-auth", "BITBUCKET_TOKEN")
	r.To, r.Endpoints = "https://bitbucket.org/", gitEndpoints("/*/*")
	return r
}

func gitea() Route { // and Forgejo: https://docs.gitea.com/development/api-usage
	r := repositories("gitea", "oauth2", "GITEA_TOKEN")
	r.Endpoints = gitEndpoints("/*/*")
	return r
}

func git() Route { // git http-backend, cgit, gitolite and what else speaks it
	r := repositories("git", "git")
	r.Endpoints = gitEndpoints("/*", "/**/*")
	return r
}

func repositories(name, user string, variables ...string) Route {
	return Route{
		Name:       name,
		Credential: sources(name, variables...),
		Inject:     Inject{Basic: user},
		Headers:    []string{"git-protocol"},
		Shape:      GitShape,
		Open:       true,
		Env: map[string]string{
			"GIT_CONFIG_SYSTEM":            "{dir}/" + gitConfig,
			"CARGO_NET_GIT_FETCH_WITH_CLI": "true", // else cargo asks by libgit2, which reads no such variable
		},
		Files: []File{{
			Name: gitConfig,
			Head: "# Written by agent-init: these repositories are asked through its broker.\n[include]\n\tpath = /etc/gitconfig\n",
			Text: "[url \"{base}/\"]\n\tinsteadOf = {to}\n\tinsteadOf = git@{host}:\n\tinsteadOf = ssh://git@{host}/\n" +
				"[http \"{base}/\"]\n\textraHeader = Authorization: Bearer {token}\n" +
				"[lfs \"{base}/\"]\n\tlocksverify = false\n",
		}},
	}
}

// Has says whether a repository, OWNER/NAME, is one of them. Hosts take upper case for lower case.
func (g *Git) Has(repo string) bool {
	return len(g.Repos) == 0 || slices.ContainsFunc(g.Repos, func(pattern string) bool {
		e := Endpoint{Path: "/" + strings.ToLower(pattern)}
		return e.MatchPath("/" + strings.ToLower(repo))
	})
}

// Pushes says whether a ref, from refs/ on, may be pushed.
func (g *Git) Pushes(ref string) bool {
	return g.Write && (len(g.Branches) == 0 || slices.ContainsFunc(g.Branches, func(pattern string) bool {
		if !strings.HasPrefix(pattern, "refs/") {
			pattern = "refs/heads/" + pattern
		}
		e := Endpoint{Path: "/" + pattern}
		return e.MatchPath("/" + ref)
	}))
}

// String says in words what may be done with which repositories.
func (g Git) String() string {
	repos := "any repository"
	if len(g.Repos) > 0 {
		repos = strings.Join(g.Repos, ", ")
	}
	switch {
	case !g.Write:
		return repos + ", to read"
	case len(g.Branches) > 0:
		return repos + ", to read, and to push " + strings.Join(g.Branches, ", ")
	}
	return repos + ", to read, and to push any ref"
}

// gitConfig is a file of git's configuration, which GIT_CONFIG_SYSTEM names: git-config(1).
const gitConfig = "gitconfig"

// gitEndpoints are those of repositories at such paths: https://git-scm.com/docs/http-protocol. That a push wants more
// than to be on this list is Git's.
func gitEndpoints(repos ...string) (all []Endpoint) {
	for _, repo := range repos {
		all = append(all,
			get(repo+"/info/refs", "service=git-upload-pack", "service=git-receive-pack"),
			post(repo+"/git-upload-pack", GitUpload),
			post(repo+"/git-receive-pack", GitReceive),
		)
		batch := post(repo+"/info/lfs/objects/batch", GitLFS)
		batch.Answer = LFSAnswer
		all = append(append(all, batch), lfsObjects(repo, "here", "", "GET", "PUT", "POST")...)
	}
	return all
}

// lfsObjects are what a batch has told to be on a host, or "" for the route's own, by a ticket of the broker's.
func lfsObjects(repo, name, to string, methods ...string) (all []Endpoint) {
	for _, m := range methods {
		e := Endpoint{Method: m, Path: repo + "/info/lfs/" + name, Query: []string{"ticket"}, To: to}
		if m != "GET" {
			e.Body = GitObject
		}
		all = append(all, e)
	}
	return all
}

// Streams says whether a body goes on while it comes. Others are read whole before.
func (b Body) Streams() bool { return b == GitUpload || b == GitReceive || b == GitObject }

// ServesGit says whether the route is one to repositories.
func (r *Route) ServesGit() bool {
	return slices.ContainsFunc(r.Endpoints, func(e Endpoint) bool { return e.Body.Streams() })
}
