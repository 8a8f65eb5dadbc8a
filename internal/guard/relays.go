package guard

// maxRelays are the connections through the name gate at once. Each takes two
// descriptors and a few KiB.
const maxRelays = 8192

// relays is maxRelays, or fewer in a container that allows a process few
// descriptors: however many connections there are, some are left for DNS, whose
// clients and questions take one each, and for the rest.
func relays(descriptors uint64) int {
	const rest = 640
	least := descriptors / 8
	if descriptors > rest {
		least = max(least, (descriptors-rest)/2)
	}
	return int(min(maxRelays, max(least, 1)))
}
