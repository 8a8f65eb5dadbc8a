package keeper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// takeSaved makes a volume that is still empty root's alone: Kubernetes mounts them with mode 777. What is not taken is
// refused where it is read.
func (b *base) takeSaved() {
	if b.config.SavedFile == "" {
		return
	}
	home := filepath.Dir(filepath.Dir(b.config.SavedFile))
	if err := state.Take(home); err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.log.Warn("taking the volume of what was saved", "directory", home, "error", err)
	}
}

// savedIn is what files have of what was saved.
func (b *book) savedIn(files *policy.Bundle) []byte {
	for _, f := range files.Files {
		if f.Name == b.config.SavedFile {
			return f.Data
		}
	}
	return nil
}

// withSaved is files with data in the place of what was saved.
func (b *book) withSaved(files *policy.Bundle, data []byte) *policy.Bundle {
	out := *files
	out.Files = slices.DeleteFunc(slices.Clone(files.Files), func(f policy.File) bool { return f.Name == b.config.SavedFile })
	out.Files = append(out.Files, policy.File{Name: b.config.SavedFile, Data: data})
	return &out
}

// errNotSaved is a change of the file that did not come about. What was in force is so still.
var errNotSaved = errors.New("it was not saved")

// saveGrants brings grants into force by a change of the file of what was saved: as a file that a person has edited, but
// with the others as they were read last, which may have errors by now. The file is changed first, so that what is in
// force is never more than the next start finds. If the kernel does not take it, that is undone. What only takes away is
// in force before the file is changed, for which a disk or another keeper may be waited for: it is owed if the kernel does
// not take it, and taken back if it can't be saved.
func (k *keeper) saveGrants(ctx context.Context, grants grant.Book, made, gone []grant.Grant, events []audit.Event) (taken <-chan wire.Message, err error) {
	var cut *inForce
	var refused error
	if was := k.book.now(); grants.OnlyCuts(was.grants) {
		assumed := k.book.withSaved(k.book.files, grant.EditSaved(k.book.savedIn(k.book.files), gone, made))
		if cut, err = k.book.over(assumed, grants.Clone()); err != nil {
			return nil, err
		}
		taken, refused = k.adopt(ctx, cut)
		defer func() {
			if refused == nil && errors.Is(err, errNotSaved) {
				if back, backErr := k.adopt(ctx, was); backErr != nil {
					k.log.Error("taking back what was not saved", "error", backErr)
				} else {
					taken = back
				}
			}
		}()
	}
	file, err := policy.OpenSaved(k.config.SavedFile)
	if err != nil {
		return taken, notSaved(err)
	}
	defer file.Close()
	data := grant.EditSaved(file.Data, gone, made)
	files := k.book.withSaved(k.book.files, data)
	grants.Adopt(grant.ReadSaved(data)) // another keeper's too
	cuts := grants.OnlyCuts(k.book.now().grants)
	if lost, _ := (grant.Book{List: made}).SavedSince(grants); len(lost) > 0 { // never, see FuzzSaved
		return taken, fmt.Errorf("%w: %s is read as something else", errNotSaved, lost[0].Target)
	}
	next, err := k.book.over(files, grants)
	if err != nil {
		return taken, fmt.Errorf("%w: %w", errNotSaved, err)
	}
	if err := file.Replace(data); err != nil {
		return taken, notSaved(err)
	}
	if cut != nil && bytes.Equal(data, k.book.savedIn(cut.bundle)) {
		next.bundle, next.policy, err = cut.bundle, cut.policy, refused
		if err == nil {
			k.book.present.Store(next) // with the numbers of the grants
		}
	} else {
		taken, err = k.adopt(ctx, next)
	}
	switch {
	case err == nil:
		k.book.files = files
		k.update(func(s *state.State) { s.Policy.Counts = next.policy.Counts() })
		k.book.cutsPaid(events)
		k.book.announce(next.grants)
	case cuts: // the file says so already, and so will whatever comes into force next
		k.book.files = files
		err = k.book.owe(grants, events, err)
		k.book.announce(grants)
	default:
		if undone := file.Undo(); undone != nil {
			f := fault.Of(err, "bring it into force")
			return taken, fault.New(f.Code, f.Remedy, "not in force, and in the file all the same (%w): %w", undone, err)
		}
		f := fault.Of(err, "bring it into force")
		err = fault.New(f.Code, f.Remedy, "%w: %w", errNotSaved, err)
	}
	return taken, err
}

func notSaved(err error) error {
	if file, ok := errors.AsType[*policy.FileError](err); ok {
		return fault.New(fault.Failure, file.Remedy, "%w: %s", errNotSaved, file.What())
	}
	return fault.New(fault.Failure, "see agent-init doctor", "%w: %w", errNotSaved, err)
}
