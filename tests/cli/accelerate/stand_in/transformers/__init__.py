"""A configuration of a model, as the scripts here need it."""
import json
import os


class AutoConfig(dict):
    @classmethod
    def from_pretrained(cls, folder):
        with open(os.path.join(folder, "config.json")) as file:
            return cls(json.load(file))
