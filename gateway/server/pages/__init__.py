"""The pages of the admin port, and the JSON behind them: a part of each process, their merge, its rendering.

Each gateway process describes itself as JSON, a *part*. The merge of the parts of all processes is the public
JSON (docs/pages.md), and a page is a rendering of it. Merges and renderings are pure functions.
"""
