# words.awk reads what "go test -v" printed. With list=1, it prints the tests that failed and have no test below them that
# did, each with its package behind a tab. With only=TEST, it prints what that one said.

/^=== (RUN|CONT|NAME) / { test = $3; next }
/^=== PAUSE / { next }

/^ *--- (PASS|FAIL|SKIP): / {
	test = $3
	if ($2 == "FAIL:") failed[++n] = test
	next
}

# Its package's name comes behind all tests.
/^(FAIL|ok)\t/ {
	while (named < n) package[failed[++named]] = $2
	test = ""
	next
}

/^(panic:|FAIL$|PASS$|coverage:)/ { test = "" }

only != "" && test == only && lines++ < 200

END {
	if (!list) exit
	for (i = 1; i <= n; i++) {
		below = 0
		for (j = 1; j <= n; j++) if (index(failed[j], failed[i] "/") == 1) below = 1
		if (!below) print failed[i] "\t" package[failed[i]]
	}
}
