"""Documents of files, and custom resources of a cluster, to one ``Config``."""
