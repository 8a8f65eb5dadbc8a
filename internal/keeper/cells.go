package keeper

import (
	"context"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/reaper"
)

// cell is one agent, and the process that keeps it. Who keeps them all changes what is below, with its mu held.
type cell struct {
	*several
	agent policy.Agent
	in    *inside
	slot  uint16

	mark     uint32          // of what passes; 0: nothing does
	proc     *reaper.Process // nil: there is none
	restarts int
	fault    string // why there is none

	cancel context.CancelFunc
	done   chan struct{} // closed when there is no process any more, and will be none
}

func (c *cell) place() firewall.AgentAt {
	at := firewall.AgentAt{Link: uint32(c.in.link), Networks: c.agent.Networks, Mark: c.mark, UIDs: c.users()}
	if mac, err := net.ParseMAC(c.agent.MAC); err == nil {
		copy(at.MAC[:], mac)
	}
	return at
}

// users are those of the guard, the broker, the exporter and the self-test.
func (c *cell) users() []uint32 { return c.uids[uidsOfCell*int(c.slot):][:uidsOfCell] }

// How soon a keeper that has ended has a successor. One that can't start is tried so often that a policy which somebody
// has mended is soon in force.
const (
	firstRetry  = 500 * time.Millisecond
	lastRetry   = 10 * time.Second
	calmAfter   = 30 * time.Second
	cellEndTime = 5 * time.Second
)

// begin keeps a process running for the agent, until end. It was taken in before.
func (c *cell) begin() {
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel, c.done = cancel, make(chan struct{})
	c.start()
	go c.keep(ctx)
}

func (c *cell) start() {
	c.mu.Lock()
	mark := c.mark
	c.mu.Unlock()
	p, err := c.spawn(mark)
	c.mu.Lock()
	c.proc, c.fault = p, ""
	if err != nil {
		c.proc, c.fault = nil, err.Error()
	}
	c.tell()
	c.mu.Unlock()
}

// keep waits for the process to end. Whatever rules it leaves, nothing passes from then on until another has begun.
func (c *cell) keep(ctx context.Context) {
	defer close(c.done)
	retry := firstRetry
	for {
		began := time.Now()
		if c.proc != nil {
			select {
			case <-c.proc.Done():
			case <-ctx.Done():
				c.stop()
				return
			}
		}
		c.ended(ctx)
		if time.Since(began) > calmAfter {
			retry = firstRetry
		}
		select {
		case <-time.After(retry):
		case <-ctx.Done():
			return
		}
		retry = min(2*retry, lastRetry)
		if err := c.clear(); err != nil {
			continue
		}
		if err := c.admit(ctx); err == nil {
			c.start()
			c.publish()
		}
	}
}

// ended seals the agent whose keeper has ended.
func (c *cell) ended(ctx context.Context) {
	c.mu.Lock()
	if c.proc != nil {
		c.fault = "its keeper has ended: " + c.proc.Status().String()
		if s, its := c.own(); its && s.Phase == state.PhaseFailed {
			c.fault = s.Reason
		}
	}
	c.proc, c.mark = nil, 0
	err := c.put(ctx)
	c.mu.Unlock()
	if err != nil { // it is tried again
		c.log.Error("sealing an agent", "agent", c.agent.Name, "error", err)
	}
	if ctx.Err() == nil {
		c.guardian(audit.Fault, fmt.Sprintf("agent %s is sealed: %s", c.agent.Name, c.fault))
		c.publish()
	}
}

// admit lets pass what the next keeper marks.
func (c *cell) admit(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cells[c.agent.Name] != c {
		return context.Canceled
	}
	c.mark = c.newMark()
	c.restarts++
	err := c.put(ctx)
	if err != nil {
		c.mark = 0
	}
	return err
}

func (c *cell) spawn(mark uint32) (*reaper.Process, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	uids := c.users()
	told := Cell{
		Name: c.agent.Name, Networks: c.agent.Networks, Mark: mark, Slot: c.slot, Parent: os.Getpid(), Dir: c.agent.Dir(),
		GuardUID: uids[0], BrokerUID: uids[1], ExporterUID: uids[2], ProbeUID: uids[3],
	}
	return c.reaper.Start(reaper.Command{
		Path: stage.Self, Args: c.config.Gateway.Again(told), Env: c.config.Gateway.Env, Dir: "/",
		Files: []*os.File{null, os.Stdout, os.Stderr}, Helper: true,
	})
}

// settled says whether it is known how the last start went. mu is held.
func (c *cell) settled() bool {
	s, its := c.own()
	return c.proc == nil || its && s.Phase != state.PhaseStarting
}

// serves says whether the keeper has confined its agent. mu is held.
func (c *cell) serves() bool {
	s, its := c.own()
	return its && s.Phase == state.PhaseReady
}

// own is what the present keeper has published last, if it has. mu is held.
func (c *cell) own() (s state.State, its bool) {
	err := c.dir.OfAgent(c.agent.Name).Read(state.StatusFile, &s)
	return s, err == nil && c.proc != nil && s.Keeper.PID == c.proc.Pid()
}

// end ends the keeper, and removes what it has left in the kernel.
func (c *cell) end() {
	if c.cancel == nil { // it was never begun
		return
	}
	c.cancel()
	<-c.done
	if c.clear() != nil { // its uids are nobody else's, then
		c.mu.Lock()
		c.lost[c.slot] = true
		c.mu.Unlock()
	}
	if err := firewall.RemoveCells(c.agent.Name); err != nil {
		c.log.Warn("removing the rules of an agent", "agent", c.agent.Name, "error", err)
	}
}

// clear ends what an ended keeper has left. Who has its uids next would be taken for it.
func (c *cell) clear() error {
	err := endAll(c.users()...)
	if err != nil {
		c.log.Error("ending the processes of an agent's keeper", "agent", c.agent.Name, "error", err)
		why := "processes of its last keeper can't be ended: " + err.Error()
		c.mu.Lock()
		c.fault = why
		c.mu.Unlock()
		c.guardian(audit.Fault, "agent "+c.agent.Name+": "+why)
	}
	return err
}

// stop ends the process: politely, and then not.
func (c *cell) stop() {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		stage.Kill(c.log, c.proc, sig)
		bounded, cancel := context.WithTimeout(context.Background(), cellEndTime)
		_, err := c.proc.Wait(bounded)
		cancel()
		if err == nil {
			return
		}
	}
}
