#!/bin/sh
# Publishes one job: publish.sh BATCH JOB. NATS_URL says where to.
set -eu
batch=$1 job=$2
nats pub -J -H "Nats-Msg-Id:$batch/$job" "gymbus.jobs.debian-desktop.$batch.$job" <<JOB
{"schema": "gymbus.job.v1", "batch_id": "$batch", "job_id": "$job", "image": "debian-desktop",
 "instruction": "Show the battery percentage on the panel.",
 "policy": {"name": "scripted", "params": {"actions": [{"type": "fail", "reason": "no battery here"}]}},
 "evaluator": {"func": "infeasible"}}
JOB
