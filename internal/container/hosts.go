package container

// HostsFile is the hosts file that counts in a mode. Containers that share a network are
// given one file by a kubelet, and by Docker's option container, which root of any of
// them writes. The agent may be root beside a sidecar, so that none counts there.
func HostsFile(mode string) string {
	if mode == "sidecar" {
		return ""
	}
	return "/etc/hosts"
}
