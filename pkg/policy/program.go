package policy

import (
	"io/fs"
	"os"
)

// CheckProgram judges the program at path, from / on, by the rule that the files
// of a policy have to hold to: a *FileError says that somebody else than root
// could change it, or put another one in its place. Where nothing is at path, the
// error is fs.ErrNotExist if nobody but root could put something there.
func CheckProgram(path string) error {
	f, err := walker{vacancies: true}.open(path, false)
	if err != nil {
		return err
	}
	return f.Close()
}

// judgeVacancy judges the directory that the walk has come to, where the file at
// here is missing. The sticky bit keeps others from replacing a file there, and
// from adding none.
func (k *walk) judgeVacancy(here string) error {
	if bad := k.checkHome(k.dirs[len(k.dirs)-1], k.at); bad != "" {
		return k.refuse(bad, "chmod go-w "+k.at)
	}
	return &os.PathError{Op: "open", Path: here, Err: fs.ErrNotExist}
}
