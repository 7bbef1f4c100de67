"""The scripted worker: the name of a policy is its script, a JSON object.

It is the SDK's HTTP/2 server below a service of its own, so that a script can break the contract. A test runs
it as a process, ``python -m tests.worker --listen ADDRESS``, or in a thread, by ``server.ScriptedWorker``.
Members of a script, all optional:

- ``delay_ms`` before answering (``[low, high]`` draws one), ``until`` (answers once that file exists),
  ``hang`` (never answers), ``exit`` (dies)
- ``deny`` with ``code``, ``message``, ``reason``, ``causes``, and only ``when`` there is this label;
  ``warnings``; ``annotations``
- ``patch`` (a list of operations, or text to be sent as it is), ``label`` (adds it where it is missing)
- ``status`` and ``details`` (a gRPC status), ``empty`` (a verdict without an outcome), ``garbage`` (bytes),
  ``twice``, ``wrong_id``, ``big`` (so many bytes), ``drain``, ``answer`` (a large or expensive one, by its
  name in ``answers``)
- on a stream: ``stubborn`` (answers even after the call is cancelled), ``others_id``
  (answers under the id of another call in flight, if any), ``flood`` (then sends unsolicited
  verdicts until the stream ends), ``end`` (ends the stream, with OK, instead of answering)
- ``by_user`` (members for a user's requests, by the user's name)
- ``raw`` (denies, with the request as it came, in base64)
- ``report`` (denies, with counts of the calls so far)
- ``trace`` (an audit annotation with the ``traceparent`` of the call)
- ``record`` (an audit annotation, with the request, for each different object), ``count``
  (an annotation of the object that counts the calls), ``echo`` (one that names the labels and containers)

Flags for a worker that differs from others with the same policies:

- ``--override JSON``: members that replace those of every script except ``report``; with ``--every N`` only
  in each Nth call
- ``--log FILE``: a line for each call as it comes in, with the review's uid and the policy, which outlives a
  worker that is killed
- ``--no-stream``: serves no ReviewStream
- ``--chains``: evaluates a call with ``after`` on the object that the earlier call leaves
- ``--declare FILE``: serves ListPolicies, with the policies that are the members of the JSON object in FILE,
  and CheckParameters if one of them has ``problem``. A policy may have ``schema``, ``mutating`` and
  ``problem``, the judgement of all its parameters. FILE is read again for each call
- ``--health``: serves grpc.health.v1; SIGUSR1 turns SERVING into NOT_SERVING and back
- ``--tls KEY CERT CLIENT_CA``: PEM files; clients need a certificate
- ``--attack NAME``, any number of times: serves nothing, but attacks each connection with invalid HTTP/2
  frames, each attack at a port of its own: see ``attacks``
"""
