#!/bin/sh
# A session over curl, one request after the other: client.sh SESSION TEXT [SERVER]
# With a token: TSM_TOKEN=tsm-... client.sh ...; needs curl 7.71 or newer.
set -eu
session=$1 text=$2 server=${3:-http://localhost:8080}
body=$(printf '%s' "$text" | sed 's/[\\"]/\\&/g') # a text without line breaks, as a JSON string

id=$(date +%s)-$$ # of this run

post() { # ACTION BODY: curl retries after 429, 5xx and lost connections; the request_id makes that safe
	curl -sS --max-time 60 --retry 8 --retry-connrefused --retry-all-errors \
		${TSM_TOKEN:+-H "Authorization: Bearer $TSM_TOKEN"} \
		"$server/v1/sessions/$session/$1" -d "$2"
	echo
}

post score "{\"text\": \"$body\", \"request_id\": \"$id-1\"}"
post generate "{\"n\": 40, \"temperature\": 0.5, \"request_id\": \"$id-2\"}"
