"""The plugin contract: requests, answers, and their JSON Schemas.

May import: resources.kinds, resources.reading, resources.validation, text.
"""
