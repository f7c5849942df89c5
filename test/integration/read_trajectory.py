"""Reads a trajectory with stock boto3 and checks every object by the manifest: read_trajectory.py BUCKET PREFIX"""
import hashlib, json, sys
import boto3

bucket, prefix = sys.argv[1:]
s3 = boto3.client("s3")
read = lambda key: s3.get_object(Bucket=bucket, Key=key)["Body"].read()

manifest = json.loads(read(prefix + "manifest.json"))
for item in manifest["objects"]:
    body = read(item["key"])
    assert len(body) == item["bytes"], f"{item['key']}: {len(body)} bytes, not {item['bytes']}"
    assert hashlib.sha256(body).hexdigest() == item["sha256"], f"{item['key']}: another sha256"
steps = [json.loads(line) for line in read(prefix + "trajectory.jsonl").splitlines()]
pictures = [step["observation"]["screenshot"]["key"] for step in steps]
assert set(pictures) <= {item["key"] for item in manifest["objects"]}, "a picture is not in the manifest"
print(json.dumps({"objects": len(manifest["objects"]), "steps": len(steps), "score": manifest["outcome"]["score"]}))
