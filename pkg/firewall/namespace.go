package firewall

// NamespaceOptions say what CheckNamespace should accept.
type NamespaceOptions struct {
	// Shared accepts that others listen in this network namespace, as in a
	// pod or a compose project. It never accepts the host's own.
	Shared bool
}

// CheckNamespace refuses, with ErrUnsupported, to work in a network namespace
// that isn't this container's own: the host's, or one that others live in.
// It reads only.
func CheckNamespace(opts NamespaceOptions) error { return ErrUnsupported }
