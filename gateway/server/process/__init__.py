"""Operating system processes: several gateways behind one port, and workers started by a command."""
