package ui

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// showFleet answers with all containers, and what waits in each.
func (s *Server) showFleet(w http.ResponseWriter, r *http.Request) {
	s.fleet.look(s.ctx, r.Context().Done())
	v := s.fleet.view(time.Now())
	v.Dir = s.dir
	reply(w, v)
}

// container is the one of the list that a request names.
func (s *Server) container(w http.ResponseWriter, id string) bool {
	_, ok := s.fleet.has(id)
	if !ok {
		fail(w, http.StatusNotFound, "there is no such container any more")
	}
	return ok
}

// showLog answers with the newest lines of a container's audit log.
func (s *Server) showLog(w http.ResponseWriter, r *http.Request) {
	id := r.URL.Query().Get("container")
	if !s.container(w, id) {
		return
	}
	args := []string{"log", "-n", "200"}
	if r.URL.Query().Get("denied") == "yes" {
		args = append(args, "--denied")
	}
	out, _, err := run(r.Context(), s.engine, id, insideTime, args...)
	if err != nil {
		fail(w, http.StatusBadGateway, err.Error())
		return
	}
	lines := []string{}
	for line := range strings.Lines(string(out)) {
		lines = append(lines, clean(strings.TrimRight(line, "\r\n"), maxText))
	}
	reply(w, map[string][]string{"lines": lines[max(0, len(lines)-200):]})
}

// answers are what a person can say to a request, as arguments of agent-init's. A request that is turned down may be
// made again; what is denied is refused from now on.
func answers(what string, number uint32, target string) []string {
	n := strconv.FormatUint(uint64(number), 10)
	allow := []string{"allow", "--request", n}
	switch what {
	case "10m", "1h":
		return append(allow, "--for", what, "--", target)
	case "start":
		return append(allow, "--for", "start", "--", target)
	case "save":
		return append(allow, "--save", "--", target)
	case "end":
		return []string{"grants", "--end", n}
	}
	return nil
}

const gone = "this is not what waits there any more: look again"

// answer decides a request, or ends a grant.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Container string `json:"container"`
		Number    uint32 `json:"number"`
		Target    string `json:"target"` // as the page showed it
		Answer    string `json:"answer"`
	}
	if !body(w, r, &in) || !s.container(w, in.Container) {
		return
	}
	g, ok := s.fleet.waiting(in.Container, in.Number, in.Target)
	if !ok {
		fail(w, http.StatusConflict, gone)
		return
	}
	if shown(g.Target) != g.Target && in.Answer != "end" { // a person would decide on another target than they saw
		fail(w, http.StatusConflict, "this target can't be shown: turn it down, or decide it in a terminal")
		return
	}
	args := answers(in.Answer, in.Number, g.Target)
	if args == nil || in.Answer != "end" && g.Kind != "request" {
		fail(w, http.StatusBadRequest, "there is no such answer")
		return
	}
	if in.Answer == "end" && !s.fleet.still(r.Context(), in.Container, g) { // which knows the number alone
		fail(w, http.StatusConflict, gone)
		return
	}
	out, warnings, err := run(r.Context(), s.engine, in.Container, insideTime, args...)
	s.fleet.forget()
	if err != nil {
		fail(w, http.StatusBadGateway, err.Error())
		return
	}
	reply(w, map[string]string{"said": inOneLine(out, warnings)})
}

// inOneLine is what a command printed, without breaks.
func inOneLine(parts ...[]byte) string {
	lines := strings.Split(strings.TrimSpace(string(bytes.Join(parts, []byte("\n")))), "\n")
	return clean(strings.Join(lines, "; "), maxText)
}

// stop ends a container as docker stop does.
func (s *Server) stop(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Container string `json:"container"`
	}
	if !body(w, r, &in) || !s.container(w, in.Container) {
		return
	}
	err := s.engine.Stop(r.Context(), in.Container)
	s.fleet.forget()
	if err != nil {
		fail(w, http.StatusBadGateway, err.Error())
		return
	}
	reply(w, struct{}{})
}
