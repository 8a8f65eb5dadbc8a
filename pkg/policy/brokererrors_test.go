package policy

import (
	"strings"
	"testing"
)

// One line of a route, and the column and the message.
func TestRouteErrors(t *testing.T) {
	for _, tt := range []struct{ route, want string }{
		{`anthropic: true`, `14: broker.anthropic must be a list of key: value: "true"`},
		{`Anthropic: {}`, `3: a route's name has letters from a to z, digits and hyphens: "Anthropic" (did you mean anthropic?)`},
		{`-x: {}`, `3: a route's name has letters from a to z, digits and hyphens: "-x"`},
		{`antropic: {}`, `3: no route of this name is built in, and one of your own says where it leads, as in to: https://host/: "antropic" (did you mean anthropic?)`},
		{`tickets: {}`, `3: no route of this name is built in, and one of your own says where it leads, as in to: https://host/: "tickets"`},
		{`anthropic: {credentail: 'env:A'}`, `15: unknown key: "credentail" (did you mean credential?)`},
		{`anthropic: {credential: sk-ant-api03-secret}`, `27: a credential is file:/PATH, env:NAME, login:/PATH, or the word none; the credential itself has no place in a policy`},
		{`anthropic: {credential: /run/secrets/a}`, `27: a credential is file:/PATH, env:NAME or login:/PATH: "/run/secrets/a" (did you mean file:/run/secrets/a?)`},
		{`anthropic: {credential: file:run/secrets/a}`, `27: the file of a credential is named from / on: "file:run/secrets/a"`},
		{`anthropic: {credential: file:/run/../a}`, `27: the file of a credential is named from / on: "file:/run/../a"`},
		{`anthropic: {credential: 'env:A-B'}`, `28: behind env: stands the name of a variable`},
		{`anthropic: {credential: 'env:'}`, `28: behind env: stands the name of a variable`},
		{`anthropic: {credential: [none]}`, `28: none stands alone: credential: none: "none"`},
		{`anthropic: {credential: ['env:A', none]}`, `37: none stands alone: credential: none: "none"`},
		{`anthropic: {credential: []}`, `27: no source is named: write file:/PATH, env:NAME, login:/PATH or none, or leave this out`},
		{`anthropic: {credential: {env: A}}`, `27: a credential is one word: file:/PATH, env:NAME or login:/PATH, without a blank`},
		{`anthropic: {credential: none}`, `15: this API asks for a credential: name a file:/… or env:…: "none"`},
		{`anthropic: {api: anthropic}`, `15: a built-in route has its API already: leave this out: "anthropic"`},
		{`mine: {to: 'https://a.example/', api: openapi, credential: none}`, `41: broker.mine.api is openai, anthropic, gemini, git, npm, pypi, go, crates or maven: "openapi"`},
		{`mine: {to: a.example/v1, api: openai, credential: none}`, `10: a route leads to a URL, as in https://api.example.com/v1/: "a.example/v1" (did you mean https://a.example/v1?)`},
		{`mine: {to: 'ftp://a.example/v1', api: openai, credential: none}`, `10: a route leads to a URL, as in https://api.example.com/v1/: "ftp://a.example/v1"`},
		{`mine: {to: 'https://u:p@a.example/v1', api: openai, credential: none}`, `10: the URL of a route holds no user: write credential and inject`},
		{`mine: {to: 'https://a.example/v1?x', api: openai, credential: none}`, `10: the URL of a route has no query, no fragment and no escapes: "https://a.example/v1?x"`},
		{`mine: {to: 'https://a.example/a%20b', api: openai, credential: none}`, `10: the URL of a route has no query, no fragment and no escapes: "https://a.example/a%20b"`},
		{`mine: {to: 'https://a.example/a/../b', api: openai, credential: none}`, `10: the path of a route's URL has no empty segment, no dots alone, and nothing that needs an escape: "https://a.example/a/../b"`},
		{`mine: {to: 'https://a.example//b', api: openai, credential: none}`, `10: the path of a route's URL has no empty segment, no dots alone, and nothing that needs an escape: "https://a.example//b"`},
		{`mine: {to: 'https://*.a.example/', api: openai, credential: none}`, `10: a route leads to one host, over TCP: "https://*.a.example/"`},
		{`mine: {to: 'https://a.example:0/', api: openai, credential: none}`, `10: a port is one number from 1 to 65535: "https://a.example:0/"`},
		{`mine: {to: 'https://a.example:99999/', api: openai, credential: none}`, `10: a port is one number from 1 to 65535: "https://a.example:99999/"`},
		{`mine: {to: 'https://a..example/', api: openai, credential: none}`, `10: the name has an empty label: "https://a..example/"`},
		{`mine: {to: 'https:///x', api: openai, credential: none}`, `10: the name is missing: "https:///x"`},
		{`mine: {to: 'http://localhost:11434/', api: openai, credential: none}`, `10: loopback needs no route: the agent reaches it by itself: "http://localhost:11434/"`},
		{`mine: {to: 'http://127.0.0.1:11434', api: openai, credential: none}`, `10: loopback needs no route: the agent reaches it by itself: "http://127.0.0.1:11434"`},
		{`mine: {to: 'http://[::1]:11434', api: openai, credential: none}`, `10: loopback needs no route: the agent reaches it by itself: "http://[::1]:11434"`},
		{`mine: {to: 'http://[::ffff:127.0.0.1]:11434', api: openai, credential: none}`, `10: an IPv4 address is written as such: "http://[::ffff:127.0.0.1]:11434"`},
		{`mine: {to: 'http://169.254.169.254/', api: openai, credential: none}`, `10: metadata, multicast and reserved addresses are never reached: "http://169.254.169.254/"`},
		{`mine: {to: 'http://0.0.0.0/', api: openai, credential: none}`, `10: metadata, multicast and reserved addresses are never reached: "http://0.0.0.0/"`},
		{`mine: {to: 'http://2130706433/', api: openai, credential: none}`, `10: an address is written as four decimal numbers: "http://2130706433/"`},
		{`mine: {to: 'http://vllm:8000/', api: openai, credential: none}`, `10: http leads only to an address, or to a server of your own: write https, or private: true: "http://vllm:8000/"`},
		{`mine: {to: 'http://vllm:8000/', private: true, api: openai, credential: 'env:K'}`, `10: the credential would go over the network in the clear: write https, or plaintext: true: "http://vllm:8000/"`},
		{`mine: {to: 'http://10.0.0.1:8000/', api: openai, credential: 'env:K'}`, `10: the credential would go over the network in the clear: write https, or plaintext: true: "http://10.0.0.1:8000/"`},
		{`mine: {to: 'https://a.example/', api: openai}`, `3: the credential is missing: say where it is, as in credential: file:/run/secrets/mine, or credential: none: "mine"`},
		{`mine: {to: 'https://a.example/'}`, `3: the credential is missing: say where it is, as in credential: file:/run/secrets/mine, or credential: none: "mine"`},
		{`mine: {to: 'https://a.example/', credential: 'env:K'}`, `3: how the credential is put on is missing, as in inject: {header: Authorization, value: "Bearer {}"}: "mine"`},
		{`mine: {to: 'https://a.example/', credential: 'env:K', inject: {}}`, `57: a credential is put on in one way: {header: NAME, value: "Bearer {}"}, {basic: {user: NAME}} or {query: NAME}`},
		{`mine: {to: 'https://a.example/', credential: 'env:K', inject: {header: A, query: b}}`, `57: a credential is put on in one way: {header: NAME, value: "Bearer {}"}, {basic: {user: NAME}} or {query: NAME}`},
		{`mine: {to: 'https://a.example/', credential: 'env:K', inject: {value: 'x {}'}}`, `57: a credential is put on in one way: {header: NAME, value: "Bearer {}"}, {basic: {user: NAME}} or {query: NAME}`},
		{`mine: {to: 'https://a.example/', credential: 'env:K', inject: {query: k, value: 'x {}'}}`, `57: only a header has a value`},
		{`mine: {to: 'https://a.example/', credential: 'env:K', inject: {header: Host}}`, `74: broker.mine.inject.header is the name of a header that is for a credential, as in Authorization: "Host"`},
		{`mine: {to: 'https://a.example/', credential: 'env:K', inject: {header: 'a b'}}`, `75: broker.mine.inject.header is the name of a header that is for a credential, as in Authorization: "a b"`},
		{`mine: {to: 'https://a.example/', credential: 'env:K', inject: {header: A, value: Bearer}}`, `57: the value of a header is one line with {} for the credential, as in "Bearer {}"`},
		{`mine: {to: 'https://a.example/', credential: 'env:K', inject: {header: A, value: '{}{}'}}`, `57: the value of a header is one line with {} for the credential, as in "Bearer {}"`},
		{`mine: {to: 'https://a.example/', credential: 'env:K', inject: {basic: {user: 'a:b'}}}`, `81: broker.mine.inject.basic.user is a name without a colon: "a:b"`},
		{`mine: {to: 'https://a.example/', credential: 'env:K', inject: {basic: me}}`, `73: broker.mine.inject.basic must be a list of key: value: "me"`},
		{`mine: {to: 'https://a.example/', credential: 'env:K', inject: {query: 'a b'}}`, `74: broker.mine.inject.query is the name of a parameter: "a b"`},
		{`mine: {to: 'https://a.example/', credential: 'env:K', inject: {cookie: a}}`, `66: unknown key: "cookie"`},
		{`mine: {to: 'https://a.example/', credential: none, inject: {header: A}}`, `54: without a credential there is nothing to put on: leave this out`},
		{`mine: {to: 'https://a.example/', credential: none}`, `3: nothing may be asked on this route: say what, as in allow: ["GET /v1/**"]: "mine"`},
		{`mine: {to: 'https://a.example/', credential: none, allow: []}`, `3: nothing may be asked on this route: say what, as in allow: ["GET /v1/**"]: "mine"`},
		{`mine: {to: 'https://a.example/', credential: none, allow: GET /}`, `61: broker.mine.allow must be a list, with - in front of each item: "GET /"`},
		{`mine: {to: 'https://a.example/', credential: none, allow: [/v1]}`, `62: a method stands in front of the path: "/v1" (did you mean GET /v1?)`},
		{`mine: {to: 'https://a.example/', credential: none, allow: [get /v1]}`, `62: a method is one of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS: "get" (did you mean GET?)`},
		{`mine: {to: 'https://a.example/', credential: none, allow: [FETCH /v1]}`, `62: a method is one of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS: "FETCH" (did you mean PATCH?)`},
		{`mine: {to: 'https://a.example/', credential: none, allow: [CONNECT /v1]}`, `62: a method is one of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS: "CONNECT"`},
		{`mine: {to: 'https://a.example/', credential: none, allow: [GET]}`, `65: a path stands behind the method, from / on, as in GET /v1/**: "GET"`},
		{`mine: {to: 'https://a.example/', credential: none, allow: [GET v1]}`, `66: a path stands behind the method, from / on, as in GET /v1/**: "GET v1"`},
		{`mine: {to: 'https://a.example/', credential: none, allow: [GET /a//b]}`, `66: no path that is asked has such a segment: "/a//b" (did you mean /a/b?)`},
		{`mine: {to: 'https://a.example/', credential: none, allow: [GET /a/../b]}`, `66: no path that is asked has such a segment: "/a/../b" (did you mean /b?)`},
		{`mine: {to: 'https://a.example/', credential: none, allow: ['GET /a/**/b']}`, `67: ** is the whole of the last segment, and stands for any number of them: "/a/**/b"`},
		{`mine: {to: 'https://a.example/', credential: none, allow: ['GET /a**']}`, `67: ** is the whole of the last segment, and stands for any number of them: "/a**"`},
		{`mine: {to: 'https://a.example/', credential: none, allow: ['GET /a?b']}`, `67: a path is written without escapes and without a query; * stands for a segment or a part of one: "/a?b"`},
		{`mine: {to: 'https://a.example/', credential: none, allow: ['GET /a%2fb']}`, `67: a path is written without escapes and without a query; * stands for a segment or a part of one: "/a%2fb"`},
		{`mine: {to: 'https://a.example/', credential: none, allow: ['GET /a b']}`, `67: a path is written without escapes and without a query; * stands for a segment or a part of one: "/a b"`},
		{`mine: {to: 'https://a.example/', credential: none, allow: ['GET /v1'], models: [a]}`, `74: this is about a model's API: leave it out, or say which, as in api: openai: "models"`},
		{`mine: {to: 'https://a.example/', credential: none, allow: ['GET /v1'], provider_tools: [a]}`, `74: this is about a model's API: leave it out, or say which, as in api: openai: "provider_tools"`},
		{`mine: {to: 'https://a.example/', credential: none, allow: ['GET /v1'], fields: [a]}`, `74: this is about a model's API: leave it out, or say which, as in api: openai: "fields"`},
		{`mine: {to: 'https://a.example/', credential: none, allow: ['GET /v1'], tenant: a}`, `74: this is about a model's API: leave it out, or say which, as in api: openai: "tenant"`},
		{`mine: {to: 'https://a.example/', credential: none, allow: ['GET /v1'], limits: {tokens_per_day: 3}}`, `74: this is about a model's API: leave it out, or say which, as in api: openai: "tokens_per_day"`},
		{`mine: {to: 'https://a.example/', credential: none, allow: ['GET /v1'], region: a}`, `74: the address of this route has no region: leave this out: "a"`},
		{`anthropic: {allow: ['GET /v1']}`, `15: the API of this route says what may be asked: leave this out`},
		{`anthropic: {models: ['claude-[a-z]*']}`, `25: a model is a name, in which * stands for any text, as in gpt-5*: "claude-[a-z]*"`},
		{`anthropic: {models: [claude sonnet]}`, `24: a model is a name, in which * stands for any text, as in gpt-5*: "claude sonnet"`},
		{`anthropic: {models: ['']}`, `25: an item of broker.anthropic.models is empty`},
		{`anthropic: {models: claude}`, `23: broker.anthropic.models must be a list, with - in front of each item: "claude"`},
		{`anthropic: {provider_tools: ['web search']}`, `33: a tool is named by its type, as in web_search: "web search"`},
		{`anthropic: {fields: ['a b']}`, `25: a field is one name of the body's first level: "a b"`},
		{`anthropic: {tenant: 'a,b'}`, `24: a tenant is the id of an organisation: "a,b"`},
		{`gemini: {tenant: a}`, `12: the API of this route has no header for it: leave this out: "a"`},
		{`anthropic: {optional: yes}`, `25: broker.anthropic.optional is true or false: "yes"`},
		{`anthropic: {private: 1}`, `24: broker.anthropic.private is true or false: "1"`},
		{`anthropic: {plaintext: maybe}`, `26: broker.anthropic.plaintext is true or false: "maybe"`},
		{`anthropic: {limits: {requests_per_minute: 0}}`, `45: broker.anthropic.limits.requests_per_minute is a number from 1 to 1000000: "0"`},
		{`anthropic: {limits: {requests_per_minute: many}}`, `45: broker.anthropic.limits.requests_per_minute is a number from 1 to 1000000: "many"`},
		{`anthropic: {limits: {tokens_per_day: -1}}`, `40: broker.anthropic.limits.tokens_per_day is a number from 1 to 1000000000000: "-1"`},
		{`anthropic: {limits: {tokens_per_day: 1e6}}`, `40: broker.anthropic.limits.tokens_per_day is a number from 1 to 1000000000000: "1e6"`},
		{`anthropic: {limits: {tokens: 5}}`, `24: unknown key: "tokens"`},
		{`anthropic: {limits: 5}`, `23: broker.anthropic.limits must be a list of key: value: "5"`},
		{`anthropic: {resource: a}`, `15: the address of this route has no resource: leave this out: "a"`},
		{`azure-openai: {}`, `3: the address of this route is not known without resource: write it, or to: "azure-openai"`},
		{`bedrock: {}`, `3: the address of this route is not known without region: write it, or to: "bedrock"`},
		{`bedrock: {region: EU}`, `21: broker.bedrock.region is one label of a name, in lower case: "EU"`},
		{`bedrock: {region: eu, to: 'https://a.example'}`, `13: to says all of the address: leave this out: "eu"`},
		{`ollama: {}`, `3: this route leads to a server of your own: say where, as in to: http://host:8000/: "ollama"`},
		{`ollama: {to: 'http://10.0.0.1', inject: {header: A}}`, `35: without a credential there is nothing to put on: write credential, too`},
		{`mine: {to: 'https://a.example:53', api: openai, credential: none}`, `10: no route leads to port 53, which is for DNS: "https://a.example:53"`},
		{`anthropic: {headers: ['X Y']}`, `26: a header is a name, and a * at its end stands for anything, as in X-My-*: "X Y"`},
		{`anthropic: {headers: ['*']}`, `26: a header is a name, and a * at its end stands for anything, as in X-My-*: "*"`},
		{`anthropic: {env: [A]}`, `20: broker.anthropic.env must be a list of key: value`},
		{`anthropic: {env: {A-B: '{base}'}}`, `21: not the name of a variable: "A-B"`},
		{`anthropic: {env: {A: sk-ant-x}}`, `24: a variable of a route has {base} or {token} in it, as in "{base}/v1": "A"`},
		{`anthropic: {env: {A: '{base}/{name}'}}`, `25: a variable of a route has {base} or {token} in it, as in "{base}/v1": "A"`},
		{`anthropic: {credential: env:sk-ant-x}`, `27: behind env: stands the name of a variable`},
		{`anthropic: {credential: {key: sk-ant-x}}`, `27: a credential is one word: file:/PATH, env:NAME or login:/PATH, without a blank`},
		{`anthropic: {credential: [{file: /run/k}]}`, `28: a credential is one word: file:/PATH, env:NAME or login:/PATH, without a blank`},
		{`anthropic: {to: 'http://api.anthropic.com/'}`, `15: http leads only to an address, or to a server of your own: write https, or private: true: "http://api.anthropic.com/"`},
		{`anthropic: {git: read}`, `15: this is about repositories: leave it out, or say so, as in api: git: "git"`},
		{`anthropic: {git: pull}`, `20: broker.anthropic.git is read, or write for pushes too: "pull"`},
		{`anthropic: {repos: [a]}`, `23: a repository is OWNER/NAME, in which * stands for any text without a slash, as in my-org/*: "a"`},
		{`github: {repos: []}`, `19: an empty list could be any or none: name what there is, or leave it out, which is any: "broker.github.repos"`},
		{`github: {repos: }`, `19: an empty list could be any or none: name what there is, or leave it out, which is any: "broker.github.repos"`},
		{`github: {git: write, branches: []}`, `34: an empty list could be any or none: name what there is, or leave it out, which is any: "broker.github.branches"`},
		{`npm: {packages: {allow: []}}`, `27: an empty list could be any or none: name what there is, or leave it out, which is any: "broker.npm.packages.allow"`},
		{`anthropic: {models: []}`, `23: an empty list could be any or none: name what there is, or leave it out, which is any: "broker.anthropic.models"`},
		{`anthropic: {repos: [a/../b]}`, `23: a repository is OWNER/NAME, in which * stands for any text without a slash, as in my-org/*: "a/../b"`},
		{`anthropic: {repos: ['https://a/b']}`, `24: a repository is OWNER/NAME, in which * stands for any text without a slash, as in my-org/*: "https://a/b"`},
		{`anthropic: {branches: ['a b']}`, `27: a branch is a name in which * stands for any text without a slash, as in agent/*; other refs begin with refs/: "a b"`},
		{`anthropic: {branches: ['a..b']}`, `27: a branch is a name in which * stands for any text without a slash, as in agent/*; other refs begin with refs/: "a..b"`},
		{`anthropic: {min_age: 3d}`, `15: this is about a registry of packages: leave it out, or say which, as in api: npm: "min_age"`},
		{`anthropic: {min_age: 3}`, `24: broker.anthropic.min_age is a time, as in 3d, 12h or 2w: "3"`},
		{`npm: {packages: {deny: [typo/*]}}`, `9: no package has such a name: npm's are NAME or @SCOPE/NAME: "typo/*"`},
		{`npm: {packages: {allow: ['@typo']}}`, `9: no package has such a name: npm's are NAME or @SCOPE/NAME: "@typo"`},
		{`maven: {packages: {deny: [org.acme]}}`, `11: no package has such a name: Maven's are GROUP:ARTIFACT: "org.acme"`},
		{`pypi: {packages: {deny: ['@a/b']}}`, `10: no package has such a name: here they have no scope: "@a/b"`},
		{`anthropic: {min_age: -3d}`, `24: broker.anthropic.min_age is a time, as in 3d, 12h or 2w: "-3d"`},
		{`anthropic: {min_age: 99999999999999999d}`, `24: broker.anthropic.min_age is a time, as in 3d, 12h or 2w: "99999999999999999d"`},
		{`anthropic: {packages: {allow: ['a b']}}`, `35: a package is its name, in which * stands for any text, as in @scope/*: "a b"`},
		{`anthropic: {inspect: a.example}`, `15: this route is built in, with a path of its own: give the one with inspect another name: "a.example"`},
		{`mine: {inspect: a.example, to: 'https://a.example/'}`, `30: a route with inspect has no path of its own, and only credential, optional, plaintext, inject, env, add beside it: "to"`},
		{`mine: {inspect: 10.0.0.1, credential: 'env:K'}`, `10: a credential goes onto one inspected name: write NAME, or NAME:PORT: "10.0.0.1"`},
		{`mine: {inspect: '*.a.example', credential: 'env:K'}`, `10: a credential goes onto one inspected name: write NAME, or NAME:PORT: "*.a.example"`},
		{`mine: {inspect: a.example, credential: none}`, `30: without a credential there is nothing to put on: leave the route out, or write add: "none"`},
		{`mine: {inspect: a.example, credential: 'env:K', inject: {header: A}, env: {A: '{base}'}}`, `78: a route with inspect has no base URL: only {token} can stand here: "A"`},
		{`mine: {inspect: a.example, credential: 'env:K', inject: {header: A}, add: {a: b}}`, `72: this header is put on already: leave it out here: "a"`},
		{`mine: {inspect: a.example, credential: none, add: {host: b}}`, `54: not the name of a header that can be put on: "host"`},
	} {
		if got, want := failure(t, "p.yaml", "broker:\n  "+tt.route+"\n"), "p.yaml:2:"+tt.want; got != want {
			t.Errorf("%s\n got %s\nwant %s", tt.route, got, want)
		}
	}
}

