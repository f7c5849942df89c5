#!/bin/sh
# Prepares a MinIO server for gymbus: the bucket, and an account per role with no more rights than the role needs.
# Idempotent. Needs MinIO's own command line, mc, and an alias for the server with administrator's rights:
#
#   mc alias set lab https://minio.lab.example:9000 ADMIN SECRET
#   GYMBUS_RUNNER_SECRET=... GYMBUS_PUBLISHER_SECRET=... GYMBUS_READER_SECRET=... infra/s3/minio-setup.sh lab
#
# The policies name the bucket `gymbus`; with another name in GYMBUS_BUCKET they are rewritten on the way.
set -eu
alias=${1:?usage: minio-setup.sh MC_ALIAS}
bucket=${GYMBUS_BUCKET:-gymbus}
here=$(cd "$(dirname "$0")" && pwd)

mc mb --ignore-existing "$alias/$bucket"
for role in runner publisher reader; do
  variable="GYMBUS_$(printf %s "$role" | tr '[:lower:]' '[:upper:]')_SECRET"
  eval "secret=\${$variable:?set $variable: the secret key of the account gymbus-$role}"
  policy=$(mktemp)
  sed "s/:::gymbus/:::$bucket/g" "$here/policies/$role.json" >"$policy"
  mc admin policy create "$alias" "gymbus-$role" "$policy"
  rm -f "$policy"
  mc admin user add "$alias" "gymbus-$role" "$secret"
  mc admin policy attach "$alias" "gymbus-$role" --user "gymbus-$role" || true # attached already
done
echo "runners use the access key gymbus-runner with AWS_ENDPOINT_URL set to the server's URL"
