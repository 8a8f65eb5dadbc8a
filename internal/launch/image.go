package launch

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"
)

// Image is one of an agent. All but its ID may have been chosen by who made it.
type Image struct {
	ID      string    `json:"id"`
	Tags    []string  `json:"tags"`
	Agent   string    `json:"agent"`
	Routes  []string  `json:"routes,omitempty"`  // of the broker that it has, if there is a key
	Volumes []string  `json:"volumes,omitempty"` // directories that outlive a container
	Created time.Time `json:"created"`

	base                              string
	env, entrypoint, cmd, healthcheck []string
}

// Images returns those of that agent, or of all, the newest first.
func (e Engine) Images(ctx context.Context, agent string) ([]Image, error) {
	filter := "label=" + agentLabel
	if agent != "" {
		filter += "=" + agent
	}
	all, err := inspected[imageJSON](ctx, e, "image", "images", "-q", "--no-trunc", "--filter", filter)
	var list []Image
	for _, in := range all {
		if i := in.image(); agent == "" || i.Agent == agent {
			list = append(list, i)
		}
	}
	slices.SortStableFunc(list, func(a, b Image) int { return b.Created.Compare(a.Created) })
	return list, err
}

// agents says which agents there are images of.
func (e Engine) agents(ctx context.Context) string {
	images, _ := e.Images(ctx, "") // without them, the remedy is shorter
	var there []string
	for _, i := range images {
		if nameOf().MatchString(i.Agent) && !slices.Contains(there, i.Agent) && len(there) < 12 {
			there = append(there, i.Agent)
		}
	}
	if len(there) == 0 {
		return ""
	}
	slices.Sort(there)
	return "; there are images of " + strings.Join(there, ", ")
}

// imageJSON is what docker, podman and nerdctl say of an image in the same words.
type imageJSON struct {
	ID       string
	RepoTags []string
	Created  time.Time
	Config   struct {
		Labels               map[string]string
		Volumes              map[string]struct{}
		Env, Entrypoint, Cmd []string
		Healthcheck          healthJSON
	}
	Healthcheck healthJSON // podman's place of it
}

type healthJSON struct{ Test []string }

func (in imageJSON) image() Image {
	return Image{
		ID: in.ID, Tags: in.RepoTags, Agent: in.Config.Labels[agentLabel], Created: in.Created,
		Routes:  strings.Fields(in.Config.Labels[routesLabel]),
		Volumes: slices.Sorted(maps.Keys(in.Config.Volumes)),
		base:    in.Config.Labels[baseLabel], env: in.Config.Env, entrypoint: in.Config.Entrypoint, cmd: in.Config.Cmd,
		healthcheck: slices.Concat(in.Config.Healthcheck.Test, in.Healthcheck.Test),
	}
}
