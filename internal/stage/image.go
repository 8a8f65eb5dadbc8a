package stage

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// programHeader is Elf64_Phdr of elf(5).
type programHeader struct {
	kind, flags                                     uint32
	offset, address, physical, size, memory, aligns uint64
}

// Of elf(5) and getauxval(3).
const (
	auxHeaders, auxHeaderSize, auxHeaderCount = 3, 4, 5

	segmentLoad, segmentHeaders = 1, 6
	segmentWritable             = 2
)

// leaveImage lets go of the pages of the program's own code and constants. A start
// runs through most of them, and what follows needs few: those come back as they are
// used, from the page cache or from the file, since nobody has written to them. When
// memory is short the others would be taken for pages that are in use, as mapped code
// is (folio_check_references in mm/vmscan.c); they are marked as cold first, since
// unmapping them would count as a use too (madvise(2)).
func leaveImage() {
	page := uintptr(unix.Getpagesize())
	bias, headers := loadedImage()
	for _, h := range headers {
		if h.kind != segmentLoad || h.flags&segmentWritable != 0 {
			continue
		}
		begin := (bias + uintptr(h.address) + page - 1) &^ (page - 1)
		end := (bias + uintptr(h.address+h.size)) &^ (page - 1)
		if begin < end {
			image := unsafe.Slice((*byte)(at(begin)), end-begin)
			_ = unix.Madvise(image, unix.MADV_COLD)
			_ = unix.Madvise(image, unix.MADV_DONTNEED)
		}
	}
}

// Settle leaves the image when a start is over, with what it does at its end.
func Settle() { time.AfterFunc(2*time.Second, leaveImage) }

// loadedImage finds the program headers that the kernel has mapped, and how far from
// its file's addresses the program lies.
func loadedImage() (bias uintptr, headers []programHeader) {
	aux, err := unix.Auxv()
	if err != nil {
		return 0, nil
	}
	var found, size, count uintptr
	for _, a := range aux {
		switch a[0] {
		case auxHeaders:
			found = a[1]
		case auxHeaderSize:
			size = a[1]
		case auxHeaderCount:
			count = a[1]
		}
	}
	if found == 0 || size != unsafe.Sizeof(programHeader{}) {
		return 0, nil
	}
	headers = unsafe.Slice((*programHeader)(at(found)), count)
	for _, h := range headers {
		if h.kind == segmentHeaders {
			return found - uintptr(h.address), headers
		}
	}
	return 0, nil
}

// at is a pointer to an address outside of the heap, which the collector leaves alone.
func at(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }
