package policy

import (
	"slices"
	"strings"
)

// Below some names anybody can have a name of their own, and so a place to send data to: object stores, app platforms,
// tunnels, forges, help desks. The public suffix list has most such names, and vetWildcard asks it. It has neither
// those that stand above several of them, nor those of services that never asked to be listed.

// strangers are such names, in alphabetical order.
var strangers = [...]string{
	"akamaihd.net", "akamaized.net", "aliyuncs.com", "amazonaws.com", "amazonaws.com.cn", "app.github.dev",
	"appdomain.cloud", "atlassian.net", "auth0.com", "awsapprunner.com", "awsglobalaccelerator.com", "azure-api.net",
	"azure.com", "azurecontainer.io", "azurecontainerapps.io", "azurecr.io", "azureedge.net", "azurestaticapps.net",
	"azurewebsites.net", "b-cdn.net", "backblazeb2.com", "beeceptor.com", "bitbucket.io", "blob.core.windows.net",
	"blogspot.com", "cloudapp.azure.com", "cloudapp.net", "cloudflarestorage.com", "cloudfront.net",
	"cloudfunctions.net", "core.windows.net", "database.windows.net", "deno.dev", "devtunnels.ms",
	"digitaloceanspaces.com", "dropboxusercontent.com", "edgekey.net", "edgesuite.net", "elasticbeanstalk.com",
	"elb.amazonaws.com", "fastly.net", "firebaseapp.com", "firebasedatabase.app", "firebaseio.com", "force.com",
	"freshdesk.com", "github.dev", "gitpod.io", "glitch.me", "googleapis.com", "googleusercontent.com", "gradio.live",
	"ingest.de.sentry.io", "ingest.sentry.io", "ingest.us.sentry.io", "jfrog.io", "lambda-url.on.aws", "lhr.life",
	"linodeobjects.com", "loca.lt", "modal.run", "msappproxy.net", "my.salesforce.com", "myqcloud.com", "myshopify.com",
	"ngrok.dev", "notion.site", "okta.com", "on.aws", "onmicrosoft.com", "oraclecloud.com", "pipedream.net", "pkg.dev",
	"repl.co", "replit.app", "replit.dev", "run.app", "scw.cloud", "sentry.io", "service-now.com",
	"servicebus.windows.net", "sharepoint.com", "slack.com", "streamlit.app", "supabase.in", "trafficmanager.net",
	"tumblr.com", "visualstudio.com", "wasabisys.com", "webhook.site", "windows.net", "wordpress.com", "zendesk.com",
}

// ofStrangers says whether a wildcard for name would cover names that anybody can have.
func ofStrangers(name string) bool {
	if _, found := slices.BinarySearch(strangers[:], name); found {
		return true
	}
	return slices.ContainsFunc(strangers[:], func(s string) bool { return strings.HasSuffix(s, "."+name) })
}
