// Command labbox is started by the lab inside the namespaces of a box, and
// becomes the command that is to run there. It isn't for people.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/agent-init/agent-init/internal/lab/container"
)

func main() {
	err := errors.New("usage: labbox init")
	if len(os.Args) == 2 && os.Args[1] == "init" {
		err = container.Init()
	}
	fmt.Fprintln(os.Stderr, "labbox:", err)
	os.Exit(125)
}
