package main

import (
	"flag"
	"fmt"
	"strings"

	"github.com/agent-init/agent-init/internal/lab/scorecard"
)

// strangerFlags say what image is attacked alone, and how it is started: each by itself, or in a file.
type strangerFlags struct {
	ref, file, options, wrap string
	image                    scorecard.Image
}

func subjectFlags() *strangerFlags {
	s := &strangerFlags{}
	flag.StringVar(&s.ref, "image", "", "attack this `image` alone")
	flag.StringVar(&s.file, "subject", "", "`file` that says how it is started, in place of the flags below")
	flag.StringVar(&s.image.Name, "name", "", "what to call it")
	flag.StringVar(&s.options, "options", "", "options of docker run for it")
	flag.StringVar(&s.image.Setup, "setup", "", "command that confines it, as root in the running container")
	flag.StringVar(&s.image.User, "as", "1000", "with -setup: who the agent is")
	flag.StringVar(&s.wrap, "wrap", "", "command that starts the agent's, and confines it")
	flag.StringVar(&s.image.Proxy, "proxy", "", "proxies that the agent is to use: URLs, or env:NAME for that of a variable")
	flag.BoolVar(&s.image.Network, "network", false, "on a user-defined network")
	flag.StringVar(&s.image.Allowed, "allowed", "api.anthropic.com", "a name that it lets the agent reach")
	flag.StringVar(&s.image.Wildcard, "wildcard", "", "a zone that it lets the agent reach all of")
	flag.BoolVar(&s.image.Ours, "ours", false, "its entrypoint is agent-init")
	return s
}

// subject is what the flags, or the file, say.
func (s *strangerFlags) subject(c *card) *scorecard.Subject {
	out := &scorecard.Subject{Image: s.image}
	out.Options, out.Wrap = strings.Fields(s.options), strings.Fields(s.wrap)
	if s.file != "" {
		var err error
		if out, err = scorecard.ReadSubject(s.file); err != nil {
			c.Fatalf("the subject: %v", err)
		}
	}
	out.Ref = s.ref
	if out.Name == "" {
		out.Name = out.Ref
	}
	return out
}

// foreign attacks one image of somebody's.
func (c *card) foreign(subject *scorecard.Subject, peer string, results *resultFiles) {
	netns, err := engineNS()
	if err != nil {
		c.Fatalf("%v", err)
	}
	if peer == "" {
		peer = subject.Ref
	}
	if err := subject.Identify(); err != nil {
		c.Fatalf("%v", err)
	}
	column := scorecard.Column{Title: subject.Name, Subject: subject, Ours: subject.Ours}
	c.attack(&column, func() *scorecard.Setting { return scorecard.InEngine(c, netns, peer, subject.Image) })
	fmt.Print(scorecard.Table([]scorecard.Column{column}, true))
	if err := results.write([]scorecard.Column{column}); err != nil {
		c.Fatalf("%v", err)
	}
	if leaks := scorecard.Leaks(column); leaks != "" {
		fmt.Printf("\nWhat arrived that should not have:\n\n%s", leaks)
		c.faults = append(c.faults, "it leaks")
	}
}