func TestBrokerErrors(t *testing.T) {
	for _, tt := range []struct{ data, want string }{
		{"broker: 5\n", `p.yaml:1:9: broker must be a list of key: value: "5"`},
		{"broker: [anthropic]\n", `p.yaml:1:9: broker must be a list of key: value`},
		{"broker:\n  anthropic: {}\n  anthropic: {}\n", `p.yaml:3:3: the key is there twice: "anthropic"`},
		{"broker:\n  anthropic:\n    gits: read\n    repo: [a/*]\n", "p.yaml:3:5: unknown key: \"gits\" (did you mean git?)\np.yaml:4:5: unknown key: \"repo\" (did you mean repos?)"},
		{"broker:\n  anthropic: &a {}\n  openai: *a\n", `p.yaml:3:11: broker.openai must be a list of key: value: "a"`},
		{"broker: {anthropic: }\ndomains:\n- api.anthropic.com\n", `p.yaml:3:3: api.anthropic.com is reached through the broker alone, by the route anthropic (p.yaml:1): take this entry out, or write unbrokered behind it: "api.anthropic.com"`},
		{"broker: {anthropic: }\ndomains:\n- '*.anthropic.com'\n- api.anthropic.com:8443\n", "p.yaml:3:4: api.anthropic.com is reached through the broker alone, by the route anthropic (p.yaml:1): deny it (!api.anthropic.com), or write unbrokered behind this entry: \"*.anthropic.com\"\np.yaml:4:3: api.anthropic.com is reached through the broker alone, by the route anthropic (p.yaml:1): take this entry out, or write unbrokered behind it: \"api.anthropic.com:8443\""},
		{"broker: {anthropic: }\nservices: [claude]\n", `p.yaml:2:12: api.anthropic.com is reached through the broker alone, by the route anthropic (p.yaml:1): deny it (!api.anthropic.com), or write unbrokered behind this entry: "api.anthropic.com"`},
		{"broker: {anthropic: }\nenv: {ANTHROPIC_BASE_URL: x, ANTHROPIC_API_KEY: sk-ant-x}\n", "p.yaml:2:49: this variable is set by the route anthropic (p.yaml:1): take it out of env: \"ANTHROPIC_API_KEY\"\np.yaml:2:27: this variable is set by the route anthropic (p.yaml:1): take it out of env: \"ANTHROPIC_BASE_URL\""},
		{"broker:\n  openai: {env: {A: '{base}'}}\n  anthropic: {env: {A: '{base}'}}\n", `p.yaml:3:21: the route openai sets this variable already: take it out of one of them: "A"`},
		{"broker: {anthropic: {credential: file:/k}}\nenv: {ANTHROPIC_API_KEY: sk-ant-x}\n", `p.yaml:2:26: this variable is set by the route anthropic (p.yaml:1): take it out of env: "ANTHROPIC_API_KEY"`},
		{"broker:\n  mine: {to: 'http://10.0.0.1:8000/', api: openai, credential: none}\nnetworks: ['10.0.0.0/24:8000', '10.0.0.1:443']\n", `p.yaml:3:13: 10.0.0.1 is reached through the broker alone, by the route mine (p.yaml:2): deny it (!10.0.0.1), or write unbrokered behind this entry: "10.0.0.0/24:8000"`},
		{"broker:\n  mine: {to: 'http://db:8000/', private: true, api: openai, credential: none}\ndomains: ['db:8000', 'db:443']\n", `p.yaml:3:12: db is reached through the broker alone, by the route mine (p.yaml:2): take this entry out, or write unbrokered behind it: "db:8000"`},
	} {
		_, err := Parse(&Bundle{Files: []File{{Name: "p.yaml", Data: []byte(tt.data)}}}, fsys("claude.txt", "api.anthropic.com\nplatform.claude.com\n"))
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s\n got %v\nwant %s", tt.data, err, tt.want)
		}
	}
}

// TestErrorsKeepSecrets: whoever writes a key where none belongs does not find it in an error, which is logged.
func TestErrorsKeepSecrets(t *testing.T) {
	for _, route := range []string{
		"{credential: SECRET}", "{credential: [env:A, SECRET]}", "{credential: env:SE-SECRET}", "{credential: {key: SECRET}}",
		"{credential: [{env: SECRET}]}", "{to: 'https://me:SECRET@a.example/'}", "{to: 'https://me:SECRET%zz@a.example/'}",
		"{inject: {header: A, value: SECRET}}", "{inject: {query: a, value: 'SECRET {}'}}", "{env: {A: SECRET}}",
	} {
		if got := failure(t, "p.yaml", "broker:\n  anthropic: "+route+"\n"); strings.Contains(got, "SECRET") {
			t.Errorf("%s: %s", route, got)
		}
	}
	if got := failure(t, "p.yaml", "broker: {anthropic: }\nenv: {ANTHROPIC_API_KEY: SECRET}\n"); strings.Contains(got, "SECRET") {
		t.Error(got)
	}
}
