"""The configuration: files to one validated, frozen ``Config``, or all that is wrong with them."""
