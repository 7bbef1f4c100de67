"""The front end, the admin port and its pages, the client of the cluster, and the process."""
