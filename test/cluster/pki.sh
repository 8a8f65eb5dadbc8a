#!/bin/sh
# pki.sh DIR ADDRESS… makes what the parts of a cluster know each other by: an authority, a certificate for each part, and
# what it says to the API server at the first ADDRESS.
set -eu
dir=$1 server=$2
shift
mkdir -p "$dir"
chmod 0700 "$dir"
cd "$dir"
names=DNS:node,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc
for address; do names=$names,IP:$address; done

key() {
	openssl ecparam -genkey -name prime256v1 -noout -out "$1.key"
}

# sign NAME SUBJECT
sign() {
	key "$1"
	printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\n' "$names" >extensions
	openssl req -new -key "$1.key" -subj "$2" -out "$1.csr"
	openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile extensions -out "$1.crt" 2>/dev/null
}

# config NAME: the kubeconfig of a part that has a certificate.
config() {
	cat >"$1.conf" <<EOF
apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "https://$server:6443", certificate-authority: $dir/ca.crt}}]
users: [{name: me, user: {client-certificate: $dir/$1.crt, client-key: $dir/$1.key}}]
contexts: [{name: test, context: {cluster: test, user: me}}]
current-context: test
EOF
}

key ca
openssl req -x509 -new -key ca.key -subj /CN=agent-init-test -days 2 -out ca.crt -addext keyUsage=critical,keyCertSign,digitalSignature
sign apiserver /CN=kube-apiserver
sign kubelet /O=system:nodes/CN=system:node:node
sign scheduler /CN=system:kube-scheduler
sign manager /CN=system:kube-controller-manager
sign proxy /CN=system:kube-proxy
sign admin /O=system:masters/CN=admin
for who in kubelet scheduler manager proxy admin; do config "$who"; done
openssl genrsa -out accounts.key 2048 2>/dev/null
openssl rsa -in accounts.key -pubout -out accounts.pub 2>/dev/null
