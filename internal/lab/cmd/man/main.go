// Command man writes the man pages of an agent-init into a directory: man AGENT-INIT DIR.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/agent-init/agent-init/internal/lab/man"
)

func main() {
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "man:", err)
		os.Exit(1)
	}
}

func write(program, dir string) error {
	pages, err := man.Pages(func(words ...string) (string, error) {
		out, err := exec.Command(program, words...).Output()
		return string(out), err
	})
	if err != nil {
		return err
	}
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(dir, name+".1"), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
