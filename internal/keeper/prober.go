package keeper

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/reaper"
	"github.com/agent-init/agent-init/pkg/selftest"
)

// prober is a process that has exactly what the agent has, and tries what is in a plan.
type prober struct {
	proc   *reaper.Process
	plan   selftest.Plan
	report *os.File // what it says
}

// newProber starts one. Beside an agent that runs, nobody sees what it writes but the keeper.
func (a *agent) newProber(plan selftest.Plan, beside bool) (*prober, error) {
	stdin, err := wire.Memfd("plan", plan)
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	report, stdout, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdout.Close()
	proc, err := a.startProber(stdin, stdout, beside)
	if err != nil {
		report.Close()
		return nil, err
	}
	return &prober{proc, plan, report}, nil
}

func (a *agent) startProber(stdin, stdout *os.File, beside bool) (*reaper.Process, error) {
	o := stage.Options{Spec: a.spec(), Stdin: stdin, Stdout: stdout, Stderr: os.Stderr}
	o.Spec.Argv, o.Spec.Dir = []string{stage.Self, stage.ProbeName}, "/"
	if beside {
		o.Stderr = nil
	}
	// A process of the agent's uid may be there already, also before the agent itself.
	exe, path, err := stage.UnreadableSelf(stage.FDAlone)
	if err != nil {
		return nil, err
	}
	defer exe.Close()
	o.Files, o.Spec.Argv[0] = []*os.File{exe}, path
	return stage.Spawn(a.reaper, o)
}

// prove returns what the process has to say. It waits no longer than ctx and selftest.Time, even for a process that
// somebody stopped.
func (p *prober) prove(ctx context.Context) (selftest.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, selftest.Time)
	defer cancel()
	defer context.AfterFunc(ctx, func() { p.report.Close() })()
	report, decoded := selftest.ReadPacked(p.report)
	st, err := p.proc.Wait(ctx)
	if err != nil {
		return selftest.Report{}, fmt.Errorf("it did not end in time: %w", context.Cause(ctx))
	}
	if decoded != nil {
		return selftest.Report{}, fmt.Errorf("it ended with %v and no report: %w", st, decoded)
	}
	if err := p.plan.Answered(report); err != nil {
		return selftest.Report{}, err
	}
	// Both must say so: the report is for people, the status is the verdict.
	report.OK = report.OK && st.Code() == fault.OK
	return report, nil
}

// end ends the process, if it has not ended yet.
func (p *prober) end(k *base) {
	p.report.Close()
	stage.Kill(k.log, p.proc, syscall.SIGKILL)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, _ = p.proc.Wait(ctx) // the reaper has it afterwards
}
