package scorecard

// foundAttacks are those that were found later, in the order of their numbers. Of
// SECURITY.md's, only the ones that can be tried from inside of any container.
func foundAttacks() []Attack {
	return []Attack{
		{ID: "X28", Title: "root by PATH: a writable directory comes first", Won: true,
			Try:   []string{"@fresh +-e +PATH={workspace}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin do run true"},
			Tests: []string{"TestLabX28RootByPath", "TestLabX28ContainerPath"}},
	}
}
