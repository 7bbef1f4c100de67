"""Plain HTTPS webhooks, called as kube-apiserver would call them.

HTTP/1.1 is spoken here, over asyncio's transports and llhttp (httptools), which the front end uses too. A
review of 6 KB over TLS and a kept connection costs 20 us of CPU so, where aiohttp takes 70 us and httpx2
490 us (uvloop, 32 calls at once), and every bound is where it can be seen.
"""
