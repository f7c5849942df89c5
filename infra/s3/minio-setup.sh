#!/bin/sh
# Prepares a MinIO server for gymbus: the bucket, and an account per role with no more rights than the role needs.
# Idempotent. Needs MinIO's own command line, mc, and an alias for the server with administrator's rights:
#
#   mc alias set lab https://minio.lab.example:9000 ADMIN SECRET
#   export GYMBUS_RUNNER_SECRET=... GYMBUS_PUBLISHER_SECRET=... GYMBUS_READER_SECRET=... GYMBUS_IMAGES_SECRET=...
#   infra/s3/minio-setup.sh lab
#
# MinIO takes secrets of 8 to 40 characters. The policies name the bucket `gymbus`; for another one in GYMBUS_BUCKET they
# are rewritten on the way, and named after it: the same accounts then have rights in both.
set -eu
alias=${1:?usage: minio-setup.sh MC_ALIAS}
bucket=${GYMBUS_BUCKET:-gymbus}
here=$(cd "$(dirname "$0")" && pwd)

# Before anything is done, so that nothing is half done.
: "${GYMBUS_RUNNER_SECRET:?set it: the secret key of the account gymbus-runner}"
: "${GYMBUS_PUBLISHER_SECRET:?set it: the secret key of the account gymbus-publisher}"
: "${GYMBUS_READER_SECRET:?set it: the secret key of the account gymbus-reader}"
: "${GYMBUS_IMAGES_SECRET:?set it: the secret key of the account gymbus-images, which pushes images}"

policy=$(mktemp)
trap 'rm -f "$policy"' EXIT

mc mb --ignore-existing "$alias/$bucket"

# ROLE SECRET
account() {
  sed "s/:::gymbus/:::$bucket/g" "$here/policies/$1.json" >"$policy"
  mc admin policy create "$alias" "$bucket-$1" "$policy"
  # Not among the arguments: those are everybody's to read.
  printf '%s\n' "$2" | mc admin user add "$alias" "gymbus-$1"
  # Versions of mc differ on whether a policy that is attached already is an error: so it is looked at afterwards.
  mc admin policy attach "$alias" "$bucket-$1" --user "gymbus-$1" || true
  if ! mc admin user info "$alias" "gymbus-$1" | grep -Eq "PolicyName:.*[ ,]$bucket-$1(,|\$)"; then
    echo "the policy $bucket-$1 is not attached to the account gymbus-$1" >&2
    exit 1
  fi
}

account runner "$GYMBUS_RUNNER_SECRET"
account publisher "$GYMBUS_PUBLISHER_SECRET"
account reader "$GYMBUS_READER_SECRET"
account images "$GYMBUS_IMAGES_SECRET"
echo "runners use the access key gymbus-runner with AWS_ENDPOINT_URL set to the server's URL"
