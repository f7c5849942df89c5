"""Publishes many jobs: publish.py BATCH COUNT. NATS_URL says where to."""
import asyncio, json, os, sys
import nats

async def main(batch: str, count: int):
    bus = await nats.connect(os.environ["NATS_URL"])
    async def publish(n: int):
        job = {"schema": "gymbus.job.v1", "batch_id": batch, "job_id": f"explore-{n:05}", "image": "debian-desktop",
               "instruction": "Explore the desktop.", "policy": {"name": "random", "params": {"steps": 10}}, "seed": n}
        subject = f"gymbus.jobs.{job['image']}.{batch}.{job['job_id']}"
        headers = {"Nats-Msg-Id": f"{batch}/{job['job_id']}"}
        return await bus.jetstream().publish(subject, json.dumps(job).encode(), headers=headers)
    for start in range(0, count, 500):  # so many unanswered at once
        acks = await asyncio.gather(*(publish(n) for n in range(start, min(start + 500, count))))
        print(sum(not ack.duplicate for ack in acks), "queued")
    await bus.close()

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
