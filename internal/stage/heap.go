package stage

// SmallHeap is the GC percentage of processes with a few MiB of live data: they
// don't need a heap that doubles.
const SmallHeap = 50
