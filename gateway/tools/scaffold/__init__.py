"""``new``: writes projects of policy workers, from templates."""
