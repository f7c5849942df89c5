// Publishes one job: go run . BATCH JOB. NATS_URL says where to.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const body = `{"schema": "gymbus.job.v1", "batch_id": %q, "job_id": %q, "image": "debian-desktop",
 "instruction": "Make a folder named todo on the desktop.", "policy": {"name": "random", "params": {"steps": 5}},
 "evaluator": {"func": "exact_match", "result": {"type": "vm_command_line", "command": ["ls", "/home/user/Desktop"]},
               "expected": {"type": "rule", "rules": {"expected": "todo\n"}}}}`

func main() {
	batch, job := os.Args[1], os.Args[2]
	js := must(jetstream.New(must(nats.Connect(os.Getenv("NATS_URL")))))
	subject, message := "gymbus.jobs.debian-desktop."+batch+"."+job, fmt.Appendf(nil, body, batch, job)
	ack := must(js.Publish(context.Background(), subject, message, jetstream.WithMsgID(batch+"/"+job)))
	fmt.Println("queued:", !ack.Duplicate)
}

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
