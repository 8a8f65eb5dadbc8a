package keeper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/privdrop"
	"github.com/agent-init/agent-init/pkg/reaper"
	"github.com/agent-init/agent-init/pkg/selftest"
)

// prober is a process that has exactly what the agent has, and waits to be told what to try. It can be started ahead of
// that: of a self-test, its start takes as long as the probes.
type prober struct {
	proc   *reaper.Process
	plan   *os.File // what it is told
	report *os.File // what it says
}

// newProber starts one. Beside an agent that runs, nobody sees what it writes but the keeper.
func (a *agent) newProber(beside bool) (*prober, error) {
	stdin, plan, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	p := &prober{plan: plan}
	if p.proc, err = a.startProber(p, stdin, beside); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (a *agent) startProber(p *prober, stdin *os.File, beside bool) (*reaper.Process, error) {
	r, stdout, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdout.Close()
	p.report = r
	o := stage.Options{Spec: a.spec(), Stdin: stdin, Stdout: stdout, Stderr: os.Stderr}
	o.Spec.Argv, o.Spec.Dir = []string{stage.Self, stage.ProbeName}, "/"
	if c := a.config.Cell; c != nil {
		o.Spec.Argv = append(o.Spec.Argv, c.Name)
	}
	if beside {
		o.Stderr = nil
	}
	if beside || os.Getpid() != 1 { // there may be an agent
		exe, path, err := stage.UnreadableSelf(stage.FDAlone)
		if err != nil {
			return nil, err
		}
		defer exe.Close()
		o.Files = []*os.File{exe}
		o.Spec.Argv[0] = path
	} else { // there is nobody yet who could stop it
		forker, err := privdrop.NewForker(o.Spec)
		if err != nil {
			return nil, err
		}
		defer forker.End()
		o.Forker = forker
	}
	return stage.Spawn(a.reaper, o)
}

// prove has it try what is in plan, once.
func (p *prober) prove(ctx context.Context, plan selftest.Plan) (selftest.Report, error) {
	end := time.Now().Add(selftest.Time)
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	if err := errors.Join(p.report.SetReadDeadline(end), p.plan.SetWriteDeadline(end)); err != nil {
		return selftest.Report{}, err
	}
	told := text.JSONLine(p.plan, plan) // one that has ended is seen below
	report, decoded := selftest.ReadPacked(p.report)
	st, err := p.proc.Wait(ctx)
	if err != nil {
		return selftest.Report{}, errors.New("it did not end in time")
	}
	if decoded != nil {
		return selftest.Report{}, fmt.Errorf("it ended with %v and no report: %w", st, errors.Join(decoded, told))
	}
	// Both must say so: the report is for people, the status is the verdict.
	report.OK = report.OK && st.Code() == fault.OK
	return report, nil
}

// end is for one that has proved, and for one that is not needed any more: without a plan, it ends by itself.
func (p *prober) end(k *base) {
	p.close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := p.proc.Wait(ctx); err != nil {
		stage.Kill(k.log, p.proc, syscall.SIGKILL)
	}
}

func (p *prober) close() {
	p.plan.Close()
	if p.report != nil {
		p.report.Close()
	}
}
