// Package broker is the unprivileged process that holds the credentials of the routes.
package broker
