"""The inbound side: the HTTPS front end and the admin port, with HTTP/1.1, routes, authentication, TLS, and
bounds on connections and bytes.
"""
