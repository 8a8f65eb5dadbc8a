// Command harden hardens itself, keeping SETUID, and prints what each of its threads has then.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/privdrop"
)

func main() {
	var there sync.WaitGroup
	for range 4 { // threads that exist already
		there.Add(1)
		go func() {
			runtime.LockOSThread()
			there.Done()
			time.Sleep(time.Hour)
		}()
	}
	there.Wait()
	if err := privdrop.Harden(unix.CAP_SETUID, unix.CAP_WAKE_ALARM); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	fmt.Println("dumpable", dumpable, err)
	tasks, _ := filepath.Glob("/proc/self/task/*/status")
	fmt.Println("threads", len(tasks))
	for _, task := range tasks {
		status, _ := os.ReadFile(task)
		for line := range strings.Lines(string(status)) {
			if strings.HasPrefix(line, "Cap") {
				fmt.Print(line)
			}
		}
	}
}
