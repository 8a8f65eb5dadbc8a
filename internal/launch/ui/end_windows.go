package ui

import "os"

func end(client *os.Process) error { return client.Kill() }
