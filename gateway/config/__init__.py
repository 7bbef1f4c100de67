"""The configuration: files and custom resources to one validated, frozen ``Config``, or all its problems."""
