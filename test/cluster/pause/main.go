// Command pause is the process that holds a pod's namespaces, and reaps what others leave there.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end, child := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	signal.Notify(child, syscall.SIGCHLD)
	for {
		select {
		case <-end:
			return
		case <-child:
			for {
				if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
					break
				}
			}
		}
	}
}
