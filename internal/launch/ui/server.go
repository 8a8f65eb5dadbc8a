// Package ui is a page in a browser, from which a person starts, stops and attaches to their agents' containers, and
// answers what the agents ask for. It runs on the person's machine, as they do, with their rights to the engine:
// whoever can make it do something can do anything there. Four may try:
//   - A page that the person opens, which can send requests to loopback: judge.go.
//   - Another user of the machine, who can connect to the port: door.go, crowd.go.
//   - A server on another port of 127.0.0.1, which gets this one's cookies: door.go.
//   - A container, which chooses names, reasons, logs and what its terminal shows: view.go, and the page, which writes
//     text as text.
package ui

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"mime"
	"net"
	"net/http"
	"time"

	"github.com/agent-init/agent-init/internal/launch"
)

// Server is the page's.
type Server struct {
	host, port string // host: as a browser has to name it
	listener   net.Listener
	http       *http.Server
	door       door
	engine     launch.Engine
	env        map[string]string
	dir        string
	fleet      *fleet
	terminals  chan struct{}   // a place for each that is open
	ctx        context.Context // of Serve
}

// maxTerminals bounds the attached terminals.
const maxTerminals = 32

// New opens a port on loopback. env are the variables of who asks, and dir where an agent works if the page names no
// other directory.
func New(e launch.Engine, env map[string]string, dir string) (*Server, error) {
	// One address, not a name: "localhost" can be ::1 as well, where another user may listen.
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	host := l.Addr().String()
	_, chosen, err := net.SplitHostPort(host)
	if err != nil {
		return nil, err
	}
	s := &Server{
		host: host, port: chosen, listener: &crowd{Listener: l},
		engine: e, env: env, dir: dir, fleet: newFleet(e), terminals: make(chan struct{}, maxTerminals),
	}
	s.http = &http.Server{
		Handler:           s.handler(),
		ConnContext:       withGuest,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       patience,
		WriteTimeout:      3 * time.Minute, // an image may have to be fetched for a start
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          log.New(io.Discard, "", 0), // whoever connects writes what it says
	}
	return s, nil
}

// Link is an address that lets one browser in, once. The token stands behind #, so that no request line, no log and no
// Referer header has it.
func (s *Server) Link() string { return "http://" + s.host + "/#" + s.door.link() }

// Serve answers until ctx ends. It leaves each terminal's window as it is.
func (s *Server) Serve(ctx context.Context) error {
	ended := make(chan struct{})
	s.ctx = ctx
	s.http.BaseContext = func(net.Listener) context.Context { return ctx }
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
		if s.http.Shutdown(late) != nil {
			s.http.Close()
		}
	})
	err := s.http.Serve(s.listener)
	if !stop() {
		<-ended
	}
	for range maxTerminals { // none is open any more
		s.terminals <- struct{}{}
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// handler judges each request before anything else sees it.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for path, f := range allFiles() {
		mux.Handle("GET "+path, f)
	}
	mux.HandleFunc("POST /api/enter", s.enter)
	for pattern, h := range map[string]http.HandlerFunc{
		"GET /api/fleet": s.showFleet, "GET /api/log": s.showLog, "POST /api/answer": s.answer,
		"POST /api/start": s.start, "POST /api/stop": s.stop, "GET /api/attach": s.attach,
	} {
		mux.HandleFunc(pattern, s.forFriends(h))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.harden(w.Header(), stylesOf(r.URL.Path))
		if no := s.judgeOrigin(r); no != nil {
			refuse(w, no)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func (s *Server) forFriends(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if no := s.judgePass(r); no != nil {
			refuse(w, no)
			return
		}
		befriend(r.Context())
		h(w, r)
	}
}

// refuse ends the connection, too: there is nothing to wait for.
func refuse(w http.ResponseWriter, no *refusal) {
	w.Header().Set("Connection", "close")
	fail(w, no.status, no.why)
}

// fail answers with a cause that the page shows.
func fail(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]string{"error": clean(why, maxText)})
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}

// maxBody bounds what a page sends with a request.
const maxBody = 16 << 10

// body reads the object that a request brings, strictly.
func body(w http.ResponseWriter, r *http.Request, into any) bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" { // a form can't send it
		fail(w, http.StatusUnsupportedMediaType, "send application/json")
		return false
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		fail(w, http.StatusBadRequest, "that is not what this takes")
		return false
	}
	if _, err := d.Token(); err != io.EOF {
		fail(w, http.StatusBadRequest, "one object, and nothing behind it")
		return false
	}
	return true
}

// enter takes the token of a link for a pass.
func (s *Server) enter(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Token string `json:"token"`
	}
	if !body(w, r, &in) {
		return
	}
	p, ok := s.door.enter(in.Token)
	if !ok {
		refuse(w, &refusal{http.StatusUnauthorized, "this address was used already. If that was not you, end agent-init launch --ui with Ctrl-C. Enter there shows another address"})
		return
	}
	befriend(r.Context())
	http.SetCookie(w, &http.Cookie{
		Name: cookieName(s.port), Value: p.cookie, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	reply(w, map[string]string{"key": p.key})
}
