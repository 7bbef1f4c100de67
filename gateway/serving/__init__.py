"""Who asks: the HTTPS front end and the admin port, from sockets to requests and back."""
