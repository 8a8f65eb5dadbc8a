package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

const spawnRounds = 40

// supervised is what the start and the end of /bin/true take more through an init than without. There is no firewall: what
// is left is the work of an init, and the drop of privileges.
func supervised(argv ...string) func(*bench) float64 {
	return func(b *bench) float64 {
		box := b.lab.NewBox(lab.BoxOptions{Binary: b.binary, Binds: b.clientBind()})
		b.Cleanup(box.Kill)
		args := []string{clientPath, "-client", "spawn", "-n", fmt.Sprint(spawnRounds), "-through", strings.Join(argv, " ")}
		p := box.Start(lab.Cmd{Args: args, Timeout: clientTime})
		r := p.Wait(clientTime)
		var took both[time.Duration]
		if err := json.Unmarshal([]byte(r.Stdout), &took); err != nil {
			b.Fatalf("starting %v: %v: %s", argv, err, r)
		}
		return millis(took.Gated - took.Direct)
	}
}

// spawn is the client's side: it starts a command through an init and without it, in turns.
func spawn(rounds int, argv []string) (both[time.Duration], error) {
	through := timeOf(append(argv, "/bin/true"), execute)
	if _, err := through(); err != nil { // the first one warms up
		return both[time.Duration]{}, err
	}
	return inTurns(rounds, timeOf([]string{"/bin/true"}, execute), through)
}

func execute(argv []string) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%v: %w", argv, err)
	}
	return nil
}
