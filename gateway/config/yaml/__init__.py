"""YAML and JSON texts to documents, and the fields of a document with their problems."""
