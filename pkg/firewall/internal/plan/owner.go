package plan

import "errors"

// The guard's packets are told by who made the socket that sent them: the kernel
// keeps the user and the group that a process had then (f_cred of file(9), as
// nft_meta.c and xt_owner.c read it). A socket that was closed has neither, so what
// it still sends, the end of a connection, is nobody's: it passes as part of an
// established flow only.

// checkGuard says what of the guard's ids makes no sense.
func (c Config) checkGuard() error {
	switch {
	case c.GuardUID == 0:
		return errors.New("the guard needs a uid of its own, not 0")
	case c.GuardGID == 0 && !c.AnyGroup:
		return errors.New("the guard needs a group of its own, not 0")
	case c.GuardGID != 0 && c.AnyGroup:
		return errors.New("the guard has a group, and any is to count")
	}
	return nil
}

// guardOwned matches what the guard sends.
func (c Config) guardOwned() []Match {
	if c.AnyGroup {
		return []Match{MatchUID{UID: c.GuardUID}}
	}
	return []Match{MatchUID{UID: c.GuardUID}, MatchGID{GID: c.GuardGID}}
}

// others are matches of which each fits what a process other than the guard sends,
// and all together whatever one sends.
func (c Config) others() []Match {
	if c.AnyGroup {
		return []Match{MatchUID{c.GuardUID, true}}
	}
	return []Match{MatchUID{c.GuardUID, true}, MatchGID{c.GuardGID, true}}
}
