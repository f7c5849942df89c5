"""Validates JSON documents with stock jsonschema: validate_schema.py SCHEMA < [documents] > [first error of each, or null]"""
import json, sys
import jsonschema

schema = json.load(open(sys.argv[1]))
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)
errors = [next(validator.iter_errors(document), None) for document in json.load(sys.stdin)]
print(json.dumps([error and f"{error.json_path}: {error.message}" for error in errors]))
