package judge

import "github.com/agent-init/agent-init/pkg/route"

// batch are the rules of a batch: https://github.com/git-lfs/git-lfs/blob/main/docs/api/batch.md.
var batch = tableOf(`
batch  operation transfers=[word] ref=ref objects=[object] hash_algo=word
ref    name
object oid size
`, false)

// lfs judges what is asked of where large files are.
func (q *request) lfs() (Told, *Refusal) {
	if refusal := batch().request(q, "batch"); refusal != nil {
		return Told{}, refusal
	}
	switch operation := q.root.get("operation").str(); string(operation) {
	case "download":
	case "upload":
		if !q.route.Git.Write {
			return Told{}, refuse("repo", "route %s reads, and uploads no large files (git: write lets it)", q.route.Name)
		}
		q.rests(func(r *Rested) { r.uploads = true })
	default:
		return Told{}, refuse("field", "%s is no operation of LFS", quote(operation, 64))
	}
	basic := q.root.get("transfers").none()
	for kind := range q.root.get("transfers").items() {
		basic = basic || string(kind.str()) == "basic"
	}
	if !basic {
		return Told{}, refuse("field", "large files pass by the transfer basic alone")
	}
	return Told{}, nil
}

// lfsType is that of requests about large files, and of answers.
const lfsType = "application/vnd.git-lfs+json"

// typeOfJSON is the type that JSON has to have in a request.
func typeOfJSON(body route.Body) string {
	if body == route.GitLFS {
		return lfsType
	}
	return "application/json"
}

// ofLFS says whether the rules are those for large files: its client reads JSON.
func ofLFS(body route.Body) bool { return body == route.GitLFS || body == route.GitObject }
