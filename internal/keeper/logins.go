package keeper

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/route"
)

// A login is refreshed by the broker, which opens no file. What the provider answers makes the old tokens void, so it
// goes to the disk twice: as it comes, into a journal beside the login that the broker is lent, and then by the keeper
// into the login's file. The broker uses no token that the keeper has not kept. A broker that finds an answer in the
// journal has been killed between the two, or its container was: it has that kept first.

// journalOf is beside a login.
func journalOf(login string) string { return login + ".answer" }

// openJournals opens one for each present route with a login. Without one, a login is refreshed all the same.
func (k *brokerKeeper) openJournals() (files []*os.File, routes []string) {
	for _, r := range k.book.policy().Settings.Broker {
		c := k.credentials.of(r)
		if c.login == "" {
			continue
		}
		f, err := os.OpenFile(journalOf(c.login), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
		if err != nil {
			k.log.Warn("a login can't be written back: put it on a volume that is root's to write", "route", r.Name, "error", text.CauseOf(err))
			continue
		}
		files, routes = append(files, f), append(routes, r.Name)
	}
	return files, routes
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// keepLogin writes what the broker has of a login, or what the agent gets in its place.
func (k *brokerKeeper) keepLogin(m, reply wire.Message) wire.Message {
	r, ok := k.route(m.Name)
	c := k.credentials.of(r)
	var err error
	switch {
	case !ok || c.login == "":
		err = errors.New("this route has no login")
	case !k.keeps.Take(time.Now()):
		err = errors.New("too many logins at once")
	case m.Flag == wire.KeepStandIn:
		err = k.publishStandIn(r.Name, m.Text)
	case m.Flag == wire.KeepTry:
		err = k.credentials.tryKeep(r, m.Arg)
	default:
		k.handing.Lock()
		err = k.credentials.keep(r, m.Arg, m.Text)
		k.handing.Unlock()
		if err == nil {
			k.guardian(audit.Info, "the login of the route "+r.Name+" was refreshed")
			k.book.publishRoutes()
		}
	}
	if err != nil {
		reply.Err, reply.Text = true, wire.PlainText(err.Error())
	}
	return reply
}

// publishStandIn writes what the agent's program finds in the place of its login: the agent's token, in the same shape.
func (k *brokerKeeper) publishStandIn(route, file string) error {
	return k.dir.WriteWith("login-"+route+".json", 0o644, func(w io.Writer) error {
		_, err := io.WriteString(w, file)
		return err
	})
}

// rewrite replaces the file of a login, where links to it lead. It is on the disk when rewrite returns.
func rewrite(link string, data []byte) error {
	if err := replaceLogin(link, data); err != nil {
		return fmt.Errorf("%w: its directory has to be on a volume that root may write, and not the file alone", text.CauseOf(err))
	}
	return nil
}

func replaceLogin(link string, data []byte) error {
	path, err := filepath.EvalSymlinks(link) // all of them are root's (policy.ReadLogin)
	if err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := replace(path, 0o600, func(temp *os.File) error {
		_, err := temp.Write(data)
		return errors.Join(err, temp.Sync())
	}); err != nil {
		return err
	}
	return dir.Sync()
}

// keep writes what the broker has in the place of the login with that mark, and holds it from then on.
func (c *credentials) keep(r route.Route, of uint64, file string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	held, err := c.keepable(r, of)
	if err != nil {
		return err
	}
	if len(file) == 0 || file[0] != '{' {
		return errors.New("that is no login")
	}
	if err := rewrite(held.login, []byte(file)); err != nil {
		return err
	}
	held.secret, held.after = kept([]byte(file)), of
	c.held[places(r)] = held
	return nil
}

// tryKeep writes the login with that mark once more as it is: else it would show only when the provider has made its
// tokens void that the volume is read-only, or that the file alone is mounted, and can't be replaced.
func (c *credentials) tryKeep(r route.Route, of uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	held, err := c.keepable(r, of)
	if err != nil {
		return err
	}
	return rewrite(held.login, held.secret)
}

var errAnother = errors.New("somebody else has changed the login meanwhile")

// keepable is what c holds for r, if the broker may replace it: it had the login with that mark, which nobody else has
// changed since. A broker that had no answer may say again what was kept.
func (c *credentials) keepable(r route.Route, of uint64) (credential, error) {
	held := c.held[places(r)]
	if of != wire.Mark(held.secret) && of != held.after {
		return held, errAnother
	}
	now, err := policy.ReadLogin(held.login, c.hidden) // who changes it may not be done yet
	if err != nil {
		return held, text.CauseOf(err)
	}
	defer clear(now)
	if !bytes.Equal(now, held.secret) {
		return held, errAnother
	}
	return held, nil
}
